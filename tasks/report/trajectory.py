"""What there is to show of one trajectory: its tokens, the estimates along them, and a policy's own values.

Errors
------
CannotShow
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from tasks.config import RunConfig
from tasks.engines import checkpoint as checkpoints
from tasks.estimators import beta_interval, soft_value
from tasks.report.token_texts import token_texts
from tasks.report.trajectory_page import ShownTrajectory, ValueEstimate
from tasks.run import runs
from warehouse import Warehouse
from warehouse.queries import query

SEARCHED = query(__name__, "searched")
TRAJECTORY = query(__name__, "trajectory")
ESTIMATES = query(__name__, "estimates")
PROMPT_COUNTS = query(__name__, "prompt_counts")
REFERENCE = query(__name__, "reference")
POLICY = query(__name__, "policy")
FOLDER = "SELECT path FROM policies WHERE policy_id = ? ORDER BY kind = 'reference' DESC, arrival LIMIT 1"


class CannotShow(Exception):
    """The trajectory, or what its page needs, is not there; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _Policy:
    policy_id: str
    folder: Path
    name: str


def searched(store: Warehouse, limit: int = 20) -> list[dict[str, Any]]:
    """Trajectories with estimates: id, problem, tokens, positions estimated, pivotal tokens."""
    return store.rows(SEARCHED, [limit])


def gather(store: Warehouse, identity: str, *, policy: str | None = None, values: bool = True) -> ShownTrajectory:
    """What the page of the trajectory shows; `identity` and `policy` may be the beginnings of ids.

    `policy` defaults to the newest policy trained from the same reference. Its values need both checkpoints; with
    `values` False they are left out. Raises CannotShow.
    """
    row = _trajectory(store, identity)
    rows = store.rows(ESTIMATES, {"id": row["trajectory_id"]})
    reference = rows[0]["reference"] if rows else store.value(REFERENCE, [row["problem_id"]])
    if reference is None:
        raise CannotShow(
            f"pi_0 was never sampled on problem {row['problem_id']!r}, so nothing is known along trajectory "
            f"{row['trajectory_id']!r}; run `prefect deployment run spo/q0` first"
        )
    asked = {"problem": row["problem_id"], "prompt": row["prompt_id"], "suite": row["suite_hash"]}
    (counts,) = store.rows(PROMPT_COUNTS, {**asked, "reference": reference})
    if not counts["n"]:
        raise CannotShow(f"pi_0 has no samples of the prompt and tests of trajectory {row['trajectory_id']!r}")
    config = runs.load_config(store, row["run_id"])
    folder = _folder(store, str(reference))
    trained = _policy(store, str(reference), policy) if values else None
    own: list[float] = []
    if trained is not None:
        n, k = int(counts["n"]), int(counts["k"])
        start = soft_value(n, k, config.train.beta, prior=config.q0.prior)
        own = policy_along(config, trained.folder, folder, (row["prompt_ids"], row["token_ids"]), start).values
    return ShownTrajectory(
        trajectory_id=row["trajectory_id"],
        title=row["title"] or row["problem_id"],
        statement=row["statement"] or "",
        tokens=token_texts(checkpoints.load_tokenizer(folder), row["token_ids"]),
        estimates=_estimates(row, rows, (int(counts["n"]), int(counts["k"]))),
        beta=config.train.beta,
        policy_values=own,
        policy=trained.name if trained else "",
        facts=_facts(row),
    )


@dataclass(frozen=True, slots=True)
class PolicyAlong:
    """What a policy says along a response."""

    values: list[float]
    """y_t = Q_t/beta in nats after each token: y_0 plus the log-ratios so far. Paper: Eq. 12."""
    entropies: list[float]
    """Entropy (nats) of its untempered distribution over the token that comes there."""


def policy_along(
    config: RunConfig, policy: Path, reference: Path, sequence: tuple[Sequence[int], Sequence[int]], start: float
) -> PolicyAlong:
    """A stored policy's values, from y_0 = `start`, and entropies along a (prompt, response); loads both folders."""
    import torch

    from tasks.engines.transformers_engine import TransformersEngine

    torch.set_num_threads(config.engine.threads)
    found: list[tuple[list[float], list[float]]] = []
    for folder in dict.fromkeys((policy, reference)):
        with closing(TransformersEngine(folder, dtype=config.reference.dtype, prefix_store_bytes=0)) as engine:
            found += engine.evaluated([sequence])
    (own, entropies), (before, _) = found[0], found[-1]
    values = accumulate((a - b for a, b in zip(own, before, strict=True)), initial=start)
    return PolicyAlong(list(values)[1:], entropies)


def _trajectory(store: Warehouse, identity: str) -> dict[str, Any]:
    found = store.rows(TRAJECTORY, [identity])
    if len(found) != 1:
        what = f"{len(found)} or more trajectories begin" if found else "no trajectory begins"
        raise CannotShow(f"{what} with {identity!r} in {store.location}; `spo show` lists the searched ones")
    if found[0]["prompt_ids"] is None:
        raise CannotShow(f"the prompt of trajectory {found[0]['trajectory_id']!r} is not in `prompts`")
    return found[0]


def _estimates(row: dict[str, Any], rows: Sequence[dict[str, Any]], prompt: tuple[int, int]) -> list[ValueEstimate]:
    """The prompt, the searched positions, and the end, where S is known from the verdict."""
    n, k = prompt
    length, passed = len(row["token_ids"]), float(row["reward"] == 0)
    inside = [
        ValueEstimate(int(r["position"]), int(r["n"]), int(r["k"]), *beta_interval(r["n"], r["k"]), bool(r["pivotal"]))
        for r in rows
        if r["position"] < length
    ]
    end = [] if row["reward"] is None else [ValueEstimate(length, 1, int(passed), passed, passed)]
    return [ValueEstimate(0, n, k, *beta_interval(n, k)), *inside, *end]


def _facts(row: dict[str, Any]) -> list[tuple[str, str]]:
    temperature = "" if row["temperature"] is None else f" at T {row['temperature']:.2f}"
    author = row["policy_start"] or ("a person" if row["source"] == "human" else row["engine"] or "another model")
    return [("problem", row["problem_id"]), ("verdict", row["verdict"] or "none"), ("written by", author + temperature)]


def _folder(store: Warehouse, policy_id: str) -> Path:
    path = store.value(FOLDER, [policy_id])
    if path is None or not (Path(path) / "config.json").is_file():
        raise CannotShow(f"the checkpoint of policy {policy_id!r} is not where the warehouse says ({path})")
    return Path(path)


def _policy(store: Warehouse, reference: str, wanted: str | None) -> _Policy | None:
    """The policy whose values are shown; None when none has been trained yet."""
    found = store.rows(POLICY, {"id": wanted, "reference": reference})
    if not found:
        if wanted is None:
            return None
        raise CannotShow(f"no policy begins with {wanted!r}; `spo sql 'SELECT policy_id, run_id, step FROM policies'`")
    row = found[0]
    return _Policy(row["policy_id"], _folder(store, row["policy_id"]), f"{row['run_id']} step {row['step']}")
