"""From prompts to judged trajectories: draw responses, judge their programs meanwhile, return warehouse rows.

Used by every stage that samples. Knows nothing of runs, batches and stages: callers append the rows.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import sandbox
from sandbox import Judge, Judgement, Submission, Suite, Verdict
from tasks.config import BehaviourConfig, SandboxConfig
from tasks.engines.protocol import Completion, Request, SamplingEngine
from tasks.engines.randomness import derived_seed, sample_seed
from tasks.problems.problem import Problem
from tasks.problems.programs import extract_program, normal_hash, program_hash
from tasks.problems.prompt import Template, complete_length
from tasks.sampling.background_judging import BackgroundJudging
from tasks.sampling.known_verdicts import KnownVerdicts

Row = dict[str, Any]
SampleProgress = Callable[[int, int], None]
"""Called with (responses sampled, responses wanted)."""

PASS, FAIL = 0.0, -1.0
CUT_OFF = "cut_off"
"""Verdict of a response that reached the length limit: a failure that the sandbox never sees."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`n` responses wanted for one problem.

    `prompt_ids` is the prompt alone. `prefix_ids` is the beginning of a response to be continued (of trajectory
    `parent_trajectory_id`); it counts towards the length limit. `seed` decides seeds and temperatures of the samples:
    asking again with the same seed, policy and prompt returns the same responses, so callers that want further ones
    choose another.
    """

    problem: Problem
    prompt_id: str
    prompt_ids: tuple[int, ...]
    n: int
    seed: int
    prefix_ids: tuple[int, ...] = ()
    parent_trajectory_id: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A finished trajectory as a row of `trajectories`, and the new row of `verdicts` it led to, if any.

    `assignment` and `sample` are the numbers of the assignment in the call and of the sample in it.
    """

    assignment: int
    sample: int
    row: Row
    verdict_row: Row | None


@dataclass(frozen=True, slots=True)
class _SampledDraft:
    """A sampled response before its verdict."""

    completion: Completion
    assignment: int
    sample: int
    temperature: float
    token_ids: tuple[int, ...]
    text: str
    program: str
    program_hash: str
    suite: Suite

    @property
    def key(self) -> tuple[str, str]:
        return self.program_hash, self.suite.suite_id


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
        """Seconds spent in the engine so far; only when all is sampled does `run` wait for the judge."""
        self._tokenizer = tokenizer
        self.judge = judge
        self._max_tokens = max_response_tokens
        self._template = template
        self._limits = sandbox_config or SandboxConfig()
        self._known = known or KnownVerdicts()

    def run(
        self,
        assignments: Sequence[Assignment],
        *,
        source: str,
        worker: str | None = None,
        step: int | None = None,
        progress: SampleProgress | None = None,
    ) -> Iterator[Judged]:
        """Every wanted response, judged, in the order in which they get finished.

        Sampling never waits for the judge. `source`, `worker` and `step` are written into the
        rows. A verdict "infra" leaves the reward None. Raises EngineError or SandboxError; nothing is swallowed.
        """
        suites = [self._suite(assignment.problem) for assignment in assignments]
        self._known.read(suite.suite_id for suite in suites)
        policy = self.engine.policy_id
        for draft, judgement, is_new in self._judged(self._drafts(assignments, suites, progress)):
            row = self._row(draft, assignments[draft.assignment], judgement)
            row |= {"source": source, "worker": worker, "step": step}
            row |= {"policy_start": policy, "policy_end": self.engine.policy_id}
            row["trajectory_id"] = _trajectory_id(row)
            verdict = verdict_row(draft.program_hash, draft.suite, judgement) if judgement and is_new else None
            yield Judged(draft.assignment, draft.sample, row, verdict)

    def _suite(self, problem: Problem) -> Suite:
        if problem.unjudgeable_reason:
            raise ValueError(f"problem {problem.problem_id!r} cannot be judged: {problem.unjudgeable_reason}")
        memory = self._limits.memory_limit_mb
        return problem.suite(cpu_s=self._limits.cpu_limit_s, memory_bytes=memory << 20 if memory else None)

    def _drafts(
        self, assignments: Sequence[Assignment], suites: Sequence[Suite], progress: SampleProgress | None
    ) -> Iterator[_SampledDraft]:
        """Sample; one request per response, since each has its own temperature."""
        requests: list[Request] = []
        origin: list[tuple[int, int]] = []
        for number, assignment in enumerate(assignments):
            for sample in range(assignment.n):
                requests.append(self._request(assignment, sample))
                origin.append((number, sample))
        for done, completion in enumerate(self._clocked(self.engine.sample(requests)), start=1):
            if progress is not None:
                progress(done, len(requests))
            number, sample = origin[completion.request]
            prefix_ids = assignments[number].prefix_ids
            ended = self._ended_by_mark(completion, prefix_ids)
            token_ids = prefix_ids + ended.token_ids
            text = str(self._tokenizer.decode(token_ids, skip_special_tokens=True))
            program = extract_program(text)
            temperature = requests[completion.request].temperature
            identity = program_hash(program)
            yield _SampledDraft(ended, number, sample, temperature, token_ids, text, program, identity, suites[number])

    def _clocked(self, completions: Iterator[Completion]) -> Iterator[Completion]:
        while True:
            began = time.monotonic()
            completion = next(completions, None)
            self.sampling_s += time.monotonic() - began
            if completion is None:
                return
            yield completion

    def _ended_by_mark(self, completion: Completion, prefix_ids: tuple[int, ...]) -> Completion:
        """The completion up to the token that completes the template's stop mark, if it occurs."""
        if self._template is None or self._template.stop_mark is None:
            return completion
        complete = complete_length(self._template, self._tokenizer, prefix_ids + completion.token_ids)
        if complete is None or complete <= len(prefix_ids):
            return completion
        kept = slice(0, complete - len(prefix_ids))
        return replace(
            completion,
            token_ids=completion.token_ids[kept],
            logprobs=completion.logprobs[kept],
            finish_reason="stop",
        )

    def entropies(self, assignments: Sequence[Assignment], judged: Sequence[Judged]) -> list[float | None]:
        """Mean entropy (nats per token) of the engine's policy on what `run` drew; None where it cannot tell."""
        return self.engine.entropies(
            [(assignments[item.assignment].prompt_ids, item.row["token_ids"]) for item in judged]
        )

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
        )

    def _judged(self, drafts: Iterable[_SampledDraft]) -> Iterator[tuple[_SampledDraft, Judgement | None, bool]]:
        """Drafts with their judgement (None: cut off) and whether it was made for this very draft."""
        waiting: dict[tuple[str, str], list[_SampledDraft]] = {}
        sent: list[tuple[str, str]] = []
        judging = BackgroundJudging(self.judge)

        def returned(
            found: Iterable[tuple[int, Judgement]],
        ) -> Iterator[tuple[_SampledDraft, Judgement | None, bool]]:
            for number, judgement in found:
                self._known.put(sent[number], judgement)
                first, *others = waiting.pop(sent[number])
                yield first, judgement, judgement.verdict != Verdict.infra
                yield from ((other, judgement, False) for other in others)

        try:
            for draft in drafts:
                known = self._known.get(draft.key)
                if draft.completion.finish_reason == "length":
                    yield draft, None, False
                elif known is not None:
                    yield draft, known, False
                elif draft.key in waiting:
                    waiting[draft.key].append(draft)
                else:
                    waiting[draft.key] = [draft]
                    sent.append(draft.key)
                    judging.submit(Submission(draft.program, draft.suite))
                yield from returned(judging.ready())
            yield from returned(judging.rest())
        finally:
            judging.abandon()

    def _row(self, draft: _SampledDraft, assignment: Assignment, judgement: Judgement | None) -> Row:
        completion, prefix = draft.completion, len(assignment.prefix_ids)
        return {
            "problem_id": assignment.problem.problem_id,
            "prompt_id": assignment.prompt_id,
            "suite_hash": draft.suite.suite_id,
            "temperature": draft.temperature,
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


def eval_sample_row(
    judged: Judged, problem: Problem, sampling: str, *, first: int = 0, entropy: float | None = None
) -> Row:
    """A judged trajectory as a row of `eval_samples`; samples count from `first`, `entropy` is in nats per token."""
    same = (
        *("problem_id", "suite_hash", "prompt_id", "seed", "step", "token_ids", "sampled_logprobs", "text"),
        *("program_hash", "normal_hash", "finish_reason", "verdict", "reward"),
    )
    return {name: judged.row[name] for name in same} | {
        "policy_id": judged.row["policy_start"],
        "problem_set": problem.problem_set,
        "sampling": sampling,
        "sample": first + judged.sample,
        "entropy": entropy,
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
