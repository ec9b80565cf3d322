"""Imports anybody's rollouts for a run's problems, with an account of every row (docs/guides/import.md).

Rows become trajectories of the run's training prompts, in its policy's tokens, judged by its sandbox; they belong to
the run `import`, so that the corpus of every run with these prompts can take them in. Done twice it adds nothing;
killed, it goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandbox import Judge
from tasks.checkpoints import checkpoint
from tasks.corpus.ingestion import ExternalResponse, Ingested, Ingestion, numbered
from tasks.extras.importing.formats import (
    inspect_logs,
    oapl_rows,
    plain_rows,
    trl_completions,
    verifiers_traces,
    verl_rollouts,
)
from tasks.extras.importing.formats.matching import Matching
from tasks.extras.importing.formats.response import ForeignResponse, Found, Naming, RefusedRow
from tasks.extras.importing.formats.tokens import NotExact, PolicyTokens
from tasks.problems.hub import HubPlace
from tasks.problems.prompt import template_for
from tasks.run import prompt_set
from tasks.run.prompt_set import PromptSet
from tasks.run.stage import Context
from tasks.sampling.sampler import FAIL, PASS
from warehouse.queries import query

READERS: Mapping[str, Callable[[Path, Naming], Iterator[Found]]] = {
    "verifiers": verifiers_traces.read,
    "trl": trl_completions.read,
    "verl": verl_rollouts.read,
    "oapl": oapl_rows.read,
    "inspect": inspect_logs.read,
    "columns": plain_rows.read,
}
"""By the name of the format."""

RUN_ID = "import"
"""What the rows belong to."""

REWARDS = query(__name__, "rewards")
UNJUDGED = "the sandbox failed on its program: look at `spo doctor`, then import the same again"


@dataclass(frozen=True, slots=True)
class Claims:
    """Which rewards of a file are believed."""

    believed: bool = False
    """Take the file's reward where it has one; else everything is judged here."""
    correct_at: float = 1.0
    """The least reward of a correct response."""

    def reward(self, claimed: float | None) -> float | None:
        """What the file says in the warehouse's rewards: 0 correct, -1 not; None where it says nothing."""
        return None if claimed is None else PASS if claimed >= self.correct_at else FAIL


@dataclass(frozen=True, slots=True)
class Source:
    """What is imported, and what the user says of it."""

    format: str
    path: Path | None = None
    hub: HubPlace | None = None
    naming: Naming = field(default_factory=Naming)
    model: str = ""
    """Who drew the rows that do not say it."""
    source: str = "other_model"
    """What they are called in the corpus."""
    claims: Claims = field(default_factory=Claims)

    @property
    def name(self) -> str:
        """What it is called in batches and in the account."""
        return self.path.name if self.path is not None else str(self.hub.hub if self.hub else "")


@dataclass(frozen=True, slots=True)
class Account:
    """What became of every row: `rows == new + known + refused`."""

    name: str
    format: str
    rows: int
    new: int
    """Taken and not in the warehouse before."""
    known: int
    """Taken before, by an earlier import."""
    judged: int
    """Programs that ran in the sandbox now."""
    reused: int
    """Whose program had a verdict of this suite."""
    verdicts: dict[str, int]
    """Verdict -> rows taken."""
    with_logprobs: int
    without_logprobs: int
    retokenized: int
    """Rows whose tokens are another tokenizer's, and were made anew."""
    writers: dict[str, int]
    """Who drew them -> rows taken."""
    disagreeing: tuple[str, ...]
    """Rows whose reward in the file is not the verdict here."""
    compared: int
    """Rows that were judged here and have a reward in the file."""
    refused: dict[str, list[str]]
    """Reason -> rows."""

    @property
    def refusals(self) -> int:
        """Number of refused rows."""
        return sum(map(len, self.refused.values()))


@dataclass(slots=True)
class _Sorted:
    """Rows on their way."""

    taken: list[tuple[ForeignResponse, ExternalResponse]] = field(
        default_factory=list[tuple[ForeignResponse, ExternalResponse]]
    )
    refused: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    retokenized: int = 0

    def refuse(self, where: str, reason: str) -> None:
        self.refused.setdefault(reason, []).append(where)

    @property
    def rows(self) -> int:
        return len(self.taken) + sum(map(len, self.refused.values()))


def import_rollouts(context: Context, source: Source) -> Account:
    """Take in what can be taken for the training problems of the context's run, and account for every row.

    Raises InvalidProblem where a file cannot be read, StageInputMissing where the run is not prepared, SandboxError.
    """
    prompts, evaluation = prompt_set.load(context, "train"), prompt_set.load(context, "evaluation")
    matching = Matching(prompts.problems, evaluation.problems)
    found = _sorted(rows(source), matching, _tokens(context, prompts), source)
    with Judge(**context.config.sandbox.judge_arguments()) as judge:
        ingestion = Ingestion(context, prompts, judge, run_id=RUN_ID, again=True)
        items = numbered(item for _, item in found.taken)
        done = ingestion.run(
            f"{source.format}/{source.name}", items, lambda n, total: context.progress(n, total, "responses", "judged")
        )
        ids = [ingestion.trajectory_id(item) for item in items]
    account = _account(context, source, found, done, ids)
    payload = asdict(account)
    told = f"{account.new} of {account.rows} rows taken, {account.refusals} refused"
    message = f"{source.name} ({source.format}): {told}"
    row = {"stage": "", "kind": "imported", "message": message, "payload_json": json.dumps(payload)}
    context.warehouse.append(f"event/{RUN_ID}/{time.time_ns()}", {"run_events": [row]}, run_id=RUN_ID)
    return account


def rows(source: Source) -> Iterator[Found]:
    """Every row of the source. Raises InvalidProblem."""
    if source.hub is not None:
        return plain_rows.read_from_hub(source.hub, source.naming)
    assert source.path is not None
    return READERS[source.format](source.path, source.naming)


def _tokens(context: Context, prompts: PromptSet) -> PolicyTokens:
    tokenizer = checkpoint.load_tokenizer(prompts.reference)
    template = template_for(context.config.reference, tokenizer)
    return PolicyTokens(tokenizer, template, checkpoint.stop_ids(prompts.reference))


def _sorted(found: Iterable[Found], matching: Matching, tokens: PolicyTokens, source: Source) -> _Sorted:
    result = _Sorted()
    for row in found:
        if isinstance(row, RefusedRow):
            result.refuse(row.where, row.reason)
            continue
        problem_id, reason = matching.find(row.problem_ids, row.prompt)
        if problem_id is None:
            result.refuse(row.where, reason)
            continue
        try:
            item = _item(row, problem_id, tokens, source)
        except NotExact as error:
            result.refuse(row.where, str(error))
            continue
        result.retokenized += row.token_ids is not None and item.token_ids != row.token_ids
        result.taken.append((row, item))
    return result


def _item(row: ForeignResponse, problem_id: str, tokens: PolicyTokens, source: Source) -> ExternalResponse:
    ids, logprobs = tokens.of(row)
    return ExternalResponse(
        problem_id,
        source.source,
        row.model or source.model or f"unnamed ({source.format})",
        row.text,
        is_program=row.is_program,
        finished=row.finished,
        token_ids=ids,
        logprobs=logprobs,
        temperature=row.temperature,
        top_p=row.top_p,
        claimed=source.claims.reward(row.reward) if source.claims.believed else None,
    )


def _account(context: Context, source: Source, found: _Sorted, done: Ingested, ids: Sequence[str]) -> Account:
    stored = {row["trajectory_id"]: row for row in context.warehouse.rows(REWARDS, [sorted(set(ids))])}
    for (row, _), one in zip(found.taken, ids, strict=True):
        if one not in stored:
            found.refuse(row.where, UNJUDGED)
    found.taken = [pair for pair, one in zip(found.taken, ids, strict=True) if one in stored]
    ids = [one for one in ids if one in stored]
    outcomes = [stored[one] for one in ids]
    judged = [
        (row, outcome["reward"])
        for (row, item), outcome in zip(found.taken, outcomes, strict=True)
        if row.reward is not None and item.claimed is None and outcome["reward"] is not None
    ]
    with_logprobs = sum(item.logprobs is not None for _, item in found.taken)
    return Account(
        name=source.name,
        format=source.format,
        rows=found.rows,
        new=done.added,
        known=len(ids) - done.added,
        judged=done.judged,
        reused=done.reused,
        verdicts=dict(sorted(Counter(str(one["verdict"]) for one in outcomes).items())),
        with_logprobs=with_logprobs,
        without_logprobs=len(ids) - with_logprobs,
        retokenized=found.retokenized,
        writers=dict(sorted(Counter(item.origin for _, item in found.taken).items())),
        disagreeing=tuple(row.where for row, reward in judged if source.claims.reward(row.reward) != reward),
        compared=len(judged),
        refused=dict(sorted(found.refused.items())),
    )
