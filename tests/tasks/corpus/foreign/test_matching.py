"""A row answers the problem that its prompt asks for, and is refused where its name says another one."""

from __future__ import annotations

import pytest

from tasks.extras.importing.formats.matching import Matching
from tasks.problems.problem import Problem, Split


def problem(name: str, statement: str, split: Split = "train") -> Problem:
    return Problem(name, "set", split, name, statement)


PLUS = problem("plus", "Read n. Print n + 1 for every line.")
MINUS = problem("minus", "Read n. Print n - 1 for every line.")
SUM = problem("sum", "Print the sum of the numbers")
EVEN = problem("even", "Print the sum of the numbers that are even.")
HELD = problem("1", "Print the longest word.", "evaluation")


@pytest.mark.parametrize(
    "prompt, expected",
    [
        ("Read n. Print n + 1 for every line.", "plus"),
        ("user\nRead n.  Print n - 1\nfor every line.\nassistant", "minus"),
        ("# Task: Read n. Print\n# n + 1 for every line.\n", "plus"),
        ("> read n.\n> print n - 1 for every line.", "minus"),
        ("Print the sum of the numbers.", "sum"),
        ("<user>Print the sum of the numbers<assistant>", "sum"),
        ("Print the sum of the numbers\nUse Python.", "sum"),
        ("Print the sum of the numbers that are even. Use Python.", "even"),
        ("Print the sum of the numbers that are odd.", None),
        ("Print the sum of the numbers, each times two.", None),
        ("Read n. Print n * 1 for every line.", None),
    ],
)
def test_the_whole_statement_decides_with_its_signs(prompt: str, expected: str | None) -> None:
    assert Matching([PLUS, MINUS, SUM, EVEN], []).find([], prompt)[0] == expected


def test_a_name_counts_unless_the_prompt_asks_for_another_problem() -> None:
    matching = Matching([PLUS, MINUS], [HELD])
    assert matching.find(["plus"], "Solve the task.") == ("plus", "")
    assert matching.find(["plus"], PLUS.statement) == ("plus", "")
    assert matching.find(["1", "plus"], PLUS.statement) == ("plus", "")
    misnamed = "is named 'plus', but its prompt holds the statement of minus"
    assert matching.find(["plus"], MINUS.statement) == (None, misnamed)
    assert matching.find(["plus"], HELD.statement)[0] is None
    assert matching.find(["1"], PLUS.statement)[0] is None
