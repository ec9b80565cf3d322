"""A task of the set `basics`: what its table says, and the programs and problems that come of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sandbox import Checker, Limits, TestCase
from tasks.problems.problem import Problem, Solution, Split, Style

PUBLIC_TESTS = 2

NOUNS = {
    "int": ("an integer {}", "integers"),
    "word": ("a word {}", "words"),
    "letter": ("a letter {}", "letters"),
    "text": ("a text {}", "texts"),
    "ints": ("a list of integers {}", "lists of integers"),
    "words": ("a list of {}", "lists"),
}
"""What a statement calls an argument of a type, and several of them."""

LINES = NOUNS | {
    "text": ("a line of text {}", "lines of text"),
    "ints": ("a line of integers {}", "lines of integers"),
    "words": ("a line of {}", "lines"),
}
"""The same where they are read."""

READERS = {
    "int": "int(input())",
    "word": "input()",
    "letter": "input()",
    "text": "input()",
    "ints": "[int(x) for x in input().split()]",
    "words": "input().split()",
}
"""The expression that reads an argument of a type from a line of its own."""


@dataclass(frozen=True)
class Task:
    """One task, asked in two styles. Code is a Python expression, or the body of a function with `return`."""

    name: str
    """Name of the function that is asked for."""
    family: str
    """Tasks of a kind; all of a family are in one split."""
    split: Split
    takes: tuple[tuple[str, str], ...]
    """Arguments and their types, e.g. (("s", "word"), ("n", "int"))."""
    gives: str
    """What is to be returned or printed, in English: "the sum of a and b"; a condition for yes-or-no tasks."""
    asks: bool
    """Whether it is a yes-or-no task: True or False is to be returned or printed."""
    difficulty: int
    """1: one operation; 2: a few in one expression; 3: a loop or several cases."""
    solutions: tuple[str, ...]
    wrong: tuple[str, ...]
    """Typical mistakes."""
    tests: tuple[str, ...]
    """As `arguments -> result`, both Python literals."""

    @cached_property
    def cases(self) -> list[tuple[tuple[Any, ...], Any]]:
        """Arguments and result of each test. Raises ValueError for what is no literal."""
        pairs = [text.split(" -> ") for text in self.tests]
        return [(ast.literal_eval(f"({given},)"), ast.literal_eval(result)) for given, result in pairs]

    @property
    def makes_list(self) -> bool:
        """Whether the result is a list."""
        return isinstance(self.cases[0][1], list)

    def statement(self, style: Style) -> str:
        """The task in English, e.g. "Read an integer n. Print n times two."."""
        if style == "stdin":
            result = f"{self.gives}, separated by spaces" if self.makes_list else self.gives
            read = f"Read {self._inputs(LINES)}{_lines(self.takes)}."
            return f"{read} Print True if {result}, otherwise False." if self.asks else f"{read} Print {result}."
        head = f"Write a function {self.name}({', '.join(self._names)}) that takes {self._inputs(NOUNS)} and returns"
        result = f"{self.gives}, as a list" if self.makes_list else self.gives
        return f"{head} True if {result}, otherwise False." if self.asks else f"{head} {result}."

    def program(self, code: str, style: Style) -> str:
        """A whole program of `code`: the function, or a program that reads its arguments and prints the result."""
        lines = code.strip("\n").split("\n") if "return" in code.split() else [f"return {code}"]
        function = [f"def {self.name}({', '.join(self._names)}):", *(f"    {line}" for line in lines)]
        if style == "function":
            return "\n".join(function)
        *before, last = lines
        if last.startswith("return ") and not any("return " in line for line in before):
            return "\n".join([*self._reading(), *before, self._printing(last.removeprefix("return "))])
        call = f"{self.name}({', '.join(self._names)})"
        return "\n".join([*function, "", *self._reading(), self._printing(call)])

    def problem(self, style: Style) -> Problem:
        """The task as a problem of one style, with its solutions."""
        tests = [self._test(style, given, result) for given, result in self.cases]
        return Problem(
            problem_id=f"basics/{self.name}/{style}",
            problem_set="basics",
            split=self.split,
            title=f"{self.family}: {self.name}",
            statement=self.statement(style),
            public_tests=tuple(tests[:PUBLIC_TESTS]),
            hidden_tests=tuple(tests[PUBLIC_TESTS:]),
            checker=Checker(kind="tokens", case_sensitive=True),
            limits=Limits(cpu_s=1.0, memory_bytes=256 << 20),
            style=style,
            entry_point=self.name if style == "function" else "",
            solutions=tuple(Solution(self.program(code, style), origin="basics") for code in self.solutions),
            source="basics",
            licence="Apache-2.0",
        )

    @property
    def _names(self) -> list[str]:
        return [name for name, _ in self.takes]

    def _inputs(self, nouns: dict[str, tuple[str, str]]) -> str:
        kinds = {kind for _, kind in self.takes}
        if len(self.takes) == 1 or len(kinds) > 1:
            return _and([nouns[kind][0].format(name) for name, kind in self.takes])
        return f"{('two', 'three')[len(self.takes) - 2]} {nouns[kinds.pop()][1]} {_and(self._names)}"

    def _reading(self) -> list[str]:
        if len(self.takes) > 1 and all(kind == "int" for _, kind in self.takes):
            return [f"{', '.join(self._names)} = map(int, input().split())"]
        return [f"{name} = {READERS[kind]}" for name, kind in self.takes]

    def _printing(self, result: str) -> str:
        return f"print(*{result})" if self.makes_list else f"print({result})"

    def _test(self, style: Style, given: Sequence[Any], result: Any) -> TestCase:
        if style == "function":
            return TestCase(f"assert {self.name}({', '.join(map(_literal, given))}) == {_literal(result)}\n", "")
        words = [_written(value) for value in given]
        together = len(given) > 1 and all(kind == "int" for _, kind in self.takes)
        return TestCase((" " if together else "\n").join(words) + "\n", _written(result) + "\n")


def _lines(takes: Sequence[tuple[str, str]]) -> str:
    if len(takes) == 1:
        return ""
    return " from one line" if all(kind == "int" for _, kind in takes) else ", each on its own line"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _written(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _literal(value: Any) -> str:
    """The value as Python source, text in double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
