"""The embedded task: problems that separate right from wrong, and splits that cannot mix."""

import contextlib
import hashlib
import io
import json
from itertools import islice
from random import Random

import pytest

from tasks.config import PretrainConfig
from tasks.prepare import pretrain
from tasks.problems.miniature import corpus, generate, write
from tasks.problems.miniature.composition import Composition
from tasks.problems.miniature.generate import HIDDEN_TESTS, PUBLIC_TESTS, build
from tasks.problems.miniature.operations import FILTERS, MAPS, REDUCTIONS
from tasks.problems.miniature.small import STRATA, all_compositions, for_evaluation
from tasks.problems.miniature.writer import STYLES
from tasks.problems.problem import Problem
from tasks.programs.extraction import normal_hash
from tasks.run.problem_lists import fingerprint
from tests.refusals import refused


def passes(program: str, problem: Problem, *, hidden_only: bool = False) -> bool:
    """An independent oracle: our own generated text, executed here."""
    tests = problem.hidden_tests if hidden_only else problem.tests
    return all(_output(program, test.input) == test.expected.split() for test in tests)


def _output(program: str, text: str) -> list[str] | None:
    lines = iter(text.splitlines())
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(program, {"input": lambda: next(lines)})
    except (ValueError, IndexError, TypeError):
        return None
    return printed.getvalue().split()


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return generate(32, 24, seed=3)


def test_every_solution_passes_every_test(problems: list[Problem]) -> None:
    wrong = [(p.problem_id, s.program) for p in problems for s in p.solutions if not passes(s.program, p)]
    assert wrong == []


def test_hidden_tests_fail_every_confused_program_in_every_style(problems: list[Problem]) -> None:
    undetected = [
        (problem.problem_id, rival.key, style)
        for problem in problems
        for rival in Composition.of(problem.title).rivals()
        for style in STYLES
        if passes(write(rival, style), problem, hidden_only=True)
    ]
    assert undetected == []


def test_each_problem_has_several_distinct_solutions_that_are_short(problems: list[Problem]) -> None:
    for problem in problems:
        assert len({normal_hash(solution.program) for solution in problem.solutions}) >= 4
        assert max(len(solution.program) for solution in problem.solutions) < 200


def test_each_problem_has_public_and_hidden_tests(problems: list[Problem]) -> None:
    assert {(len(p.public_tests), len(p.hidden_tests)) for p in problems} == {(PUBLIC_TESTS, HIDDEN_TESTS)}
    for problem in problems:
        assert not set(problem.public_tests) & set(problem.hidden_tests)


def test_splits_never_share_a_composition_whatever_the_seeds() -> None:
    train = {p.problem_id for seed in range(3) for p in generate(60, 1, seed) if p.split == "train"}
    evaluation = {p.problem_id for seed in range(3) for p in generate(1, 60, seed) if p.split == "evaluation"}
    assert not train & evaluation


def test_same_seed_gives_the_same_problems_and_another_seed_others() -> None:
    once, again, other = (generate(10, 10, seed) for seed in (5, 5, 6))
    assert once == again
    assert [p.problem_id for p in once] != [p.problem_id for p in other]


def test_difficulty_follows_the_strata() -> None:
    problems = [p for p in generate(32, 1, 0) if p.split == "train"]
    levels = [min(Composition.of(p.title).confusable, 2) for p in problems]
    assert levels == list(STRATA) * 2


def test_the_small_vocabulary_is_what_warehouses_hold_of_it() -> None:
    """Identities of problems, training pairs and the reference policy: never another task under the same name."""
    assert fingerprint(generate(48, 64, 0)) == "8cca55f1bf08e291b026b18f"
    assert fingerprint(generate(12, 10, 7)) == "259dcd0da38631405f1339a9"
    pairs = json.dumps(list(islice(corpus(Random(5), 0.4), 500)))
    assert hashlib.sha256(pairs.encode()).hexdigest()[:16] == "71fb13ea895c7d90"
    assert pretrain.fingerprint(PretrainConfig()) == "5fba35018e9f0e6b"


def test_too_many_problems_are_refused_with_the_number_there_is() -> None:
    with refused("TooFewCompositions", 100000):
        generate(100_000, 1, 0)


def test_mistakes_are_systematic() -> None:
    composition = Composition.of("line.even.square.smallest")
    assert composition.confused((True, False, False)) == Composition.of("line.odd.square.smallest")
    assert composition.confused((True, True, True)) == Composition.of("line.odd.double.largest")
    assert composition.confusable == 3


def test_confusions_lead_to_operations_of_the_same_kind_that_are_not_confused_themselves() -> None:
    for vocabulary in (FILTERS, MAPS, REDUCTIONS):
        by_name = {operation.name: operation for operation in vocabulary}
        for operation in vocabulary:
            if operation.confused_with is not None:
                assert by_name[operation.confused_with].kind == operation.kind
                assert by_name[operation.confused_with].confused_with is None


def test_corpus_never_shows_an_evaluation_statement() -> None:
    kept = {composition.statement for composition in all_compositions() if for_evaluation(composition)}
    seen = {statement for statement, _ in islice(corpus(Random(0), 0.5), 4000)}
    assert not seen & kept


def test_corpus_makes_mistakes_at_the_rate_asked_for() -> None:
    pairs = [pair for pair in islice(corpus(Random(1), 0.65), 20_000) if "Keep the even ones." in pair[0]]
    right = sum("x % 2 == 0" in program or "not x % 2" in program for _, program in pairs)
    wrong = len(pairs) - right
    assert abs(wrong / len(pairs) - 0.65) < 0.04


def test_corpus_without_mistakes_is_correct_python() -> None:
    for _, program in islice(corpus(Random(2), 0.0), 300):
        compile(program, "program", "exec")


def test_composition_whose_tests_cannot_separate_a_rival_makes_no_problem() -> None:
    assert build(Composition.of("range.positive.-.sum"), "train") is None
