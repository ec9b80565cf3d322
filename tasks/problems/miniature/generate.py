"""Chooses compositions and builds problems whose hidden tests separate right programs from every confused one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Any

from sandbox import Checker, Limits, TestCase
from tasks.problems.miniature import small, wide
from tasks.problems.miniature.composition import SOURCE_OF, Composition
from tasks.problems.miniature.writer import solutions
from tasks.problems.problem import Problem, ProblemError, Solution, Split

PUBLIC_TESTS = 2
HIDDEN_TESTS = 8
_CANDIDATES = 60
_SEPARATING_TESTS = 2
_IN_VAIN = 2000
"""Compositions of the wide vocabulary in a row that make no new problem: there are none left."""


class TooFewCompositions(ProblemError):
    """More problems were asked for than the vocabulary can make."""


@dataclass(frozen=True, slots=True)
class _Case:
    """An input, the values that its source reads there, and what is to be printed."""

    text: str
    values: Sequence[Any]
    answer: str

    def fails(self, rival: Composition) -> bool:
        return rival.answer(self.values) != self.answer


def generate(n_train: int, n_evaluation: int, seed: int, depth: int | None = None) -> list[Problem]:
    """`n_train` training problems, then `n_evaluation` evaluation problems, of different compositions.

    `depth`: filters and maps of every composition of the wide vocabulary; None: the small vocabulary. Which
    compositions may be evaluated does not depend on `seed`. Raises TooFewCompositions.
    """
    if depth is None:
        return [*_choose_small(n_train, "train", seed), *_choose_small(n_evaluation, "evaluation", seed)]
    return list(_wide(n_train, n_evaluation, seed, depth))


def build(composition: Composition, split: Split, problem_set: str = "miniature") -> Problem | None:
    """The problem of `composition`; None where no test separates it from one of its rivals, or answers hardly vary."""
    tests = _tests(composition)
    if tests is None:
        return None
    return Problem(
        problem_id=f"{problem_set}/{composition.key}",
        problem_set=problem_set,
        split=split,
        title=composition.key,
        statement=composition.statement,
        public_tests=tuple(tests[:PUBLIC_TESTS]),
        hidden_tests=tuple(tests[PUBLIC_TESTS:]),
        checker=Checker(kind="tokens", case_sensitive=True),
        limits=Limits(cpu_s=1.0, memory_bytes=256 << 20),
        solutions=tuple(Solution(program, origin="miniature") for program in solutions(composition)),
        source="generated",
        licence="Apache-2.0",
    )


def _choose_small(count: int, split: Split, seed: int) -> list[Problem]:
    candidates = small.candidates(Random(f"{split} {seed}"), evaluation=split == "evaluation")
    strata = {level: [c for c in candidates if min(c.confusable, 2) == level] for level in set(small.STRATA)}
    chosen: list[Problem] = []
    while len(chosen) < count:
        level = small.STRATA[len(chosen) % len(small.STRATA)]
        problem = _next_problem(strata[level], split)
        if problem is None:
            raise _too_few(count, split, len(chosen))
        chosen.append(problem)
    return chosen


def _next_problem(candidates: list[Composition], split: Split) -> Problem | None:
    while candidates:
        problem = build(candidates.pop(), split)
        if problem is not None:
            return problem
    return None


@cache
def _wide(n_train: int, n_evaluation: int, seed: int, depth: int) -> tuple[Problem, ...]:
    """Thousands take seconds, and every stage of a run asks for them."""
    meanings: set[tuple[str | None, ...]] = set()
    train = _choose_wide(n_train, "train", seed, depth, meanings)
    return (*train, *_choose_wide(n_evaluation, "evaluation", seed, depth, meanings))


def _choose_wide(
    count: int, split: Split, seed: int, depth: int, meanings: set[tuple[str | None, ...]]
) -> list[Problem]:
    """Problems of which none means what another one, of either split, means; `meanings` is added to."""
    candidates = wide.candidates(Random(f"{split} {seed} {depth}"), depth, evaluation=split == "evaluation")
    chosen: list[Problem] = []
    in_vain = 0
    while len(chosen) < count:
        if in_vain == _IN_VAIN:
            raise _too_few(count, split, len(chosen))
        in_vain += 1
        composition = next(candidates)
        meaning = wide.signature(composition)
        if meaning in meanings or (problem := build(composition, split, "miniature-wide")) is None:
            continue
        meanings.add(meaning)
        chosen.append(problem)
        in_vain = 0
    return chosen


def _too_few(asked: int, split: Split, found: int) -> TooFewCompositions:
    return TooFewCompositions(
        f"{asked} miniature {split} problems were asked for, the vocabulary makes no more than {found}"
    )


def _tests(composition: Composition) -> list[TestCase] | None:
    random = Random(composition.key)
    source = SOURCE_OF[composition.source]
    inputs = dict.fromkeys(source.draw(random) for _ in range(_CANDIDATES))
    drawn = [(text, values, composition.answer(values)) for text in inputs if (values := source.read(text))]
    pool = [_Case(text, values, answer) for text, values, answer in drawn if answer is not None]
    chosen = _separating(composition, pool)
    if chosen is None:
        return None
    rest = [case for case in pool if case not in chosen]
    cases = [*rest[:PUBLIC_TESTS], *chosen, *rest[PUBLIC_TESTS:]][: PUBLIC_TESTS + HIDDEN_TESTS]
    if len(cases) < PUBLIC_TESTS + HIDDEN_TESTS or len({case.answer for case in cases}) < 4:
        return None
    return [TestCase(case.text + "\n", case.answer + "\n") for case in cases]


def _separating(composition: Composition, pool: list[_Case]) -> list[_Case] | None:
    """A few cases such that every rival fails at least two of them; None where a rival cannot be told apart."""
    chosen: list[_Case] = []
    for rival in composition.rivals():
        needed = _SEPARATING_TESTS - sum(case.fails(rival) for case in chosen)
        failing = (case for case in pool if case not in chosen and case.fails(rival))
        fresh = list(islice(failing, max(needed, 0)))
        if len(fresh) < needed:
            return None
        chosen += fresh
    return chosen if len(chosen) <= HIDDEN_TESTS else None
