"""The wide vocabulary: enough problems, no near twins across the split, and tests that separate."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from sandbox import TestCase
from tasks.problems.decontamination import overlaps
from tasks.problems.miniature import corpus, generate, wide, write
from tasks.problems.miniature.composition import FILTER_OF, MAP_OF, REDUCTION_OF, SOURCE_OF, Composition, confused_with
from tasks.problems.miniature.generate import HIDDEN_TESTS, PUBLIC_TESTS
from tasks.problems.miniature.writer import STYLES
from tasks.problems.problem import Problem
from tests.examples import MANY
from tests.tasks.problems.test_miniature import passes

N_TRAIN, N_EVALUATION = (2000, 256) if MANY else (500, 64)
DEPTH = 2


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return generate(N_TRAIN, N_EVALUATION, 0, DEPTH)


@pytest.fixture(scope="module")
def some(problems: list[Problem]) -> list[Problem]:
    """Some of both splits and every kind."""
    return problems[:: 40 if MANY else 20]


def composition_of(problem: Problem) -> Composition:
    return Composition.of(problem.title)


def test_there_are_as_many_problems_as_asked_for_all_different(problems: list[Problem]) -> None:
    assert Counter(p.split for p in problems) == {"train": N_TRAIN, "evaluation": N_EVALUATION}
    assert len({p.problem_id for p in problems}) == len({p.statement for p in problems}) == len(problems)
    assert {(len(p.public_tests), len(p.hidden_tests)) for p in problems} == {(PUBLIC_TESTS, HIDDEN_TESTS)}


def test_the_vocabulary_is_used_whole(problems: list[Problem]) -> None:
    used = Counter(name for p in problems for name in p.title.split("."))
    assert used.keys() == {one.name for one in (*wide.SOURCES, *wide.STEPS, *wide.REDUCTIONS)}


def test_no_evaluation_problem_has_a_near_twin_to_train_on(problems: list[Problem]) -> None:
    train, evaluation = ([p for p in problems if p.split == split] for split in ("train", "evaluation"))
    families = {wide.family(composition_of(p)) for p in train}
    assert not families & {wide.family(composition_of(p)) for p in evaluation}
    rivals = {rival.key for p in evaluation for rival in composition_of(p).rivals()}
    assert not rivals & {p.title for p in train}
    assert [pair for pair in overlaps(train, evaluation) if "tests" in pair.reason] == []


def test_no_problem_means_what_another_one_means(problems: list[Problem]) -> None:
    meanings = Counter(wide.signature(composition_of(p)) for p in problems)
    assert meanings.most_common(1)[0][1] == 1


def test_a_family_has_every_order_source_and_confusion() -> None:
    first = Composition.of("line.even.plus_ten.ends")
    for twin in ("words.even.plus_ten.ends", "line.plus_ten.even.ends", "range.odd.minus_ten.ends_apart"):
        assert wide.family(Composition.of(twin)) == wide.family(first)
        assert wide.for_evaluation(Composition.of(twin)) == wide.for_evaluation(first)
    for other in ("line.even.plus_ten.sum", "line.threes.plus_ten.ends", "line.even.double.ends"):
        assert wide.family(Composition.of(other)) != wide.family(first)


def test_the_same_meaning_is_seen_whatever_the_operations() -> None:
    same = Composition.of("line.square.absolute.sum"), Composition.of("digits.negate.square.sum")
    assert wide.signature(same[0]) == wide.signature(same[1])
    assert wide.signature(same[0]) != wide.signature(Composition.of("line.square.negate.sum"))


def test_every_solution_passes_every_test(some: list[Problem]) -> None:
    assert [(p.problem_id, s.program) for p in some for s in p.solutions if not passes(s.program, p)] == []


def test_hidden_tests_fail_every_confused_program_in_every_style(some: list[Problem]) -> None:
    undetected = [
        (problem.problem_id, rival.key, style)
        for problem in some
        for rival in composition_of(problem).rivals()
        for style in STYLES
        if passes(write(rival, style), problem, hidden_only=True)
    ]
    assert undetected == []


@pytest.mark.parametrize("style", STYLES)
def test_every_operation_means_what_its_programs_do(style: str) -> None:
    """The right program of every operation in every spelling against its meaning, on inputs of its own."""
    for composition in _one_per_operation():
        source = SOURCE_OF[composition.source]
        for spelling in (0, 1):
            program, text = write(composition, style, spelling), source.draw(Random(composition.key))
            expected = composition.answer(source.read(text))
            assert expected is None or passes(program, _asking(text, expected)), (composition.key, program, text)


def test_the_same_seed_gives_the_same_problems_and_others_keep_their_split() -> None:
    once, other = generate(12, 6, 5, DEPTH), generate(12, 6, 6, DEPTH)
    assert once == generate(12, 6, 5, DEPTH)
    assert {p.problem_id for p in once} != {p.problem_id for p in other}
    for problem in (*once, *other):
        assert wide.for_evaluation(composition_of(problem)) == (problem.split == "evaluation")


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth_is_the_number_of_steps(depth: int) -> None:
    assert {len(composition_of(p).present) for p in generate(8, 4, 0, depth)} == {depth}


def test_pretraining_never_shows_a_family_of_evaluation_and_shows_every_depth(problems: list[Problem]) -> None:
    kept = {p.statement for p in problems if p.split == "evaluation"}
    assert not kept & {statement for statement, _ in islice(corpus(Random(0), 0.5, DEPTH), 4000)}
    shown = list(islice(wide.shown(Random(0), DEPTH), 500))
    assert not any(map(wide.for_evaluation, shown))
    assert {len(composition.steps) for composition in shown} == {1, 2}


@pytest.mark.parametrize("rate", [0.0, 0.7])
def test_pretraining_confuses_at_the_rate_asked_for(rate: float) -> None:
    pairs = [pair for pair in islice(corpus(Random(1), rate, DEPTH), 30_000) if "Keep those within 5 of" in pair[0]]
    wrong = sum("abs(x) > 5" in program or "x > 5 or x < -5" in program for _, program in pairs)
    assert abs(wrong / len(pairs) - rate) < 0.05


def test_confusions_stay_within_a_kind_and_end_after_one_step() -> None:
    for vocabulary in (wide.STEPS, wide.REDUCTIONS):
        by_name = {one.name: one for one in vocabulary}
        for one in vocabulary:
            other = by_name[one.confused_with] if one.confused_with else one
            assert other.kind == one.kind
            assert confused_with(other.name) in (None, one.name)


def test_names_stand_for_one_operation_each() -> None:
    everything = (*wide.SOURCES, *wide.STEPS, *wide.REDUCTIONS)
    assert len({one.name for one in everything}) == len(everything)
    assert not FILTER_OF.keys() & MAP_OF.keys()
    assert not (FILTER_OF | MAP_OF).keys() & REDUCTION_OF.keys()


def _one_per_operation() -> list[Composition]:
    sources = {source.kind: source.name for source in wide.SOURCES}
    steps = [Composition(sources[s.kind], (s.name,), "all" if s.kind == "integers" else "dashes") for s in wide.STEPS]
    several = [Composition(s.name, ("plus_ten" if s.kind == "integers" else "open",), _PRINTED[s.kind])
               for s in wide.SOURCES]  # fmt: skip
    reduced = [Composition(sources[r.kind], ("next" if r.kind == "integers" else "reverse",), r.name)
               for r in wide.REDUCTIONS]  # fmt: skip
    return [*steps, *several, *reduced]


_PRINTED = {"integers": "all", "words": "words_all"}


def _asking(text: str, expected: str) -> Problem:
    """A problem with this one test."""
    (problem,) = generate(1, 0, 0, 1)
    return replace(problem, public_tests=(), hidden_tests=(TestCase(text, expected),))
