"""Chooses compositions and builds problems whose hidden tests separate right programs from every confused one."""

from __future__ import annotations

from random import Random

from sandbox import Checker, Limits, TestCase
from tasks.problems.miniature.composition import Composition, all_compositions
from tasks.problems.miniature.operations import SOURCE_OF
from tasks.problems.miniature.writer import solutions
from tasks.problems.problem import Problem, ProblemError, Solution, Split

STRATA = (1, 2, 1, 2, 1, 2, 1, 0, 1, 2, 1, 2, 1, 2, 1, 2)
"""Numbers of confusable operations of successive problems: how hard the set is for the reference policy."""
PUBLIC_TESTS = 2
HIDDEN_TESTS = 8
_CANDIDATES = 60
_SEPARATING_TESTS = 2


class TooFewCompositions(ProblemError):
    """More problems were asked for than the vocabulary can make."""


def generate(n_train: int, n_evaluation: int, seed: int) -> list[Problem]:
    """`n_train` training problems, then `n_evaluation` evaluation problems, of different compositions.

    Which compositions may be evaluated does not depend on `seed`. Raises TooFewCompositions.
    """
    return [*_choose(n_train, "train", seed), *_choose(n_evaluation, "evaluation", seed)]


def build(composition: Composition, split: Split) -> Problem | None:
    """The problem of `composition`; None where no test separates it from one of its rivals, or answers hardly vary."""
    tests = _tests(composition)
    if tests is None:
        return None
    return Problem(
        problem_id=f"miniature/{composition.key}",
        problem_set="miniature",
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


def _choose(count: int, split: Split, seed: int) -> list[Problem]:
    random = Random(f"{split} {seed}")
    candidates = [c for c in all_compositions() if c.for_evaluation == (split == "evaluation")]
    random.shuffle(candidates)
    strata = {level: [c for c in candidates if min(c.confusable, 2) == level] for level in set(STRATA)}
    chosen: list[Problem] = []
    while len(chosen) < count:
        level = STRATA[len(chosen) % len(STRATA)]
        problem = _next_problem(strata[level], split)
        if problem is None:
            raise TooFewCompositions(
                f"{count} miniature {split} problems were asked for, the vocabulary makes no more than {len(chosen)}"
            )
        chosen.append(problem)
    return chosen


def _next_problem(candidates: list[Composition], split: Split) -> Problem | None:
    while candidates:
        problem = build(candidates.pop(), split)
        if problem is not None:
            return problem
    return None


def _tests(composition: Composition) -> list[TestCase] | None:
    random = Random(composition.key)
    draw = SOURCE_OF[composition.source].draw
    inputs = list(dict.fromkeys(draw(random) for _ in range(_CANDIDATES)))
    pool = [(text, answer) for text in inputs if (answer := composition.output(text)) is not None]
    chosen = _separating(composition, pool)
    if chosen is None:
        return None
    rest = [case for case in pool if case not in chosen]
    cases = [*rest[:PUBLIC_TESTS], *chosen, *rest[PUBLIC_TESTS:]][: PUBLIC_TESTS + HIDDEN_TESTS]
    if len(cases) < PUBLIC_TESTS + HIDDEN_TESTS or len({answer for _, answer in cases}) < 4:
        return None
    return [TestCase(text + "\n", answer + "\n") for text, answer in cases]


def _separating(composition: Composition, pool: list[tuple[str, str]]) -> list[tuple[str, str]] | None:
    """A few cases such that every rival fails at least two of them; None where a rival cannot be told apart."""
    chosen: list[tuple[str, str]] = []
    for rival in composition.rivals():
        failing = [case for case in pool if rival.output(case[0]) != case[1]]
        needed = _SEPARATING_TESTS - sum(case in failing for case in chosen)
        fresh = [case for case in failing if case not in chosen][: max(needed, 0)]
        if len(fresh) < needed:
            return None
        chosen += fresh
    return chosen if len(chosen) <= HIDDEN_TESTS else None
