"""Function-style suites whose test code calls nothing, is called by nobody, or is broken behind a sound test."""

import pytest

from sandbox import Judge, Suite, TestCase, Verdict
from tests.sandbox.functions import judged

CALLS_NOTHING = {
    "class": "class T:\n  def test_f(self): assert f(1) == 1",
    "coroutine": "async def main():\n  assert f(1) == 1",
    "main": "if __name__ == '__main__':\n  assert f(1) == 1",
    "empty loop": "for n in []:\n  assert f(n) == n",
}


@pytest.mark.parametrize("name", sorted(CALLS_NOTHING))
def test_a_test_that_calls_nothing_of_the_program_accepts_none(local: Judge, name: str):
    suite = Suite(name, (TestCase(CALLS_NOTHING[name]),), style="function", entry_point="f")
    for program in ("pass", "def f(n): return n"):
        found = judged(local, suite, program)
        assert found.verdict is Verdict.infra
        assert "calls nothing of the program" in found.detail


@pytest.mark.parametrize(
    "test",
    [
        "def test_f():\n  assert f(1) == 1\ndef test_more():\n  assert f(2) == 2",
        "def test(n=2):\n  assert f(n) == n\ntest()",
        "'''Ends with check(f).'''\ndef check(candidate):\n  assert candidate(2) == 2",
    ],
)
def test_functions_of_asserts_that_nobody_calls_are_called(local: Judge, test: str):
    suite = Suite(test, (TestCase(test),), style="function", entry_point="f")
    assert judged(local, suite, "def f(n): return n").verdict is Verdict.accepted
    assert judged(local, suite, "def f(n): return 1").verdict is Verdict.wrong_answer
    assert judged(local, suite, "pass").verdict is Verdict.wrong_answer


def test_a_program_that_exits_leaves_no_functions(local: Judge):
    assert judged(local, "assert f(1) == 1", "def f(n): return n\nraise SystemExit").verdict is Verdict.runtime_error


def test_what_a_broken_test_says_of_one_program_does_not_reach_the_next(local: Judge):
    tests = (TestCase("assert f(1) == 1"), TestCase("assert f(1) == helper(1)"))
    suite = Suite("half broken", tests, style="function", entry_point="f")
    right, wrong = "def f(n): return n", "def f(n): return {}"
    programs = (right, right + " + 0", wrong.format(2), wrong.format(3))
    found = [judged(local, suite, program).verdict for program in programs]
    assert found == [Verdict.infra, Verdict.infra, Verdict.wrong_answer, Verdict.wrong_answer]
