"""One trajectory: its tokens in colour, values along them, how it was sampled, and what the sandbox said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.config import InvalidConfig, RunConfig, validate
from tasks.estimators import soft_value
from tasks.explorer import response_rows
from tasks.explorer.address import NotFound
from tasks.explorer.computing import Computations
from tasks.explorer.look import Look, Page
from tasks.explorer.outcomes import with_outcomes
from tasks.explorer.policy_along import PolicyAlong, policy_along
from tasks.explorer.runs import CONFIGURATIONS
from tasks.explorer.source_text import source
from tasks.explorer.token_values import (
    COLOURS,
    Along,
    advantages,
    charts,
    failing_test,
    pivotal_tokens,
    token_texts,
    tokenizer_of,
    tokens,
    values_along,
)
from tasks.programs.extraction import extract_program
from tasks.sampling.reference_counts import reference_sampling
from warehouse.queries import query

CONTEXT = query(__name__, "context")
COUNTS = query(__name__, "counts")
CORPUS = query(__name__, "corpus")
ESTIMATES = query(__name__, "estimates")
REFERENCE_LOGPROBS = query(__name__, "reference_logprobs")
FOLDERS = query(__name__, "folders")
POLICIES = query(__name__, "policies")
USES = query(__name__, "uses")
VERDICT = query(__name__, "verdict")
TEST = query(__name__, "test")
SEARCHED = query(__name__, "searched")
_along_policies: Computations[PolicyAlong] = Computations()


def trajectory_page(look: Look) -> Page:
    """Tokens coloured by advantage, success, entropy or surprise; with `policy`, that policy's own (it is loaded)."""
    row = response_rows.trajectory(look, look.address.needed("id"))
    return _page(look, row, f"Trajectory {row['trajectory_id'][:12]}")


def sample_page(look: Look) -> Page:
    """The same of a sample of an evaluation: number `n` of the policy `of` on a problem."""
    policy, problem = look.address.needed("of"), look.address.needed("problem")
    number = look.address.number("n", 0) or 0
    row = response_rows.sample(look, policy, problem, number)
    return _page(look, row, f"Sample {number} of policy {policy[:12]}")


def _page(look: Look, row: dict[str, Any], title: str) -> Page:
    context = context_of(look, row)
    settings = _settings(look, row["run_id"])
    along, label = _along(look, row, context, settings)
    known = [one for one in COLOURS if _has(along, one)]
    colour = look.address.choice("colour", (known[0], *COLOURS))
    verdict = look.row(VERDICT, program=row["program_hash"], suite=row["suite_hash"])
    failing = failing_test(verdict["detail"]) if verdict else None
    whole = look.address.text("whole") == "1"
    return Page(
        "trajectory.html",
        title,
        "/problems",
        {
            "row": row,
            "context": context,
            "colour": colour,
            "colours": known,
            "tokens": tokens(along, colour),
            "charts": charts(along, settings.beta, label),
            "policies": look.rows(POLICIES, reference=context["reference"]),
            "chosen": look.address.text("policy"),
            "label": label,
            "program": source(extract_program(row["text"] or ""), whole=whole),
            "text": source(row["text"] or "", whole=whole),
            "verdict": verdict and with_outcomes(verdict),
            "failing": failing,
            "test": None if failing is None else look.row(TEST, suite=row["suite_hash"], position=failing),
            "uses": _by_run(look.rows(USES, id=row["trajectory_id"]) if row["trajectory_id"] else []),
            "pivotal": pivotal_tokens(along),
            "searched": bool(along.estimates),
        },
    )


def context_of(look: Look, row: dict[str, Any]) -> dict[str, Any]:
    """The problem and prompt of a response, and the pi_0 that its page tells of."""
    asked = {"id": row["trajectory_id"], "problem": row["problem_id"], "prompt": row["prompt_id"]}
    return look.row(CONTEXT, **asked, policy=row["policy_start"], source=row["source"]) or {}


def searched_page(look: Look) -> Page:
    """The trajectories whose tokens were searched for pivotal ones."""
    rows = look.rows(SEARCHED)
    known = response_rows.described(look, [row["trajectory_id"] for row in rows])
    found = [{**row, "known": known.get(row["trajectory_id"])} for row in rows]
    return Page("searched.html", "Searched trajectories", "/problems", {"rows": found})


def _by_run(uses: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in uses:
        found.setdefault(row["run_id"], []).append(row)
    return found


def _has(along: Along, colour: str) -> bool:
    known = {
        "advantage": along.advantages,
        "success": along.estimates,
        "entropy": along.entropies,
        "surprise": along.surprise,
    }
    return colour == "none" or bool(known[colour])


@dataclass(frozen=True, slots=True)
class _Settings:
    """What of a run's stored configuration its values need; read as it is, whichever version wrote it."""

    beta: float
    prior: float
    known_shares: dict[str, float]
    """Problem that pi_0 never solved -> the S that the run took from the corpus's programs."""
    text: str

    def start(self, problem_id: str, n: int, k: int) -> float:
        """The prompt's own value y_0, nats; 0 where nothing is known of it."""
        known = self.known_shares.get(problem_id)
        return soft_value(n, k, self.beta, prior=self.prior, known=known) if n else 0.0

    def config(self) -> RunConfig:
        """The whole configuration. Raises InvalidConfig when another version of this project wrote it."""
        return validate(json.loads(self.text), origin="the run's stored configuration")


def _settings(look: Look, run_id: str) -> _Settings:
    row = look.row(CONFIGURATIONS, runs=[run_id])
    stored = json.loads(row["config_json"]) if row else {}
    own, corpus = RunConfig(), look.row(CORPUS, run=run_id)
    return _Settings(
        float(stored.get("train", {}).get("beta", own.train.beta)),
        float(stored.get("q0", {}).get("prior", own.q0.prior)),
        json.loads(corpus["manifest"]).get("known_shares", {}) if corpus else {},
        row["config_json"] if row else "{}",
    )


def _along(look: Look, row: dict[str, Any], context: dict[str, Any], settings: _Settings) -> tuple[Along, str]:
    """What is known along the tokens, and whose values they are."""
    reference, chosen = context["reference"], look.address.text("policy")
    folders = stored_folders(look, [policy for policy in (row["policy_start"], reference, chosen) if policy])
    readable = folders.get(row["policy_start"] or "") or folders.get(reference or "")
    texts = _texts(readable, row["token_ids"]) if readable else []
    asked = {"problem": row["problem_id"], "prompt": row["prompt_id"], "suite": row["suite_hash"]}
    limit = row["max_response_tokens"]  # null of evaluation samples and of programs that others wrote
    counts = look.row(COUNTS, **asked, reference=reference, sampling=reference_sampling(limit) if limit else "")
    n, k = (int(counts["n"]), int(counts["k"])) if counts and reference else (0, 0)
    stored = (
        look.row(REFERENCE_LOGPROBS, id=row["trajectory_id"], reference=reference) if row["trajectory_id"] else None
    )
    found = advantages(row, stored["logprobs"]) if stored and texts else []
    values: list[float] = []
    entropies: list[float] = []
    label = "the sampling policy's own value"
    if texts:
        start = settings.start(row["problem_id"], n, k)
        values = values_along(start, found)
        if chosen:
            own = _computed(folders, chosen, str(reference), context, row, settings, start)
            values, entropies = own.values, own.entropies
            found = [b - a for a, b in zip([start, *values], values, strict=False)]
            label = f"policy {chosen[:8]}: its own value" if chosen != reference else "pi_0's own value"
        if not n:  # the prompt's own value is unknown, so no value is known; what each token adds is
            values = []
    surprise = [None if one is None else -float(one) for one in row["sampled_logprobs"] or []]
    return Along(texts, found, values, surprise if texts else [], entropies, _estimates(look, row, (n, k))), label


def _estimates(look: Look, row: dict[str, Any], prompt: tuple[int, int]) -> list[dict[str, Any]]:
    """The prompt, the searched positions, and the end; nothing where the trajectory was not searched."""
    length = len(row["token_ids"])
    if not row["trajectory_id"]:
        return []
    inside = [one for one in look.rows(ESTIMATES, id=row["trajectory_id"]) if one["position"] < length]
    if not inside or not prompt[0]:
        return []
    begin = {"position": 0, "n": prompt[0], "k": prompt[1], "pivotal": False}
    end = [{"position": length, "n": 1, "k": int(row["reward"] == 0), "pivotal": False}]
    return [begin, *inside, *(end if row["reward"] is not None else [])]


def stored_folders(look: Look, policies: Sequence[str]) -> dict[str, Path]:
    """The checkpoints of these policies that are there, by policy id."""
    rows = look.rows(FOLDERS, policies=sorted(set(policies)))
    return {row["policy_id"]: Path(row["path"]) for row in rows if (Path(row["path"]) / "config.json").is_file()}


def _texts(folder: Path, token_ids: Sequence[int]) -> list[str]:
    return token_texts(tokenizer_of(folder), token_ids)


def _computed(
    folders: dict[str, Path],
    policy: str,
    reference: str,
    context: dict[str, Any],
    row: dict[str, Any],
    settings: _Settings,
    start: float,
) -> PolicyAlong:
    """What the chosen policy says; it and pi_0 are loaded for it. Raises NotFound, and StillReading meanwhile."""
    for name in (policy, reference):
        if name not in folders:
            raise NotFound(f"the checkpoint of policy {name[:40]!r} is not where the warehouse says, or unknown")
    if context["prompt_ids"] is None:
        raise NotFound(f"the prompt {row['prompt_id']!r} is not in `prompts`")
    try:
        config = settings.config()
    except InvalidConfig as error:
        raise NotFound(f"the values cannot be computed: {error}") from error
    ids = tuple(context["prompt_ids"]), tuple(row["token_ids"])

    def compute() -> PolicyAlong:
        return policy_along(config, folders[policy], folders[reference], ids, start)

    what = f"the values of policy {policy[:12]} along these tokens are being computed"
    return _along_policies.result((policy, reference, ids, start), compute, wait_s=3.0, what=what)
