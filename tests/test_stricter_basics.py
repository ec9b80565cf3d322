"""The further inputs for `basics` catch what the set's own tests let pass, and its solutions agree about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.stricter_basics import DOUBTFUL, STRICTER, TWINS, still_right, stricter
from sandbox import Judge, Submission, Verdict
from tasks.config import validate
from tasks.evaluate import eval_samples
from tasks.problems import basics
from tasks.run.prompt_set import PromptedProblem, PromptSet
from tasks.run.stage import Context
from warehouse import Warehouse

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


def test_a_pass_counts_once_and_only_by_the_present_tests(tmp_path: Path) -> None:
    problem = TASKS["digit_count"].problem("function")
    one = PromptedProblem(problem, "prompt", (1,))
    prompts = PromptSet({problem.problem_id: one}, "pi_0", tmp_path, "template", "problems", "prompts", "evaluation")
    program = TASKS["digit_count"].program(TASKS["digit_count"].solutions[0], "function")
    with Warehouse.open(tmp_path / "warehouse") as store, Judge(workers=1) as judge:
        context = Context("run", validate({}), store, tmp_path)
        row = {
            "policy_id": "policy", "problem_set": "basics", "problem_id": problem.problem_id, "prompt_id": "prompt",
            "suite_hash": problem.suite_hash, "sampling": eval_samples.label_of(context), "sample": 0, "seed": 7,
            "token_ids": [1], "text": program, "verdict": "accepted", "reward": 0.0, "finish_reason": "stop",
        }  # fmt: skip
        lost = {"sample": 1, "seed": 8, "text": "", "verdict": "wrong_answer", "reward": -1.0}
        for batch, rows in (("a", [row, row | lost]), ("b", [row, row | lost | {"reward": 0.0}])):
            store.append(batch, {"eval_samples": rows}, run_id=batch)
        store.append("older tests", {"eval_samples": [row | {"suite_hash": "older", "seed": 9}]}, run_id="c")
        before, after = still_right(context, prompts, "policy", judge)
    assert before == after == {problem.problem_id: (2, 1)}
