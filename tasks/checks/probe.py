"""Whether reinforcement learning can learn here, and what it will cost: a few samples of pi_0 before a run.

The samples are drawn as Q0 draws its first ones, for prompts chosen without looking at any result, and are stored as
Q0's: a run that follows finds them, so that nothing is wasted.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasks.checks.plan import PlannedStage, plan
from tasks.config import RunConfig
from tasks.estimators import Counts, beta_interval
from tasks.programs import identity
from tasks.programs.extraction import extract_program
from tasks.q0 import stage as q0
from tasks.run import prompt_set
from tasks.run.manifests import PrepareManifest
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import counts
from tasks.run.stage import Context, StageProgress, run_stage, silent
from tasks.stages import STAGES
from warehouse import Warehouse
from warehouse.queries import query

RUN_ID = "probe"
PROMPTS = 16
SAMPLES = 16
SHOWN = 40
"""Letters of a statement that count as the prompt when a response has them."""
SAMPLED_UNITS = {"samples", "rollouts"}
"""Units of stages' work that are a response of the model each."""


@dataclass(frozen=True, slots=True)
class Responses:
    """What the responses to the probed prompts look like, as counts of them."""

    number: int
    accepted: int
    cut_off: int
    not_python: int
    """Of those that were not cut off."""
    empty: int
    repeat_prompt: int
    stray_fence: int
    """Programs that still hold the mark of a code block: its end was not found."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Probe:
    """What the probe found."""

    known: dict[str, Counts]
    """Samples and successes of the probed prompts."""
    responses: Responses
    drawn: int
    seconds: float
    """Spent on drawing and judging them, the engine's start included."""
    tokens_per_s: float | None
    """Tokens drawn each second; None when every sample was there already."""
    work: tuple[PlannedStage, ...]
    """What a run would do now."""

    @property
    def learnable(self) -> tuple[int, float, float]:
        """Prompts with 0 < S < 1, and the 95% interval of their share among all prompts of the run."""
        some = sum(0 < k < n for n, k in self.known.values())
        low, high = beta_interval(len(self.known), some)
        return some, low, high

    def seconds_of(self, stage: PlannedStage) -> float | None:
        """Predicted time of a stage: as measured on earlier runs, else by the probe's rate where it samples."""
        if stage.seconds is not None or stage.amount.unit not in SAMPLED_UNITS or not self.drawn:
            return stage.seconds
        return stage.amount.units * self.seconds / self.drawn

    def warnings(self) -> list[str]:
        """What looks wrong, with what to do, in words."""
        found, seen = list(_warnings_of(self.responses)), self.learnable
        if self.known and seen[2] < 0.5:
            solved = sum(k == n for n, k in self.known.values())
            why = "easier problems or a stronger model" if 2 * solved < len(self.known) else "harder problems"
            found.append(
                f"only {seen[0]} of {len(self.known)} prompts are solved sometimes and failed sometimes, and only such "
                f"prompts can teach: take {why}, or draw more (q0.samples)"
            )
        return found


def probe(store: Warehouse, config: RunConfig, home: Path, tell: StageProgress = silent) -> Probe:
    """Draw what is missing to 16 samples of 16 prompts, store them, and say what they show. Raises as q0."""
    context = Context(RUN_ID, config, store, home, progress=tell)
    prepared = run_stage(STAGES["prepare"], context).manifest
    context = replace(context, manifests={"prepare": prepared})
    prompts = prompt_set.load(context, "train")
    chosen = sorted(prompts.prompts, key=_draw)[:PROMPTS]
    known = counts(context, prompts)
    work = {name: SAMPLES - known[name][0] for name in chosen if known[name][0] < SAMPLES}
    before = _tokens(context, prompts, chosen)
    began = time.monotonic()
    drawn = _sample(context, work)
    seconds = time.monotonic() - began
    rows = _rows(context, prompts, chosen)
    shown = describe(rows, {name: prompts.prompts[name].problem.statement for name in chosen})
    found = counts(context, prompts)
    rate = (shown.tokens - before) / seconds if drawn else None
    todo = tuple(plan(store, config, home))
    return Probe({name: found[name] for name in chosen}, shown, drawn, seconds, rate, todo)


def describe(rows: Sequence[dict[str, Any]], statements: dict[str, str]) -> Responses:
    """What responses (rows with problem_id, text, verdict, finish_reason, tokens) to these statements look like."""
    programs = [extract_program(row["text"] or "") for row in rows]
    whole = [program for row, program in zip(rows, programs, strict=True) if row["finish_reason"] != "length"]
    begins = {name: " ".join(statement.split())[:SHOWN] for name, statement in statements.items()}
    return Responses(
        number=len(rows),
        accepted=sum(row["verdict"] == "accepted" for row in rows),
        cut_off=len(rows) - len(whole),
        not_python=sum(identity.parse(program) is None for program in whole),
        empty=sum(not program for program in whole),
        repeat_prompt=sum(begins[row["problem_id"]] in " ".join((row["text"] or "").split()) for row in rows),
        stray_fence=sum("```" in program for program in programs),
        tokens=sum(row["tokens"] for row in rows),
    )


def _warnings_of(seen: Responses) -> Iterable[str]:
    whole = seen.number - seen.cut_off
    if 2 * seen.cut_off > seen.number:
        yield (
            f"{seen.cut_off} of {seen.number} responses never stop: a base model under reference.template 'chat', or "
            f"an end token that the model does not use; otherwise raise engine.max_response_tokens"
        )
    elif 10 * seen.cut_off > seen.number:
        yield f"{seen.cut_off} of {seen.number} responses were cut off: raise engine.max_response_tokens"
    if 4 * seen.not_python > max(1, whole):
        yield (
            f"{seen.not_python} of {whole} finished responses hold no Python program ({seen.empty} are empty): look at "
            f'some (`spo sql "SELECT text FROM trajectories LIMIT 3"`), and try another reference.template'
        )
    if 10 * seen.repeat_prompt > seen.number:
        yield f"{seen.repeat_prompt} responses repeat the task instead of solving it: try another reference.template"
    if 10 * seen.stray_fence > seen.number:
        yield f"{seen.stray_fence} programs still hold ```: their code block was not understood; look at a response"


def _draw(problem_id: str) -> str:
    """Prompts are probed in this order: no result decides which."""
    return hashlib.sha256(f"probe {problem_id}".encode()).hexdigest()


def _sample(context: Context, work: dict[str, int]) -> int:
    if not work:
        return 0
    with context.executor(q0.worker, context) as draw:
        return draw(work, 0)


def _rows(context: Context, prompts: PromptSet, chosen: Sequence[str]) -> list[dict[str, Any]]:
    asked = {
        "policy_id": context.manifest(PrepareManifest).policy_id,
        "limit": context.config.engine.max_response_tokens,
        "prompt_ids": [prompts.prompts[name].prompt_id for name in chosen],
        "suites": [prompts.prompts[name].problem.suite_hash for name in chosen],
    }
    return context.warehouse.rows(query(__name__, "responses"), asked)


def _tokens(context: Context, prompts: PromptSet, chosen: Sequence[str]) -> int:
    return sum(row["tokens"] for row in _rows(context, prompts, chosen))
