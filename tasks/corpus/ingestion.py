"""Responses that the policy did not sample, as judged trajectories in its own tokens.

A program becomes what the policy would answer with it (template and end token); a text is kept as it is and ended.
Known verdicts are used again. What is longer than the run's length limit is stored with the verdict `too_long` and not
judged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sandbox import Judge, Judgement, Submission, Suite, Verdict
from tasks.checkpoints import checkpoint as checkpoints
from tasks.problems.prompt import encode_response, encode_text, other_end, template_for
from tasks.programs.extraction import extract_program, normal_hash, program_hash
from tasks.run.identity import digest
from tasks.run.prompt_set import PromptedProblem, PromptSet
from tasks.run.sampling import in_shards, retry_batch_id, without_unjudged
from tasks.run.stage import Context
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import CUT_OFF, outcome, verdict_row
from warehouse.superseding import successors

TOO_LONG = "too_long"
CLAIMED = "claimed"
"""Verdict of a response whose reward is taken from where it comes from: it was not judged here."""
PROBLEMS_PER_BATCH = 16
PART = "/judged-"
"""Behind the name of a batch: all of it that the sandbox could judge, by what that is."""
EXISTING = "SELECT trajectory_id FROM trajectories WHERE trajectory_id IN (SELECT unnest(?::VARCHAR[]))"


@dataclass(frozen=True, slots=True)
class ExternalResponse:
    """A response from elsewhere: a whole text, or a program alone."""

    problem_id: str
    source: str
    """One of the warehouse's sources."""
    origin: str
    """Who wrote it; recorded as the engine."""
    content: str
    is_program: bool = True
    finished: bool = True
    """False: the writer was cut off, so the response is a failure without an end token."""
    number: int = 0
    """Tells equal responses of one writer apart."""
    seed: int | None = None
    """What decided it, where it was sampled."""
    token_ids: tuple[int, ...] | None = None
    """The response in the policy's own tokens, end token included, where the source has them."""
    parent_trajectory_id: str | None = None
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each of `token_ids` under what sampled it (nats)."""
    temperature: float | None = None
    top_p: float | None = None
    claimed: float | None = None
    """A reward, 0 or -1, that is believed instead of judging; None: judged here."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What ingestion did."""

    added: int = 0
    judged: int = 0
    reused: int = 0
    """Responses whose program and suite had a verdict."""

    def __add__(self, other: Ingested) -> Ingested:
        return Ingested(self.added + other.added, self.judged + other.judged, self.reused + other.reused)


@dataclass(frozen=True, slots=True)
class _Draft:
    item: ExternalResponse
    prompt: PromptedProblem
    suite: Suite
    token_ids: tuple[int, ...]
    text: str
    program: str
    trajectory_id: str
    verdict: str | None
    """A verdict that needs no judging."""

    @property
    def key(self) -> tuple[str, str]:
        return program_hash(self.program), self.suite.suite_id


def _identity_of(item: ExternalResponse) -> list[Any]:
    """What tells a response from others, in an order that is never changed."""
    own = [
        item.problem_id, item.source, item.origin, item.content, item.is_program, item.finished, item.number, item.seed,
        item.token_ids, item.parent_trajectory_id,
    ]  # fmt: skip
    later = [item.logprobs, item.temperature, item.top_p, item.claimed]
    return own if all(value is None for value in later) else [*own, *later]


class Ingestion:
    """Turns foreign responses into trajectories of one run's prompts."""

    def __init__(
        self, context: Context, prompts: PromptSet, judge: Judge, *, run_id: str | None = None, again: bool = False
    ) -> None:
        """`run_id`: whose rows they become, if not the run's own; `again`: take in what was put aside before, too."""
        self._context, self._prompts, self._judge = context, prompts, judge
        self._tokenizer: Any = checkpoints.load_tokenizer(prompts.reference)
        self._template = template_for(context.config.reference, self._tokenizer)
        self.end = other_end(self._template, self._tokenizer)
        """The token that ends responses, where that is another one than the tokenizer's own end."""
        self._known = KnownVerdicts(context.warehouse, most_mb=context.config.sandbox.known_verdicts_mb)
        self._limit = context.config.engine.max_response_tokens
        self._run_id = context.run_id if run_id is None else run_id
        self._again = again
        self.batches: set[str] = set()
        """Batches of everything taken in so far, also of what was stored before."""
        self.found: dict[str, set[str]] = {}
        """By problem: what was there already, in batches of which others asked for other parts, too."""

    def run(self, kind: str, items: Iterable[ExternalResponse], progress: Callable[[int, int], None]) -> Ingested:
        """Judge and store what is not in the warehouse yet, some problems at a time; each such unit is one batch.

        Items must belong to the run's problems.
        """
        by_problem: dict[str, list[ExternalResponse]] = {}
        for item in numbered(items):
            by_problem.setdefault(item.problem_id, []).append(item)
        total, done, result = sum(map(len, by_problem.values())), 0, Ingested()
        for shard in in_shards(sorted(by_problem), PROBLEMS_PER_BATCH):
            unit = [item for problem_id in shard for item in by_problem[problem_id]]
            result += self._unit(kind, unit)
            done += len(unit)
            progress(done, total)
        return result

    def trajectory_id(self, item: ExternalResponse) -> str:
        """The trajectory that a numbered item is, or will be."""
        return self._draft(item, self._prompts.prompts[item.problem_id]).trajectory_id

    def _unit(self, kind: str, items: Sequence[ExternalResponse]) -> Ingested:
        """Judge and store the items as one batch. Those that the sandbox fails on are left for the next time.

        Raises SandboxFailing where they are too many; then nothing is stored.
        """
        prompts = [self._prompts.prompts[item.problem_id] for item in items]
        places = [(prompt.prompt_id, prompt.problem.suite_hash) for prompt in prompts]
        ended = {} if self.end is None else {"end": self.end}
        unit = digest(limit=self._limit, prompts=places, responses=[_identity_of(item) for item in items], **ended)
        batch = f"import/{kind}/{unit}"
        again = self._again or kind.startswith("other_model/")  # those of another model are asked for again
        if again and not successors(self._context.warehouse, [batch]):
            batch = retry_batch_id(self._context, batch)
        self.batches.add(batch)
        if self._context.warehouse.committed([batch]):
            return Ingested()
        drafts = self._new([self._draft(item, prompt) for item, prompt in zip(items, prompts, strict=True)])
        judgements, fresh = self._judged([draft for draft in drafts if draft.verdict is None])
        rows = [self._row(draft, judgements[draft.key] if draft.verdict is None else None) for draft in drafts]
        kept = without_unjudged(rows)
        if len(kept) < len(rows):
            batch += PART + digest(kept=[row["trajectory_id"] for row in kept])
            self.batches.add(batch)
        verdicts = [verdict_row(program, suite, judgements[program, suite.suite_id]) for program, suite in fresh]
        if kept or not rows:
            self._context.warehouse.append(batch, {"trajectories": kept, "verdicts": verdicts}, run_id=self._run_id)
        judged = sum(draft.verdict is None for draft in drafts) - (len(rows) - len(kept))
        return Ingested(len(kept), len(fresh), judged - len(fresh))

    def _draft(self, item: ExternalResponse, prompt: PromptedProblem) -> _Draft:
        ids = self._encoded(item)
        text = str(self._tokenizer.decode(ids, skip_special_tokens=True))
        suite = prompt.problem.suite()
        identity: list[object] = [prompt.prompt_id, suite.suite_id, item.origin, item.number, ids]
        verdict = CLAIMED if item.claimed is not None else None
        if not item.finished:
            verdict = CUT_OFF
        if len(ids) > self._limit:
            identity.append(self._limit)
            verdict = TOO_LONG
        digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:32]
        return _Draft(item, prompt, suite, ids, text, extract_program(text), digest, verdict)

    def _encoded(self, item: ExternalResponse) -> tuple[int, ...]:
        if item.token_ids is not None:
            return item.token_ids
        if item.is_program:
            return tuple(encode_response(self._template, self._tokenizer, item.content))
        return tuple(encode_text(self._template, self._tokenizer, item.content, ended=item.finished))

    def _new(self, drafts: Sequence[_Draft]) -> list[_Draft]:
        ids = sorted({draft.trajectory_id for draft in drafts})
        existing = {row["trajectory_id"] for row in self._context.warehouse.rows(EXISTING, [ids])}
        for draft in drafts:
            if draft.trajectory_id in existing:
                self.found.setdefault(draft.item.problem_id, set()).add(draft.trajectory_id)
        return [draft for draft in drafts if draft.trajectory_id not in existing]

    def _judged(self, drafts: Sequence[_Draft]) -> tuple[dict[tuple[str, str], Judgement], list[tuple[str, Suite]]]:
        """Judgement by program and suite, and which of them were made now."""
        self._known.read(draft.suite.suite_id for draft in drafts)
        found = {draft.key: known for draft in drafts if (known := self._known.get(draft.key)) is not None}
        missing = {draft.key: draft for draft in drafts if draft.key not in found}
        submissions = [Submission(draft.program, draft.suite) for draft in missing.values()]
        for key, judgement in zip(missing, self._judge.judge(submissions), strict=True):
            found[key] = judgement
            self._known.put(key, judgement)
        scored = [(key[0], draft.suite) for key, draft in missing.items() if found[key].verdict != Verdict.infra]
        return found, scored

    def _row(self, draft: _Draft, judgement: Judgement | None) -> dict[str, Any]:
        result = outcome(judgement, tests_total=len(draft.suite.tests))
        if draft.verdict == TOO_LONG:
            result |= {"verdict": TOO_LONG, "reward": None}
        if draft.verdict == CLAIMED:
            result |= {"verdict": CLAIMED, "reward": draft.item.claimed, "tests_passed": None}
        return {
            "trajectory_id": draft.trajectory_id,
            "problem_id": draft.prompt.problem.problem_id,
            "prompt_id": draft.prompt.prompt_id,
            "suite_hash": draft.suite.suite_id,
            "source": draft.item.source,
            "temperature": draft.item.temperature,
            "top_p": draft.item.top_p,
            "max_response_tokens": self._limit,
            "seed": draft.item.seed,
            "engine": draft.item.origin,
            "prompt_tokens": len(draft.prompt.token_ids),
            "prefix_tokens": 0,
            "token_ids": list(draft.token_ids),
            "sampled_logprobs": None if draft.item.logprobs is None else list(draft.item.logprobs),
            "logprob_kind": "none" if draft.item.logprobs is None else "raw",
            "text": draft.text,
            "program_hash": draft.key[0],
            "normal_hash": normal_hash(draft.program),
            "finish_reason": "stop" if draft.item.finished else "length",
            "parent_trajectory_id": draft.item.parent_trajectory_id,
            **result,
        }


def numbered(items: Iterable[ExternalResponse]) -> list[ExternalResponse]:
    """Equal items of one writer get numbers, so that each is a trajectory of its own and counts as a duplicate.

    Items that differ in how they were drawn alone are equal here. Numbering again changes nothing.
    """
    seen: Counter[ExternalResponse] = Counter()
    result: list[ExternalResponse] = []
    for item in items:
        same = replace(item, logprobs=None, temperature=None, top_p=None, claimed=None)
        result.append(replace(item, number=item.number + seen[same]) if seen[same] else item)
        seen[same] += 1
    return result
