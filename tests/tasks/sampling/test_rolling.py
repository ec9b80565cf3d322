"""The next batches are sampled while the last one's stragglers and verdicts are awaited: a clock in steps, no time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest

from sandbox import Judgement, Submission, Verdict
from tasks.config import BehaviourConfig
from tasks.engines.protocol import Completion, Request, RequestReader, ScoredSequence
from tasks.engines.randomness import sample_seed
from tasks.problems.problem import Problem
from tasks.sampling.assignment import Assignment
from tasks.sampling.sampler import Judged, Sampler
from tests.tasks.sampling.conftest import response

SLOTS = 16
PROMPT = (5, 6, 7)


class SlowEngine:
    """Decodes at most `slots` responses at once; each takes 1 to 40 steps, as its seed says.

    `busy` is the share of its rows that were in use over its steps. `tick` is told after every step.
    """

    name, policy_id, rolling = "slow", "weights-0", True
    logprob_kind: Literal["raw", "processed"] = "raw"

    def __init__(self, tokenizer: Any, slots: int = SLOTS) -> None:
        self._tokenizer, self._slots = tokenizer, slots
        self.steps = self.used = 0
        self.tick = lambda: None

    @property
    def busy(self) -> float:
        return self.used / (self._slots * self.steps)

    def sample(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        reader = RequestReader(requests)
        rows: list[tuple[int, Request, int]] = []
        while True:
            while len(rows) < self._slots and (taken := reader.take(self._slots - len(rows))):
                first = reader.read - len(taken)
                rows += [(first + i, request, self._length(request)) for i, request in enumerate(taken)]
            if not rows:
                return
            self.steps += 1
            self.used += len(rows)
            self.tick()
            finished = [row for row in rows if row[2] == 1]
            rows = [(number, request, left - 1) for number, request, left in rows if left > 1]
            for number, request, _ in finished:
                text = f"print({request.seed})"
                ids = response(self._tokenizer, text)
                yield Completion(number, 0, ids, (0.0,) * len(ids), "stop", sample_seed(request.seed, 0))

    def _length(self, request: Request) -> int:
        return 1 + request.seed % 40

    def score(self, sequences: list[ScoredSequence]) -> list[list[float]]:
        return [[] for _ in sequences]

    refresh = close = lambda *_: None


class SlowJudge:
    """Gives each verdict some engine steps after it was asked for, or when the engine stands still."""

    def __init__(self, engine: SlowEngine, steps: int) -> None:
        self._engine, self._delay = engine, steps
        self._changed = threading.Condition()
        self._waiting: dict[int, threading.Event] = {}
        self._due: list[tuple[int, threading.Event]] = []
        engine.tick = self._tick

    def judge_stream(self, submissions: Iterable[Submission]) -> Iterator[tuple[int, Judgement]]:
        for position, _ in enumerate(submissions):
            mine = threading.Event()
            with self._changed:
                self._due.append((self._engine.steps + self._delay, mine))
            while not mine.wait(0.05):
                before = self._engine.steps
                if not mine.wait(0.2) and self._engine.steps == before:
                    break  # nobody samples: time passes until the verdict is there
            yield position, Judgement(Verdict.accepted, 1, 1)

    def _tick(self) -> None:
        with self._changed:
            due = [event for step, event in self._due if step <= self._engine.steps]
            self._due = [item for item in self._due if item[0] > self._engine.steps]
        for event in due:
            event.set()


def batch(problem: Problem, number: int, size: int) -> list[Assignment]:
    """`size` responses, each to an assignment of its own, so that seeds differ."""
    plain = Assignment(problem, "prompt-1", PROMPT, 1, seed=0)
    return [replace(plain, seed=(number * size + place) * 7919 % 100_003) for place in range(size)]


def slow_sampler(tokenizer: Any, delay: int = 60, slots: int = SLOTS) -> tuple[Sampler, SlowEngine]:
    engine = SlowEngine(tokenizer, slots)
    behaviour = BehaviourConfig(temperature=(1, 1), top_p=1)
    judge: Any = SlowJudge(engine, delay)
    drawing = Sampler(engine, tokenizer, judge, behaviour=behaviour, max_response_tokens=60)  # type: ignore[arg-type]
    return drawing, engine


@pytest.mark.parametrize(
    ("size", "count", "slots"),
    [(8, 60, 16), (64, 100, 256), (640, 8, 256), (2560, 2, 256)],
    ids=["small", "rollouts", "evaluation", "pivotal"],
)
def test_a_slow_judge_leaves_the_engine_busy_and_every_batch_comes_whole_and_in_order(
    size: int, count: int, slots: int, problem: Problem, tokenizer: Any
) -> None:
    drawing, engine = slow_sampler(tokenizer, slots=slots)
    asked = [batch(problem, number, size) for number in range(count)]
    found = list(drawing.roll(asked, source="online", step=lambda: 3))
    print(f"{size} x {count}: busy {engine.busy:.1%}")
    assert engine.busy > 0.9
    assert [[item.row["seed"] for item in items] for items in found] == [[a.seed for a in each] for each in asked]
    assert {item.row["step"] for items in found for item in items} == {3}
    assert {item.row["reward"] for items in found for item in items} == {0.0}


def test_batch_after_batch_the_same_engine_stands_idle(problem: Problem, tokenizer: Any) -> None:
    drawing, engine = slow_sampler(tokenizer, delay=5, slots=256)
    for number in range(6):
        assert len(list(drawing.run(batch(problem, number, 64), source="online"))) == 64
    assert engine.busy < 0.2


def test_rows_are_those_of_one_batch_at_a_time(problem: Problem, tokenizer: Any) -> None:
    def content(items: list[Judged]) -> list[dict[str, Any]]:
        return sorted((item.row for item in items), key=lambda row: row["seed"])

    drawing, _ = slow_sampler(tokenizer, delay=3)
    alone, _ = slow_sampler(tokenizer, delay=3)
    asked = [batch(problem, number, 5) for number in range(4)]
    for each, items in zip(asked, drawing.roll(asked, source="online", step=lambda: 1), strict=True):
        assert content(items) == content(list(alone.run(each, source="online", step=1)))


def test_a_batch_that_may_not_begin_yet_begins_once_another_is_back(problem: Problem, tokenizer: Any) -> None:
    drawing, engine = slow_sampler(tokenizer, delay=3)
    appended: list[int] = []
    begun: list[int] = []

    def two_at_most() -> Iterator[list[Assignment] | None]:
        while len(begun) < 7:
            if len(begun) - len(appended) >= 2:
                yield None
                continue
            begun.append(len(appended))
            yield batch(problem, len(begun) - 1, 4)

    for items in drawing.roll(two_at_most(), source="online"):
        assert len(items) == 4
        appended.append(engine.steps)
    assert len(appended) == 7
    assert begun[:2] == [0, 0]
    assert all(number - after <= 2 for number, after in enumerate(begun, start=1))


def test_weights_change_only_when_no_call_is_open_and_rows_name_those_they_were_drawn_with(
    problem: Problem, tokenizer: Any
) -> None:
    drawing, engine = slow_sampler(tokenizer, delay=30)
    wanted = iter(range(4))

    def with_new_weights() -> Iterator[list[Assignment] | None]:
        for number in wanted:
            while drawing.sampling and number % 2 == 0:
                yield None
            engine.policy_id = f"weights-{number // 2}"
            yield batch(problem, number, 6)

    found = list(drawing.roll(with_new_weights(), source="online"))
    policies = [{(item.row["policy_start"], item.row["policy_end"]) for item in items} for items in found]
    assert policies == [{(f"weights-{n}", f"weights-{n}")} for n in (0, 0, 1, 1)]


def test_no_further_batch_begins_while_too_many_responses_await_a_verdict(problem: Problem, tokenizer: Any) -> None:
    drawing, _ = slow_sampler(tokenizer, delay=10_000)
    drawing.most_awaited = 10
    begun = back = 0

    def counted() -> Iterator[list[Assignment]]:
        nonlocal begun
        for number in range(6):
            begun += 1
            assert begun - back <= (10 + SLOTS) // 4 + 1
            yield batch(problem, number, 4)

    for _ in drawing.roll(counted(), source="online"):
        back += 1
    assert back == 6
