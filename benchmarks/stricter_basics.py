"""How much of what passes on `basics` would pass stricter tests, and what its doubtful tasks do to a difference.

    python -m benchmarks.stricter_basics --home FOLDER --run RUN

The evaluation of a run's first and last policy: as it was judged; with the inputs below as further tests of what
passed (each lets a plausible mistake fail that the set's own tests let through); without the tasks of which training
has a near twin; and without those whose wording a reasonable reader may take otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox import Judge, Submission, Verdict
from tasks.estimators import Counts, average_paired_difference, average_pass_at_k
from tasks.evaluate import eval_samples
from tasks.evaluate.stage import candidates
from tasks.problems import basics
from tasks.problems.basics import Task
from tasks.problems.programs import extract_program
from tasks.run import prompt_set, runs
from tasks.run.prompt_set import PromptSet
from tasks.run.stage import Context
from warehouse import Warehouse

STRICTER = {
    "a_to_o": ['"Havana"'],
    "without_value": ["[4, 7, 4, 1], 4"],
    "count_single": ["[4, 4, 4, 2]", "[9, 7, 7, 1, 9]"],
    "digit_count": ["0"],
    "middle_of_three": ["5, 5, 3"],
    "smaller": ["33, 33"],
    "starts_with_vowel": ['"eagle"'],
    "longest_word": ['["pie", "Banana"]'],
    "first_letters": ['["Red", "pie"]'],
    "short_words": ['["Red", "apple"]'],
    "cheer": ['"Hip", 2'],
    "repeat_dash": ['"Hip", 2'],
    "doubled_letters": ['"Bob"'],
    "word_list": ['"Hip", 2'],
    "polite": ['"Bob"'],
    "quoted": ['"Bob"'],
    "email": ['"Bob", "Mail"'],
    "without_vowels": ['"Bob"'],
    "only_vowels": ['"Bob"'],
    "star_vowels": ['"Bob"'],
    "remove_letter": ['"Bob", "o"'],
    "censor_digits": ['"Room 101"'],
}
"""Further inputs by task; the task's own solutions say what is right."""
TWINS = {"at_most_hundred", "left_over", "polite", "multiple_of_five", "starts_with_vowel", "quoted"}
"""Evaluation tasks that differ from one in training, or in the prompt's examples, by a constant alone."""
DOUBTFUL = {"hello", "zeros_and_one", "first_digit", "last_digit", "last_two_digits"}
"""Evaluation tasks of which a right program by a reasonable reading fails."""
KS = (1, 10)
PASSED = """
    SELECT text FROM (
        SELECT DISTINCT ON (sample, seed) text, reward FROM eval_samples
        WHERE policy_id = $policy AND sampling = $sampling AND suite_hash = $suite AND prompt_id = $prompt
        ORDER BY arrival
    ) WHERE reward = 0
"""
"""Which samples of a policy pass a problem, each once and as it was judged first (as in `eval_samples.counts`)?"""

Scores = dict[str, Counts]
"""Samples and successes by problem."""


def stricter(task: Task) -> Task:
    """The task with the further inputs alone. Raises ValueError where its solutions disagree about one."""
    tests: list[str] = []
    for given in STRICTER[task.name]:
        results: set[str] = set()
        for code in task.solutions:
            space: dict[str, Any] = {}
            exec(task.program(code, "function"), space)
            results.add(repr(eval(f"{task.name}({given})", space)))
        if len(results) != 1:
            raise ValueError(f"{task.name}: the solutions make {' and '.join(sorted(results))} of {given}")
        tests.append(f"{given} -> {results.pop()}")
    return replace(task, tests=tuple(tests))


def still_right(context: Context, prompts: PromptSet, policy_id: str, judge: Judge) -> tuple[Scores, Scores]:
    """How often the policy passed each problem, as judged and with the stricter tests as well."""
    tasks = {task.name: stricter(task) for task in basics.tasks() if task.name in STRICTER}
    before = eval_samples.counts(context, prompts, policy_id)
    after = dict(before)
    for problem_id, (n, _) in before.items():
        _, name, style = problem_id.split("/")
        if name not in tasks:
            continue
        prompt = prompts.prompts[problem_id]
        asked = {"policy": policy_id, "prompt": prompt.prompt_id, "suite": prompt.problem.suite_hash}
        rows = context.warehouse.rows(PASSED, asked | {"sampling": eval_samples.label_of(context)})
        suite = tasks[name].problem("stdin" if style == "stdin" else "function").suite()
        found = judge.judge([Submission(extract_program(row["text"]), suite) for row in rows])
        after[problem_id] = (n, sum(one.verdict is Verdict.accepted for one in found))
    return before, after


def row(label: str, first: Scores, last: Scores, left_out: Collection[str] = ()) -> str:
    """A line of the table: pass@k of both policies and the paired difference, without some tasks."""
    a, b = ({"basics": _without(scores, left_out)} for scores in (first, last))
    cells = [label, str(len(a["basics"]))]
    for k in KS:
        sides = [f"{100 * average_pass_at_k(_by_set(scores), k).value:.1f}" for scores in (a, b)]
        change = average_paired_difference(a, b, k)
        cells += [*sides, f"{100 * change.difference:+.1f} [{100 * change.low:+.1f}, {100 * change.high:+.1f}]"]
    return "| " + " | ".join(cells) + " |"


def _by_set(scores: Mapping[str, Scores]) -> dict[str, list[Counts]]:
    return {name: list(counts.values()) for name, counts in scores.items()}


def _without(scores: Scores, names: Collection[str]) -> Scores:
    return {problem: counts for problem, counts in scores.items() if problem.split("/")[1] not in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", required=True)
    options = parser.parse_args()
    with Warehouse.open(options.home / "warehouse", read_only=True) as store, Judge() as judge:
        context = Context(options.run, runs.load_config(store, options.run), store, options.home)
        prompts = prompt_set.load(context, "evaluation")
        policies = candidates(context)
        (first, first_strict), (last, last_strict) = (
            still_right(context, prompts, one.policy_id, judge) for one in (policies[0], policies[-1])
        )
    print("| | problems | pi_0 pass@1 | trained | difference | pi_0 pass@10 | trained | difference |")
    print("|---|---|---|---|---|---|---|---|")
    print(row("as judged", first, last))
    print(row("stricter tests", first_strict, last_strict))
    print(row("without near twins", first, last, TWINS))
    print(row("without doubtful wording", first, last, DOUBTFUL))
    print(row("all three", first_strict, last_strict, TWINS | DOUBTFUL))


if __name__ == "__main__":
    main()
