"""Worked examples of the few-shot template, by style. None of them is a problem of a built-in set.

Both styles show the same four tasks: a number, a list, a word and a condition. They are the same in every prompt, so
that an engine can compute their states once. Nine of them cost more, and no gain was seen (docs/guides/problems.md).
"""

from __future__ import annotations

from tasks.problems.problem import Style

EXAMPLES: dict[Style, tuple[tuple[str, str], ...]] = {
    "stdin": (
        (
            "Read an integer n. Print n minus seven.",
            "n = int(input())\nprint(n - 7)",
        ),
        (
            "Read a line of integers xs. Print half of each number of xs, rounded down, separated by spaces.",
            "xs = [int(x) for x in input().split()]\nprint(*[x // 2 for x in xs])",
        ),
        (
            "Read a word s. Print s between round brackets.",
            's = input()\nprint("(" + s + ")")',
        ),
        (
            "Read two integers a and b from one line. Print True if a is more than twice b, otherwise False.",
            "a, b = map(int, input().split())\nprint(a > 2 * b)",
        ),
    ),
    "function": (
        (
            "Write a function minus_seven(n) that takes an integer n and returns n minus seven.",
            "def minus_seven(n):\n    return n - 7",
        ),
        (
            "Write a function halve_all(xs) that takes a list of integers xs and returns half of each number of "
            "xs, rounded down, as a list.",
            "def halve_all(xs):\n    return [x // 2 for x in xs]",
        ),
        (
            "Write a function bracketed(s) that takes a word s and returns s between round brackets.",
            'def bracketed(s):\n    return "(" + s + ")"',
        ),
        (
            "Write a function more_than_twice(a, b) that takes two integers a and b and returns True if a is "
            "more than twice b, otherwise False.",
            "def more_than_twice(a, b):\n    return a > 2 * b",
        ),
    ),
}
"""A statement and a program for it."""
