"""The further inputs for `basics` catch what the set's own tests let pass, and its solutions agree about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.stricter_basics import DOUBTFUL, STRICTER, TWINS, stricter
from sandbox import Judge, Submission, Verdict
from tasks.problems import basics

TASKS = {task.name: task for task in basics.tasks()}
MISTAKES = {
    "a_to_o": 's.replace("a", "o").lower()',
    "without_value": "xs = list(xs)\nif v in xs:\n    xs.remove(v)\nreturn xs",
    "count_single": "2 * len(set(xs)) - len(xs)",
    "digit_count": "count = 0\nwhile n > 0:\n    n //= 10\n    count += 1\nreturn count",
    "middle_of_three": "if a < b < c or c < b < a:\n    return b\nif b < a < c or c < a < b:\n    return a\nreturn c",
    "smaller": "if a < b:\n    return a\nif b < a:\n    return b",
    "starts_with_vowel": 's[0] in "aiou"',
    "polite": 'name.lower() + " please"',
    "without_vowels": '"".join(c for c in s.lower() if c not in "aeiou")',
}


def test_every_task_named_is_one_of_the_evaluation() -> None:
    names = {*STRICTER, *TWINS, *DOUBTFUL}
    assert {TASKS[name].split for name in names} == {"evaluation"}
    assert all(len(stricter(TASKS[name]).tests) == len(given) for name, given in STRICTER.items())


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_that_the_set_lets_pass_is_caught(name: str) -> None:
    task = TASKS[name]
    with Judge(workers=1) as judge:
        for style in ("stdin", "function"):
            suites = [one.problem(style).suite() for one in (task, stricter(task))]
            codes = [MISTAKES[name], *task.solutions]
            submissions = [Submission(task.program(code, style), suite) for code in codes for suite in suites]
            found = [one.verdict is Verdict.accepted for one in judge.judge(submissions)]
            assert found == [True, False, *[True] * 2 * len(task.solutions)]


def test_solutions_that_disagree_are_refused() -> None:
    with pytest.raises(ValueError, match=r"digit_count: the solutions make 1 and 2 of 0"):
        stricter(replace(TASKS["digit_count"], solutions=("1", "2")))
