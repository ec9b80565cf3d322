"""From prompts to judged trajectories: draw responses, judge their programs meanwhile, return warehouse rows.

Used by every stage that samples. Knows nothing of runs, batches and stages: callers append the rows.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import sandbox
from sandbox import Judge, Judgement, Suite, Verdict
from tasks.config import BehaviourConfig, SandboxConfig
from tasks.engines.protocol import Completion, Request, SamplingEngine
from tasks.engines.randomness import derived_seed, sample_seed
from tasks.problems.problem import Problem
from tasks.problems.prompt import Template, complete_length
from tasks.programs.extraction import extract_program, normal_hash, program_hash
from tasks.sampling.assignment import Asked, Assignment, SampledDraft
from tasks.sampling.awaited_verdicts import AwaitedVerdicts, Decided
from tasks.sampling.batches_in_turn import BatchesInTurn
from tasks.sampling.known_verdicts import KnownVerdicts

Row = dict[str, Any]
SampleProgress = Callable[[int, int], None]
"""Called with (responses sampled, responses wanted)."""

PASS, FAIL = 0.0, -1.0
CUT_OFF = "cut_off"
"""Verdict of a response that reached the length limit: a failure that the sandbox never sees."""
POLL_S = 0.25
"""While verdicts are awaited, it is asked again after this time whether there is something to sample."""
MOST_AWAITED = 8192
"""Responses without a verdict at which no further batch is begun: some 100 MB of memory."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A finished trajectory as a row of `trajectories`, and the new row of `verdicts` it led to, if any.

    `assignment` and `sample` are the numbers of the assignment in the call and of the sample in it.
    """

    assignment: int
    sample: int
    row: Row
    verdict_row: Row | None
    detail: str = ""
    """What the sandbox says, where it failed to judge."""
    entropy: float | None = None
    """Mean of the policy's along the response, nats per token; None where not asked for, or not to be known."""


class Sampler:
    """Draws responses with `engine`, judges their programs with `judge`, and turns both into rows."""

    def __init__(
        self,
        engine: SamplingEngine,
        tokenizer: Any,
        judge: Judge,
        *,
        behaviour: BehaviourConfig,
        max_response_tokens: int,
        template: Template | None = None,
        sandbox_config: SandboxConfig | None = None,
        known: KnownVerdicts | None = None,
    ) -> None:
        """`template`: that of the prompts; needed when it ends responses with a stop mark."""
        self.engine = engine
        self.behaviour = behaviour
        self.sampling_s = 0.0
        """Seconds spent in the engine so far."""
        self.judging_s = 0.0
        """Seconds so far in which the engine had nothing to do but wait for verdicts."""
        self.most_awaited = MOST_AWAITED
        self._streams: list[AwaitedVerdicts] = []
        self.sampling = False
        """Whether a call of the engine is open: then its weights must stay."""
        self._tokenizer = tokenizer
        self.judge = judge
        self._max_tokens = max_response_tokens
        self._template = template
        self._limits = sandbox_config or SandboxConfig()
        self._known = known or KnownVerdicts()

    def expect(self, problems: Iterable[Problem]) -> None:
        """Say which problems will be sampled in time, so that what is known of their programs is read together."""
        self._known.expect(self._suite(problem).suite_id for problem in problems if not problem.unjudgeable_reason)

    def run(
        self,
        assignments: Sequence[Assignment],
        *,
        source: str,
        worker: str | None = None,
        step: int | None = None,
        progress: SampleProgress = lambda *_: None,
    ) -> Iterator[Judged]:
        """Every wanted response, judged, in the order in which they get finished.

        Sampling never waits for the judge. `source`, `worker` and `step` are written into the
        rows. A verdict "infra" leaves the reward None. Raises EngineError or SandboxError; nothing is swallowed.
        """
        wanted = sum(assignment.n for assignment in assignments)
        told = lambda done: progress(done, wanted)  # noqa: E731
        for _, judged in self._stream(iter([assignments]), {"source": source, "worker": worker}, lambda: step, told):
            yield judged

    def roll(
        self,
        batches: Iterable[Sequence[Assignment] | None],
        *,
        source: str,
        worker: str | None = None,
        step: Callable[[], int | None] = lambda: None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Iterator[list[Judged]]:
        """The responses of each batch, all of them judged; batches, and responses in them, in the order of asking.

        While a batch's last responses and verdicts are awaited, the next ones are sampled. `batches` is read when the
        engine has room; None in it says that there is none for now: it is read again once something has happened. It
        ends when nothing is under way and there is none. `step` is asked when a batch begins, `progress` is told how
        many responses are sampled so far. Raises what `run` does.
        """
        sizes: deque[int] = deque()
        found: deque[list[Judged]] = deque()

        def noted() -> Iterator[Sequence[Assignment] | None]:
            for batch in batches:
                if batch is not None:
                    sizes.append(sum(assignment.n for assignment in batch))
                    found.append([])
                yield batch

        done = 0
        for number, judged in self._stream(noted(), {"source": source, "worker": worker}, step, progress):
            found[number - done].append(judged)
            while found and len(found[0]) == sizes[0]:
                sizes.popleft()
                done += 1
                yield sorted(found.popleft(), key=lambda judged: (judged.assignment, judged.sample))

    def _stream(
        self,
        batches: Iterator[Sequence[Assignment] | None],
        label: Row,
        step: Callable[[], int | None],
        progress: Callable[[int], None],
    ) -> Iterator[tuple[int, Judged]]:
        """Number of the batch and response, as they get finished."""
        awaited = AwaitedVerdicts(self.judge, self._known)
        self._streams.append(awaited)
        begin = lambda number, batch: self._begin(number, batch, step)  # noqa: E731
        reading = BatchesInTurn[Sequence[Assignment], Asked](batches, lambda: awaited.count < self.most_awaited, begin)
        sampled = 0
        try:
            while True:
                if reading.look():
                    requests = (None if asked is None else asked.request for asked in reading.asked_for())
                    for completion in self._clocked(self.engine.sample(requests)):
                        sampled += 1
                        progress(sampled)
                        draft = self._draft(reading.under_way.pop(completion.request), completion)
                        yield from self._finished(awaited.add(draft), label)
                elif awaited.count:
                    began = time.monotonic()
                    decided = list(awaited.wait(None if reading.ended else POLL_S))
                    self.judging_s += time.monotonic() - began
                    yield from self._finished(decided, label)
                else:
                    return
        finally:
            awaited.abandon()
            self._streams.remove(awaited)

    def close(self) -> None:
        """Let the judge take nothing more of what was given up half-way; before the judge is closed."""
        for awaited in self._streams:
            awaited.abandon()

    def _finished(self, decided: Iterable[Decided], label: Row) -> Iterator[tuple[int, Judged]]:
        for draft, judgement, is_new in decided:
            asked = draft.asked
            row = self._row(draft, judgement) | label
            row |= {"step": asked.step, "policy_start": asked.policy, "policy_end": draft.policy}
            row["trajectory_id"] = _trajectory_id(row)
            verdict = verdict_row(draft.program_hash, draft.suite, judgement) if judgement and is_new else None
            entropies = draft.completion.entropies
            entropy = fmean(entropies) if entropies else None
            yield asked.batch, Judged(asked.number, asked.sample, row, verdict, unjudged(judgement), entropy)

    def _suite(self, problem: Problem) -> Suite:
        if problem.unjudgeable_reason:
            raise ValueError(f"problem {problem.problem_id!r} cannot be judged: {problem.unjudgeable_reason}")
        memory = self._limits.memory_limit_mb
        return problem.suite(cpu_s=self._limits.cpu_limit_s, memory_bytes=memory << 20 if memory else None)

    def _begin(self, batch: int, assignments: Sequence[Assignment], step: Callable[[], int | None]) -> Iterator[Asked]:
        """What is asked of the engine for a batch; one request per response, since each has its own temperature."""
        suites = [self._suite(assignment.problem) for assignment in assignments]
        self._known.read(suite.suite_id for suite in suites)
        policy, now = self.engine.policy_id, step()
        for number, (assignment, suite) in enumerate(zip(assignments, suites, strict=True)):
            for sample in range(assignment.n):
                request = self._request(assignment, sample)
                yield Asked(batch, number, assignment, sample, suite, request, policy, now)

    def _draft(self, asked: Asked, completion: Completion) -> SampledDraft:
        prefix_ids = asked.assignment.prefix_ids
        ended = self._ended_by_mark(completion, prefix_ids)
        token_ids = prefix_ids + ended.token_ids
        text = str(self._tokenizer.decode(token_ids, skip_special_tokens=True))
        program = extract_program(text)
        return SampledDraft(asked, ended, self.engine.policy_id, token_ids, text, program, program_hash(program))

    def _clocked(self, completions: Iterator[Completion]) -> Iterator[Completion]:
        self.sampling = True
        try:
            while True:
                began = time.monotonic()
                completion = next(completions, None)
                self.sampling_s += time.monotonic() - began
                if completion is None:
                    return
                yield completion
        finally:
            self.sampling = False

    def _ended_by_mark(self, completion: Completion, prefix_ids: tuple[int, ...]) -> Completion:
        """The completion up to the token that completes the template's stop mark, if it occurs."""
        if self._template is None or self._template.stop_mark is None:
            return completion
        complete = complete_length(self._template, self._tokenizer, prefix_ids + completion.token_ids)
        if complete is None or complete <= len(prefix_ids):
            return completion
        kept = slice(0, complete - len(prefix_ids))
        ids, logprobs = completion.token_ids[kept], completion.logprobs[kept]
        entropies = None if completion.entropies is None else completion.entropies[kept]
        return replace(completion, token_ids=ids, logprobs=logprobs, entropies=entropies, finish_reason="stop")

    def _request(self, assignment: Assignment, sample: int) -> Request:
        seed = sample_seed(assignment.seed, sample)
        room = self._max_tokens - len(assignment.prefix_ids)
        if room < 1:
            raise ValueError(
                f"a prefix of {len(assignment.prefix_ids)} tokens leaves no room below max_response_tokens "
                f"{self._max_tokens}"
            )
        return Request(
            prompt_ids=assignment.prompt_ids + assignment.prefix_ids,
            n=1,
            seed=seed,
            temperature=drawn_temperature(self.behaviour, seed),
            top_p=self.behaviour.top_p,
            max_tokens=room,
            stop_text=(self._template.stop_mark or "") if self._template else "",
            entropies=assignment.entropies,
        )

    def _row(self, draft: SampledDraft, judgement: Judgement | None) -> Row:
        assignment, completion = draft.asked.assignment, draft.completion
        prefix = len(assignment.prefix_ids)
        return {
            "problem_id": assignment.problem.problem_id,
            "prompt_id": assignment.prompt_id,
            "suite_hash": draft.suite.suite_id,
            "temperature": draft.asked.request.temperature,
            "top_p": self.behaviour.top_p,
            "max_response_tokens": self._max_tokens,
            "seed": completion.seed,
            "engine": self.engine.name,
            "prompt_tokens": len(assignment.prompt_ids),
            "prefix_tokens": prefix,
            "token_ids": list(draft.token_ids),
            "sampled_logprobs": [None] * prefix + list(completion.logprobs),
            "logprob_kind": self.engine.logprob_kind,
            "text": draft.text,
            "program_hash": draft.program_hash,
            "normal_hash": normal_hash(draft.program),
            "finish_reason": completion.finish_reason,
            "parent_trajectory_id": assignment.parent_trajectory_id,
            **outcome(judgement, tests_total=len(draft.suite.tests)),
        }


def unjudged(judgement: Judgement | None) -> str:
    """Why the sandbox failed to judge; empty where it did not."""
    return judgement.detail if judgement is not None and judgement.verdict == Verdict.infra else ""


def outcome(judgement: Judgement | None, *, tests_total: int) -> Row:
    """Verdict, reward and test counts as columns; None is a response cut off at the length limit."""
    if judgement is None:
        return {"verdict": CUT_OFF, "reward": FAIL, "tests_passed": 0, "tests_total": tests_total}
    reward = {Verdict.accepted: PASS, Verdict.infra: None}.get(judgement.verdict, FAIL)
    return {
        "verdict": str(judgement.verdict),
        "reward": reward,
        "tests_passed": judgement.passed,
        "tests_total": judgement.total,
    }


def tables(judged: Iterable[Judged]) -> dict[str, list[Row]]:
    """The rows of `trajectories` and `verdicts` that belong into one batch."""
    kept = list(judged)
    return {
        "trajectories": [item.row for item in kept],
        "verdicts": [item.verdict_row for item in kept if item.verdict_row is not None],
    }


def eval_sample_row(judged: Judged, problem: Problem, sampling: str, *, first: int = 0) -> Row:
    """A judged trajectory as a row of `eval_samples`; samples count from `first`."""
    same = (
        *("problem_id", "suite_hash", "prompt_id", "seed", "step", "token_ids", "sampled_logprobs", "text"),
        *("program_hash", "normal_hash", "finish_reason", "verdict", "reward"),
    )
    return {name: judged.row[name] for name in same} | {
        "policy_id": judged.row["policy_start"],
        "problem_set": problem.problem_set,
        "sampling": sampling,
        "sample": first + judged.sample,
        "entropy": judged.entropy,
    }


def sampling_label(behaviour: BehaviourConfig, max_response_tokens: int) -> str:
    """How responses are drawn, as text: equal labels mean that samples of one policy may be pooled."""
    low, high = behaviour.temperature
    temperature = f"{low:g}" if low == high else f"U({low:g},{high:g})"
    return f"T={temperature} top_p={behaviour.top_p:g} max={max_response_tokens}"


def drawn_temperature(behaviour: BehaviourConfig, seed: int) -> float:
    """The temperature of the sample with this seed: uniform between the behaviour's bounds."""
    low, high = behaviour.temperature
    return low + (high - low) * (derived_seed(seed, "temperature") / 2**63)


def verdict_row(program_hash: str, suite: Suite, judgement: Judgement) -> Row:
    """A judgement as a row of `verdicts`."""
    return {
        "program_hash": program_hash,
        "suite_hash": suite.suite_id,
        "limits": json.dumps(asdict(suite.limits), sort_keys=True),
        "sandbox_version": sandbox.VERSION,
        "verdict": str(judgement.verdict),
        "tests_passed": judgement.passed,
        "tests_total": judgement.total,
        "cpu_s": judgement.cpu_s,
        "memory_bytes": judgement.memory_bytes,
        "detail": judgement.detail,
        "outcomes": judgement.outcomes,
        "output": judgement.output or None,
    }


def _trajectory_id(row: Row) -> str:
    """Identity of a response: who drew it, from what, how, and what came out (32 hexadecimal characters)."""
    names = ("policy_start", "prompt_id", "seed", "temperature", "top_p", "max_response_tokens", "prefix_tokens")
    content = [row[name] for name in names] + [row["token_ids"]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
