"""Test code that fails whatever a program answers says so without an own solution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandbox import Judge, TestCase
from tasks.prepare.reference_solutions import refused
from tasks.problems.problem import Problem, Solution
from tasks.problems.sources import read_file
from tests.tasks.prepare.test_stage import write


def test_test_code_that_fails_for_every_program_is_named_without_an_own_solution(tmp_path: Path, judge: Judge) -> None:
    records = [
        {
            "problem_id": name,
            "statement": f"Write f, which doubles a number. This is about a {name}.",
            "style": "function",
            "entry_point": "f",
            "test_list": ["assert f(2) == 4"],
            "test_setup_code": setup,
        }
        for name, setup in (("frog", "import no_such_module"), ("violin", ""))
    ]
    found = refused(read_file(write(tmp_path / "asserts.jsonl", records)), judge)
    assert set(found) == {"frog"}
    assert found["frog"].startswith("its test code fails for every program (")
    assert "no_such_module" in found["frog"]


def test_a_broken_test_behind_others_and_tests_that_accept_nothing_at_all_are_named(judge: Judge) -> None:
    tests = {
        "broken": ["assert f(2) == 4", "assert f(2) == helper(2)"],
        "weak": ["try:\n  f(2)\nexcept Exception:\n  pass"],
        "good": ["assert f(2) == 4", "assert f(3) == 6"],
    }
    problems = [
        Problem(
            name, "set", "train", name, name, hidden_tests=tuple(map(TestCase, own)), style="function", entry_point="f"
        )
        for name, own in tests.items()
    ]
    found = refused(problems, judge)
    assert set(found) == {"broken", "weak"}
    assert "for every program (test 2: the test cannot be judged: name 'helper' is not defined" in found["broken"]
    assert found["weak"] == "its tests accept a program that does nothing"
    right = Solution("def f(n): return 2 * n", "python3", "accepted")
    assert set(refused([replace(problem, solutions=(right,)) for problem in problems], judge)) == {"broken"}
