"""New inputs have the shape of the tests, keep what the statement says, and are the same for the same seed."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from sandbox import TestCase
from tasks.extras.audit.calls import UNKNOWN, CallMaker, answer_in, as_test, known_arguments, same_answers
from tasks.extras.audit.changes import exchanged, respaced, shifted
from tasks.extras.audit.inferred_layout import infer
from tasks.extras.audit.inputs import InputMaker
from tasks.extras.audit.layout import Block, Layout, Line, Lists, Row, Table, lines_of
from tasks.extras.audit.statement import read_statement
from tasks.extras.audit.written_format import written_layout
from tasks.problems.problem import Problem
from tests.tasks.audit.conftest import PROBLEM, RIGHT

SUM = """Add numbers.

Constraints

- $1 \\leq N \\leq 5$
- $0 \\le A_i \\le 2 \\times 10^{9}$

Input

Input is given in the following format:

> $N$
>
> $A_1$ $A_2$ $\\ldots$ $A_N$

Output

Their sum.
"""


LISTS = (Line((0,)), Lists(1, 2, 0))
APART = (Line((0,)), Lists(1, 2, 0, apart=True), Line((3,)))


def problem(statement: str, *tests: str) -> Problem:
    public = tuple(TestCase(text, "0\n") for text in tests)
    return replace(PROBLEM, statement=statement, public_tests=public, hidden_tests=())


def made(one: Problem, count: int = 200, programs: Sequence[str] = (), seed: int = 0) -> list[str]:
    return list(InputMaker(one, programs, seed).make(count, [test.input for test in one.tests]))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("n (1 <= n <= 10)", {"1<=n", "n<=10"}),
        ("$1 \\leq a, b \\lt 10^{3}$", {"1<=a,b", "a,b<10^3"}),
        ("0 ≤ x_i ≤ 1,000", {"0<=x_i", "x_i<=1000"}),
        ("1 &lt;= k &lt; n, 2 &lt;= n &lt;= 8", {"1<=k", "k<n", "2<=n", "n<=8"}),
        ("$K$ is an integer between $2$ and $9$.", {"2<=K", "K<=9"}),
        ("$S$ is a string of length between $1$ and $7$.", {"1<=|S|", "|S|<=7", "1<=|*|", "|*|<=7"}),
        ("$S$ is a string of length $N$.", {"N<=|S|", "|S|<=N"}),
        ("The length of $S$ is between $1$ and $10$, inclusive.", {"1<=|S|", "|S|<=10"}),
        ("The lengths of $S$ and $T$ are equal.", {"|S|<=|T|", "|T|<=|S|"}),
        ("$S$ and $T$ have the same length.", {"|S|<=|T|", "|T|<=|S|"}),
        ("$1\\leq A_{i,j}\\leq 9$", {"1<=A_{i,j}", "A_{i,j}<=9"}),
        ("No numbers here.", set()),
    ],
)
def test_comparisons_are_read_from_prose_and_formulas(text: str, expected: set[str]) -> None:
    found = {",".join(c.left) + c.sign + ",".join(c.right) for c in read_statement(text).comparisons}
    assert found == expected


@pytest.mark.parametrize(
    "lines, parts, names",
    [
        (["N M"], (Line((0, 1)),), ["N", "M"]),
        (["N", "A_1 A_2 ... A_N"], (Line((0,)), Row(1, 0)), ["N", "A"]),
        (["N", "A_1 ... A_{N-1}"], (Line((0,)), Row(1, 0, -1)), ["N", "A"]),
        (["M", "X_1 Y_1", ":", "X_M Y_M"], (Line((0,)), Block((1, 2), 0)), ["M", "X", "Y"]),
        (["S_1 S_2 ... S_3"], (Line((0, 1, 2)),), ["S", "S", "S"]),
        (["A_{1,1} ... A_{1,2}", ":", "A_{2,1} ... A_{2,2}"], (Line((0, 1)), Line((2, 3))), ["A"] * 4),
        (["H W", "A_{1,1} ... A_{1,W}", ":", "A_{H,1} ... A_{H,W}"], (Line((0, 1)), Table(2, 0, 1)), ["H", "W", "A"]),
        (["A_{1,1} ... A_{1,W}", ":", "A_{H,1} ... A_{H,W}"], None, []),
        (["N", "L_1 a_{1,1} ... a_{1,L_1}", ":", "L_N a_{N,1} ... a_{N,L_N}"], LISTS, ["N", "L", "a"]),
        (["N", "C_1", "a_{1,1} ... a_{1,C_1}", "C_2", ":", "C_N", "X"], APART, ["N", "C", "a", "X"]),
        (["L_1 a_{1,1} ... a_{1,L_1}", ":", "L_N a_{N,1} ... a_{N,L_N}"], None, []),
    ],
)
def test_formats_are_read_as_layouts_or_not_at_all(lines: list[str], parts: Any, names: list[str]) -> None:
    layout, found = written_layout(lines)
    assert (None if layout is None else layout.parts, found) == (parts, names)


def test_what_counts_what_is_inferred_from_tests() -> None:
    inputs = [lines_of(text) for text in ("2 3\n5 6\n1 2\n3 4\n5 6\n", "1 1\n9\n7 8\n", "3 0\n1 2 3\n")]
    assert infer(inputs) == Layout((Line((0, 1)), Row(2, 0), Block((3, 4), 1)), 5)
    texts = ("2 3\n1 2 3\n4 5 6\n7 8\n", "1 2\n5 6\n7 8\n", "3 1\n1\n2\n3\n7 8\n")
    assert infer([lines_of(text) for text in texts]) == Layout((Line((0, 1)), Table(2, 0, 1), Line((3, 4))), 5)
    texts = ("2\n1 5\n2 5 5\n", "1\n3 9 9 9\n", "2\n0\n1 7\n")
    assert infer([lines_of(text) for text in texts]) == Layout(LISTS, 3)
    texts = ("2\n1\n5\n2\n5 5\n8\n", "1\n3\n9 9 9\n8\n", "3\n3\n5 1 2\n1\n7\n1\n0\n8\n")
    assert infer([lines_of(text) for text in texts]) == Layout(APART, 4)


@pytest.mark.parametrize("parts", [LISTS, APART, (Line((0, 1)), Table(2, 0, 1), Line((3, 4)))])
def test_what_a_layout_renders_it_parses(parts: Any) -> None:
    layout = Layout(parts, sum(len(part.roles) for part in parts))
    lists = [["3"], ["2", "0", "1"], ["7", "8", "9"], ["4"]][: layout.roles]
    document = lists if layout.roles < 5 else [["2"], ["3"], list("abcdef"), ["x"], ["y"]]
    lines = layout.render(document).rstrip("\n").split("\n")
    assert layout.parse([line.split() for line in lines]) == document
    assert layout.parse([line.split() for line in lines[:-1]]) is None
    assert layout.parse([*[line.split() for line in lines], ["1"]]) is None


def test_lists_and_tables_keep_what_their_numbers_say() -> None:
    statement = (
        "Constraints\n\n- $1 \\leq N, L_i \\leq 4$\n- $0 \\leq a_{i,j} \\leq 99$\n\nInput\n\nFormat:\n\n> $N$\n>\n"
    )
    statement += (
        "> $L_1$ $a_{1,1}$ $\\dots$ $a_{1,L_1}$\n>\n> $\\vdots$\n>\n> $L_N$ $a_{N,1}$ $\\dots$ $a_{N,L_N}$\n\nOutput\n"
    )
    for text in made(problem(statement, "2\n1 5\n2 12 1\n", "1\n3 9 9 9\n")):
        (count,), *lists = [[int(token) for token in line.split()] for line in text.splitlines()]
        assert 1 <= count == len(lists) <= 4
        assert all(1 <= size == len(tokens) <= 4 for size, *tokens in lists)
        assert all(0 <= token <= 99 for _, *tokens in lists for token in tokens)
    grids = made(problem("Grids.", "2 3\n1 2 3\n4 5 6\n", "1 2\n5 6\n", "3 1\n1\n2\n3\n"))
    for text in grids:
        (rows, columns), *lines = [list(map(int, line.split())) for line in text.splitlines()]
        assert len(lines) == rows
        assert {len(line) for line in lines} <= {columns}


def test_a_line_becomes_another_one_that_reads_the_same_without_blanks() -> None:
    document, rng = [["3"], ["2", "2", "1"], ["1", "12", "3", "4", "5"]], random.Random(0)
    found = [respaced(Layout(LISTS, 3), document, rng) for _ in range(50)]
    assert [["3"], ["2", "2", "1"], ["1", "12", "11", "2", "5"]] in found
    assert [["3"], ["2", "2", "2"], ["3", "43", "3", "4", "34", "3"]] not in found
    lines = [Layout(LISTS, 3).render(one).splitlines()[1:] for one in found]
    assert all(len({line.replace(" ", "") for line in one}) < len(set(one)) for one in lines)
    pairs = Layout((Line((0,)), Block((1, 2), 0)), 3)
    assert [["2"], ["1", "11"], ["12", "2"]] in [
        respaced(pairs, [["2"], ["1", "7"], ["12", "8"]], rng) for _ in range(50)
    ]
    assert respaced(pairs, [["1"], ["1"], ["12"]], rng) == [["1"], ["1"], ["12"]]


def test_inputs_keep_bounds_and_lengths_and_reach_both_ends() -> None:
    texts = made(problem(SUM, "3\n1 2 3\n", "1\n0\n"), 300)
    counts: set[int] = set()
    for text in texts:
        first, *numbers = map(int, text.split())
        assert first == len(numbers) <= 5
        assert all(0 <= number <= 2 * 10**9 for number in numbers)
        counts.add(first)
    assert counts == {1, 2, 3, 4, 5}
    assert {0, 2 * 10**9} <= {int(token) for text in texts for token in text.split()[1:]}


def test_numbers_of_thousands_of_digits_are_texts() -> None:
    """Python refuses to read them, and they are no counts."""
    assert made(problem(SUM, f"{'9' * 4400}\n1 2\n", "1\n7\n"))


def test_few_possible_inputs_are_all_made_once_and_tests_not_again() -> None:
    texts = made(problem("Given a and b (1 <= a < b <= 5).\n\nFormat:\n\n> a b\n", "1 2\n", "3 5\n"))
    assert len(texts) == len(set(texts)) == 8
    assert all(int(a) < int(b) for a, b in map(str.split, texts))


def test_the_same_seed_makes_the_same_inputs_and_another_one_others() -> None:
    one = problem(SUM, "3\n1 2 3\n", "1\n0\n")
    assert made(one, 50) == made(one, 50) != made(one, 50, seed=1)


def test_what_programs_treat_as_special_is_tried() -> None:
    one = problem("Given N (0 <= N <= 10^12).\n\nFormat:\n\n> N\n", "3\n", "4\n")
    program = "n = int(input())\nprint(n == 123456789012)"
    assert "123456789012\n" in made(one, 60, [program])
    assert "123456789012\n" not in made(one, 60, [RIGHT])


def test_texts_are_spelled_like_the_tests() -> None:
    statement = "A name: an uppercase letter, then lowercase letters.\n\nFormat:\n\n> S\n"
    texts = made(problem(statement, "Anna\n", "Bo\n"), 100)
    assert len(texts) > 50
    assert all(text[0].isupper() and text[1:].strip().islower() for text in texts if len(text) > 2)


def test_letters_that_a_statement_names_one_by_one_are_all_tried() -> None:
    statement = (
        "Constraints\n\n- $S$ is a string of length 2 of `A`, `B` and `?`.\n\nInput\n\nFormat:\n\n> $S$\n\nOutput\n"
    )
    assert {text.strip() for text in made(problem(statement, "A?\n", "?B\n"))} == {
        a + b for a in "AB?" for b in "AB?"
    } - {"A?", "?B"}


def test_what_is_not_equal_is_not_made_equal() -> None:
    words = "Constraints\n\n- $1 \\leq A,B,C \\leq 3$\n- $A \\neq B$\n- Not all of $A$, $B$, and $C$ are the same.\n"
    statement = words + "\nInput\n\nFormat:\n\n> $A$ $B$ $C$\n\nOutput\n"
    found = {tuple(text.split()) for text in made(problem(statement, "1 2 3\n"))}
    assert len(found) == 3 * 2 * 3 - 1
    assert all(a != b for a, b, _ in found)
    statement = statement.replace("- $A \\neq B$\n", "")
    found = {tuple(text.split()) for text in made(problem(statement, "1 2 3\n"))}
    assert len(found) == 27 - 3 - 1


def test_the_largest_inputs_are_among_the_first() -> None:
    first = [text.split() for text in made(problem(SUM, "3\n1 2 3\n", "1\n5\n"), count=12)]
    largest = [numbers[1:] for numbers in first if numbers[0] == "5"]
    assert ["0"] * 5 in largest
    assert ["2000000000"] * 5 in largest
    assert ["0", "1", "2", "3", "4"] in largest


def test_numbers_of_one_line_meet_each_other() -> None:
    statement = "Constraints\n\n- $1 \\leq A,B \\leq 10^9$\n\nInput\n\nFormat:\n\n> $A$ $B$\n\nOutput\n"
    pairs = [text.split() for text in made(problem(statement, "123456 7\n", "99999 4242\n"))]
    apart = [int(a) - int(b) for a, b in pairs if int(a) > 5000]
    assert {-1, 0, 1} <= set(apart)


def test_lines_and_columns_of_a_grid_are_exchanged_and_texts_moved() -> None:
    layout, rng = Layout((Line((0, 1)), Line((2, 3)), Line((4,))), 5), random.Random(0)
    found = {tuple(one[0] for one in exchanged(layout, [["a"], ["b"], ["c"], ["d"], ["e"]], rng)) for _ in range(50)}
    assert found == {("c", "d", "a", "b", "e"), ("b", "a", "d", "c", "e"), ("a", "b", "c", "d", "e")}
    moved = {shifted("azAZ09", rng) for _ in range(200)}
    assert len(moved) == 25
    assert "baBA10" in moved


def test_lengths_that_all_tests_share_are_kept_and_texts_are_edited_where_they_are_free() -> None:
    fixed = made(problem("Words.", *(f"{word}\n" for word in ("ab", "ba", "cc", "bc", "ca"))))
    assert {len(text.strip()) for text in fixed} == {2}
    equal = made(problem("Words.", "ab\nba\n", "abc\nabd\n", "a\nb\n", "abcd\nbbbb\n"))
    assert equal
    assert all(len(first) == len(second) for first, second in (text.split() for text in equal))
    lettered = (
        "Constraints\n\n- $S$ consists of uppercase letters and digits.\n- The length of $S$ is between 1 and 10.\n"
    )
    free = made(problem(lettered + "\nInput\n\nFormat:\n\n> $S$\n\nOutput\n", "Q142857Z\n", "X900000\n"))
    assert any(re.fullmatch(r"[A-Z]\d{7}[A-Z]", text.strip()) for text in free)
    assert "Q0142857Z\n" in free


def test_texts_are_made_of_one_another_and_numbers_stay_their_lengths() -> None:
    statement = """Constraints

- $1 \\leq N \\leq M \\leq 20$
- $S$ is a string of length $N$ consisting of lowercase English letters.
- $T$ is a string of length $M$ consisting of lowercase English letters.

Input

Format:

> $N$ $M$
>
> $S$
>
> $T$
"""
    texts = made(problem(statement, "2 4\nab\nabcd\n", "1 1\nx\ny\n", "1 2\nq\nqr\n"), 300)
    found = [text.split() for text in texts]
    assert all((int(n), int(m)) == (len(s), len(t)) and len(s) <= len(t) for n, m, s, t in found)
    assert any(s != t and t.startswith(s) and t.endswith(s) for _, _, s, t in found)


def test_inputs_without_a_known_layout_keep_their_lines_and_numbers_in_bounds() -> None:
    texts = made(problem("Runs.", "2\n1 5\n2 5 5\n", "1\n3 9 9\n", "2\n0\n1 7\n"), 20)
    assert texts
    assert all(0 <= int(token) <= 9 for text in texts for token in text.split())


def test_calls_are_found_in_tests_and_changed_in_their_shape() -> None:
    one = replace(
        PROBLEM, style="function", entry_point="f", public_tests=(),
        hidden_tests=(TestCase("assert f([1, 2], 'ab') == 3"), TestCase("def check(c):\n    pass\nassert f([], 'x')")),
    )  # fmt: skip
    assert known_arguments(one) == [([1, 2], "ab"), ([], "x")]
    texts = list(CallMaker(one, [], 0).make(40, []))
    assert len(set(texts)) == 40 == len(texts)
    assert texts == list(CallMaker(one, [], 0).make(40, []))
    for numbers, word in map(eval, texts):
        assert isinstance(word, str)
        assert all(isinstance(number, int) and number >= 0 for number in numbers)


def test_values_are_compared_as_asserts_do_and_written_as_asserts() -> None:
    assert same_answers([1, (2.0, {"a": 3})], [1, (2.0000000001, {"a": 3})])
    assert not same_answers([1], (1,))
    assert not same_answers(1.0, 1.1)
    assert as_test("f", "(1,)", [2]) == "assert f(*(1,)) == [2]\n"
    assert as_test("f", "(1,)", 0.5) == "assert abs(f(*(1,)) - 0.5) <= 1e-06 * max(1, abs(0.5))\n"
    assert as_test("f", "(1,)", [0.5]) == as_test("f", "(1,)", UNKNOWN) == ""
    assert answer_in("noise\n\x1eaudit [1]\n") == [1]
    assert answer_in("noise") is answer_in("\x1eaudit <object>") is UNKNOWN
