"""Problems as records: identity, suites and the way into the warehouse and back."""

from dataclasses import replace

import pytest

from sandbox import Checker, Limits, TestCase
from tasks.problems.miniature import generate
from tasks.problems.problem import Problem, Solution, problems_from_rows, rows, solution_id


@pytest.fixture
def problem() -> Problem:
    return Problem(
        problem_id="p/1",
        problem_set="p",
        split="train",
        title="Sum",
        statement="Print the sum.",
        public_tests=(TestCase("1 2\n", "3\n"),),
        hidden_tests=(TestCase("4 5\n", "9\n"), TestCase("", "0\n")),
        checker=Checker(float_tolerance=1e-6),
        limits=Limits(cpu_s=3.0, memory_bytes=1 << 28),
        solutions=(Solution("print(sum(map(int, input().split())))", verified="accepted"), Solution("x", "cpp")),
        source="somewhere",
        licence="CC0",
    )


def test_rows_bring_the_same_problem_back(problem: Problem) -> None:
    for problems in ([problem, *generate(2, 2, 0)], [replace(problem, every_test=True)]):
        assert problems_from_rows(**rows(problems)) == problems


def test_tests_of_another_suite_are_left_out(problem: Problem) -> None:
    old, new = rows([problem]), rows([replace(problem, hidden_tests=())])
    back = problems_from_rows(new["problems"], old["tests"] + new["tests"])
    assert back[0].tests == problem.public_tests


def test_public_tests_come_first_and_only_the_others_are_hidden(problem: Problem) -> None:
    assert [row["hidden"] for row in rows([problem])["tests"]] == [False, True, True]


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_tests": ()},
        {"checker": Checker(kind="exact")},
        {"limits": Limits(cpu_s=9.0)},
        {"style": "function"},
        {"entry_point": "f"},
        {"every_test": True},
    ],
)
def test_suite_hash_changes_with_whatever_decides_a_verdict(problem: Problem, change: dict[str, object]) -> None:
    changed = replace(problem, **change)
    assert changed.suite_hash != problem.suite_hash
    assert changed.content_hash != problem.content_hash


def test_suite_hash_does_not_depend_on_words(problem: Problem) -> None:
    changed = replace(problem, statement="Add.", title="Add", split="evaluation")
    assert changed.suite_hash == problem.suite_hash
    assert changed.content_hash != problem.content_hash


def test_suite_under_another_limit_has_another_identity(problem: Problem) -> None:
    assert problem.suite().suite_id == problem.suite(cpu_s=3.0).suite_id == problem.suite_hash
    assert problem.suite(cpu_s=1.0).suite_id != problem.suite_hash
    assert problem.suite(memory_bytes=1 << 20).limits.memory_bytes == 1 << 20


def test_packages_are_part_of_the_suite_and_survive_the_warehouse(problem: Problem) -> None:
    given = replace(problem, packages=("numpy==2.1.0",))
    assert given.suite_hash != problem.suite_hash != replace(problem, packages=("numpy==2.2.0",)).suite_hash
    tables = rows([given])
    assert (
        problems_from_rows(tables["problems"], tables["tests"], tables["solutions"])[0].suite_hash == given.suite_hash
    )


def test_solutions_are_identified_by_problem_and_text() -> None:
    assert solution_id("a", Solution("x")) != solution_id("b", Solution("x"))
    assert solution_id("a", Solution("x")) == solution_id("a", Solution("x", claimed="rejected"))
