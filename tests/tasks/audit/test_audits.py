"""Programs that passed the same weak tests are told apart, and likely wrong ones named, once and for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sandbox import Judge, Limits, Submission
from tasks.extras.audit import acceptance
from tasks.extras.audit.audits import Audited, NothingToAudit, Wanted, audit, look
from tasks.extras.audit.calls import called_name, compared_as_it_is
from tasks.extras.audit.examination import (
    NO_MAJORITY,
    REFERENCES_DIFFER,
    REFERENCES_FAIL,
    Candidate,
    Examination,
    examine,
)
from tasks.problems.problem import Problem
from tasks.programs.extraction import normal_hash, program_hash
from tests.tasks.audit.conftest import ALSO_RIGHT, CRASHES, LOOPS, PROBLEM, RIGHT, UNSTABLE, WRONG, Shelf
from tests.tasks.conftest import breaking, interrupt


def audited(shelf: Shelf, **wanted: Any) -> Audited:
    with shelf.store() as store:
        return audit(store, look(store, Wanted(**{"inputs": 30} | wanted)))


def examined(judge: Judge, *programs: str, solutions: tuple[str, ...] = (), problem: Problem = PROBLEM) -> Examination:
    members = [Candidate(program_hash(p), normal_hash(p), p, p in solutions) for p in (*solutions, *programs)]
    return examine(problem, members, judge, inputs=30, seed=0)


def test_two_programs_that_differ_for_zero_alone_are_told_apart(shelf: Shelf) -> None:
    problem = shelf.put(PROBLEM, [WRONG], [RIGHT])
    found = audited(shelf)
    assert (found.problems, found.new, found.disagreeing, found.survivors) == (1, 1, 1, 1)
    with shelf.store() as store:
        (row,) = store.rows("FROM survivors")
        assert (row["program_hash"], row["input"]) == (program_hash(WRONG), "0\n")
        assert (row["suite_hash"], row["is_solution"], row["basis"]) == (problem.suite_hash, False, "reference")
        (row,) = store.rows("FROM audits")
        assert (row["behaviours"], row["disagreeing"], len(row["programs"]), len(row["solutions"])) == (2, 1, 2, 1)


def test_crashes_and_endless_loops_are_disagreements_that_say_what_happened(judge: Judge) -> None:
    found = examined(judge, CRASHES, LOOPS, solutions=(RIGHT,))
    (finding,) = found.findings
    assert finding.input == "0\n"
    assert finding.behaviour == {program_hash(CRASHES): "runtime_error", program_hash(LOOPS): "time_limit"}
    assert found.behaviours == 3


def test_a_program_that_loops_everywhere_is_given_up_after_a_few_inputs(judge: Judge) -> None:
    spins = "n = int(input())\nwhile n not in (1, 3, 7):\n    pass\nprint(10 // n)"
    quick = replace(PROBLEM, limits=Limits(cpu_s=0.1))
    found = examined(judge, spins, solutions=(RIGHT,), problem=quick)
    assert set(found.survivors) == {program_hash(spins)}
    assert found.inputs == 18, "all of 0 to 20 but the three tests"


def test_a_program_that_answers_anew_each_time_is_called_unstable_and_no_survivor(judge: Judge) -> None:
    found = examined(judge, UNSTABLE, WRONG, solutions=(RIGHT,))
    assert found.unstable == (program_hash(UNSTABLE),)
    assert set(found.survivors) == {program_hash(WRONG)}


def test_right_programs_that_are_written_differently_are_no_survivors(judge: Judge) -> None:
    found = examined(judge, ALSO_RIGHT, solutions=(RIGHT,))
    assert (found.inputs, found.findings, found.behaviours) == (18, (), 1)


def test_inputs_on_which_a_solution_fails_or_solutions_differ_say_nothing(judge: Judge) -> None:
    assert examined(judge, WRONG, solutions=(CRASHES, RIGHT)).discarded == {REFERENCES_FAIL: 1}
    found = examined(judge, ALSO_RIGHT, solutions=(RIGHT, WRONG))
    assert (found.discarded, found.findings) == ({REFERENCES_DIFFER: 1}, ())


def test_without_solutions_more_than_half_of_the_programs_say_what_is_right(judge: Judge) -> None:
    found = examined(judge, RIGHT, ALSO_RIGHT, WRONG)
    assert [finding.basis for finding in found.findings] == ["majority"]
    assert set(found.survivors) == {program_hash(WRONG)}
    assert examined(judge, RIGHT, WRONG).discarded == {NO_MAJORITY: 1}


def test_functions_are_audited_by_their_values(judge: Judge) -> None:
    problem = replace(
        PROBLEM, style="function", entry_point="share", public_tests=(),
        hidden_tests=(PROBLEM.tests[0].__class__("assert share(3, [1, 2]) == 1"),),
    )  # fmt: skip
    right = "def share(n, items):\n    return sum(items) // n if n else 0"
    wrong = "def share(n, items):\n    return sum(items) // max(n, 1)"
    found = examined(judge, wrong, solutions=(right,), problem=problem)
    assert set(found.survivors) == {program_hash(wrong)}
    assert all(finding.input.startswith("(0, ") and finding.expected == "0" for finding in found.findings)


def test_methods_are_audited_as_functions_are_and_findings_become_tests_of_the_method(judge: Judge) -> None:
    test = PROBLEM.tests[0].__class__("assert Solution().share(3, [1, 2]) == 1")
    problem = replace(PROBLEM, style="function", entry_point="share", public_tests=(), hidden_tests=(test,))
    right = "class Solution:\n    def share(self, n, items):\n        return sum(items) // n if n else 0"
    wrong = "class Solution:\n    def share(self, n, items):\n        return sum(items) // max(n, 1)"
    assert called_name(problem) == called_name(replace(problem, entry_point="")) == "Solution().share"
    found = examined(judge, wrong, solutions=(right,), problem=problem)
    assert found.inputs == 30
    assert set(found.survivors) == {program_hash(wrong)}
    finding = {"input": found.findings[0].input, "expected": found.findings[0].expected}
    added = acceptance.hidden_test(problem, finding)
    assert added is not None
    assert added.input.startswith("assert Solution().share(*(0, ")
    suite = replace(problem, hidden_tests=(test, added)).suite()
    verdicts = [one.verdict for one in judge.judge([Submission(text, suite) for text in (right, wrong)])]
    assert verdicts == ["accepted", "wrong_answer"]


def test_a_finding_that_would_loosen_the_other_tests_is_no_test(judge: Judge) -> None:
    whole = PROBLEM.tests[0].__class__("4\n", "2\n")
    problem = replace(PROBLEM, public_tests=(), hidden_tests=(whole,))
    assert acceptance.hidden_test(problem, {"input": "3\n", "expected": "1.5\n"}) is None
    added = acceptance.hidden_test(problem, {"input": "6\n", "expected": "3\n"})
    assert added is not None
    halves = Submission("print(int(input()) / 2)", replace(problem, hidden_tests=(whole, added)).suite())
    assert [one.verdict for one in judge.judge([halves])] == ["wrong_answer"]
    broken = replace(problem, hidden_tests=(whole, whole.__class__("5\n", "2.5\n")))
    assert acceptance.hidden_test(broken, {"input": "3\n", "expected": "1.5\n"}) is not None


@pytest.mark.parametrize("test", ["assert share(number, [4]) == 1", "one = Solution()\nassert one.share(3, [4]) == 1"])
def test_problems_whose_calls_give_no_values_to_change_are_left_out_with_the_reason(test: str, shelf: Shelf) -> None:
    tests = (PROBLEM.tests[0].__class__(test, ""),)
    problem = replace(PROBLEM, style="function", entry_point="share", public_tests=(), hidden_tests=tests)
    shelf.put(problem, [RIGHT, WRONG])
    with shelf.store() as store:
        backlog = look(store, Wanted())
    reason = "have tests without a call of plain values, so that no new inputs can be made"
    assert (backlog.groups, backlog.left_out) == ((), {reason: 1})


def test_problems_of_which_no_input_counted_are_told_from_those_whose_programs_agree(shelf: Shelf) -> None:
    shelf.put(replace(PROBLEM, problem_id="hand/agree"), [ALSO_RIGHT], [RIGHT])
    assert "nothing is known" not in audited(shelf).summary
    long = (PROBLEM.tests[0].__class__("3" * 20_000 + "\n", "0\n"),)
    shelf.put(replace(PROBLEM, public_tests=(), hidden_tests=long), [ALSO_RIGHT, RIGHT])
    found = audited(shelf)
    assert found.problems == 2
    assert found.summary.endswith("; nothing is known of 1, for which no new input counted")


def test_an_empty_warehouse_has_nothing_to_audit(shelf: Shelf) -> None:
    assert audited(shelf) == Audited(0, 0, 0, 0, ())
    with pytest.raises(NothingToAudit):
        audited(shelf, problems=("hand/divide",))
    with pytest.raises(NothingToAudit):
        audited(shelf, run="nobody")
    with pytest.raises(NothingToAudit):
        audited(shelf, problem_set="nowhere")


def test_a_problem_with_one_program_is_left_out_with_the_reason(shelf: Shelf) -> None:
    shelf.put(PROBLEM, [RIGHT, "# the same\n" + RIGHT])
    with shelf.store() as store:
        assert look(store, Wanted()).left_out == {"have less than two different programs": 1}


@pytest.mark.parametrize(
    "test, direct",
    [
        ("assert share(3, [4]) == 1", True),
        ("assert 1 == share(3, [4]) and share(1, []) is None", True),
        ("import math\nassert math.isclose(share(3, [4]), 1.33, rel_tol=0.01)", True),
        ("def check(candidate):\n    assert abs(candidate(3, [4]) - 1.33) < 1e-2", True),
        ("assert Solution().share(3, [4]) == 1", True),
        ("assert _as_lists(Solution().share(3, [4])) == [1]", False),
        ("assert set(share(3, [4])) == {1}", False),
        ("assert share(3, [4])", False),
        ("assert share(3, [4]) in (1, [1])", False),
        ("def assertion(out, right):\n    assert out == right\nassertion(share(3, [4]), 1)", False),
    ],
)
def test_functions_whose_tests_change_values_before_they_compare_them_are_left_out(
    test: str, direct: bool, shelf: Shelf
) -> None:
    """There a list and a set may be right alike: their difference says nothing, and no assert may be made of it."""
    tests = (PROBLEM.tests[0].__class__(test, ""),)
    problem = replace(PROBLEM, style="function", entry_point="share", public_tests=(), hidden_tests=tests)
    assert compared_as_it_is(problem) == direct
    shelf.put(problem, ["def share(n, items):\n    return 1", "def share(n, items):\n    return (1,)"])
    with shelf.store() as store:
        backlog = look(store, Wanted())
    assert (len(backlog.groups), sum(backlog.left_out.values())) == ((1, 0) if direct else (0, 1))


def test_a_second_run_repeats_nothing(shelf: Shelf) -> None:
    shelf.put(PROBLEM, [WRONG], [RIGHT])
    first = audited(shelf)
    with shelf.store() as store:
        snapshot = store.snapshot()
    second = audited(shelf)
    assert (second.new, second.rows) == (0, first.rows)
    with shelf.store() as store:
        assert store.snapshot() == snapshot


def test_killed_in_between_it_goes_on_with_the_problems_that_are_left(shelf: Shelf) -> None:
    for number in range(3):
        shelf.put(replace(PROBLEM, problem_id=f"hand/{number}"), [WRONG], [RIGHT])
    with breaking("audit/", 3, interrupt).open(shelf.location) as store, pytest.raises(KeyboardInterrupt):
        audit(store, look(store, Wanted(inputs=30)))
    with shelf.store() as store:
        assert store.value("SELECT count(*) FROM audits") == 1
    assert audited(shelf).new == 2
    with shelf.store() as store:
        assert store.value("SELECT count(*) FROM audits") == 3
        assert store.value("SELECT count(*) FROM audit_findings") == 3


def test_other_inputs_or_programs_are_another_audit(shelf: Shelf) -> None:
    shelf.put(PROBLEM, [WRONG], [RIGHT])
    assert [audited(shelf, seed=seed).new for seed in (0, 1, 1)] == [1, 1, 0]


def test_a_solution_that_fails_the_tests_takes_no_part_and_its_verdict_is_kept(shelf: Shelf) -> None:
    shelf.put(PROBLEM, [WRONG, ALSO_RIGHT], [RIGHT, "print(5)"])
    assert audited(shelf).survivors == 1
    with shelf.store() as store:
        assert store.value("SELECT len(programs) FROM audits") == 3
        assert store.value("SELECT verdict FROM verdicts WHERE program_hash = ?", [program_hash("print(5)")]) == (
            "wrong_answer"
        )
