"""A problem: a statement, tests, a checker, limits and known solutions.

Errors
------
ProblemError
    InvalidProblem (sources.py), UnknownTemplate (prompt.py)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from sandbox import Checker, Limits, Suite, TestCase
from tasks.errors import CodedError

Style = Literal["stdin", "function"]
Split = Literal["train", "evaluation"]
Row = dict[str, Any]


class ProblemError(CodedError):
    """Something is wrong with problems or prompts; the message says which one."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A known program for a problem, right or wrong."""

    program: str
    language: str = "python3"
    claimed: str = "accepted"
    """What its source says of it: `accepted`, `rejected` or a verdict."""
    verified: str | None = None
    """The verdict of somebody's execution, in the sandbox's words; None: not run."""
    origin: str = "human"


@dataclass(frozen=True)
class Problem:
    """One task with everything needed to show it and to judge programs for it."""

    problem_id: str
    problem_set: str
    split: Split
    title: str
    statement: str
    public_tests: tuple[TestCase, ...] = ()
    hidden_tests: tuple[TestCase, ...] = ()
    checker: Checker = field(default_factory=Checker)
    limits: Limits = field(default_factory=Limits)
    style: Style = "stdin"
    entry_point: str = ""
    solutions: tuple[Solution, ...] = ()
    source: str = ""
    licence: str = ""
    unjudgeable_reason: str | None = None
    """Why programs cannot be judged; None when they can."""
    every_test: bool = False
    """Judge failing programs by every test, for rewards that are shares of tests passed."""
    packages: tuple[str, ...] = ()
    """Packages that programs may import besides the standard library, as `name==version`."""
    prelude: str = ""
    """One line of Python before each program, as the set's own grader has it: names that programs need not import."""

    @property
    def tests(self) -> tuple[TestCase, ...]:
        """Public tests, then hidden ones: the order in which programs meet them."""
        return self.public_tests + self.hidden_tests

    @cached_property
    def suite_hash(self) -> str:
        """Identity of tests, checker, calling style, limits, packages, prelude, extent (32 hexadecimal digits)."""
        tests = [[test.input, test.expected] for test in self.tests]
        limits = [self.limits.cpu_s, self.limits.memory_bytes]
        extent: list[Any] = ["every test"] if self.every_test else []
        extent += [["packages", *self.packages]] if self.packages else []
        extent += [["prelude", self.prelude]] if self.prelude else []
        extent += [["output", self._output_bytes]] if self._output_bytes > Limits().output_bytes else []
        return _digest([tests, asdict(self.checker), self.style, self.entry_point, limits, *extent])

    @cached_property
    def _output_bytes(self) -> int:
        """Most bytes that a program may print: twice the longest expected output, and the default at least."""
        longest = max((len(test.expected.encode("utf-8", "surrogateescape")) for test in self.tests), default=0)
        return max(self.limits.output_bytes, 2 * longest)

    @cached_property
    def content_hash(self) -> str:
        """Identity of everything the problem says: its statement and its suite."""
        return _digest([self.title, self.statement, self.suite_hash])

    def suite(self, *, cpu_s: float | None = None, memory_bytes: int | None = None) -> Suite:
        """The sandbox's test suite; a given limit replaces the problem's own and changes the suite's identity."""
        limits = self.limits
        if cpu_s is not None:
            limits = replace(limits, cpu_s=cpu_s)
        if memory_bytes is not None:
            limits = replace(limits, memory_bytes=memory_bytes)
        changed = self if limits == self.limits else replace(self, limits=limits)
        return Suite(
            suite_id=changed.suite_hash,
            tests=self.tests,
            checker=self.checker,
            limits=replace(limits, output_bytes=self._output_bytes),
            style=self.style,
            entry_point=self.entry_point,
            prelude=self.prelude,
            every_test=self.every_test,
        )


def rows(problems: Iterable[Problem]) -> dict[str, list[Row]]:
    """`problems` as rows of the warehouse's tables `problems`, `tests` and `solutions`."""
    tables: dict[str, list[Row]] = {"problems": [], "tests": [], "solutions": []}
    for problem in problems:
        tables["problems"].append(_problem_row(problem))
        tables["tests"] += _test_rows(problem)
        tables["solutions"] += _solution_rows(problem)
    return tables


def problems_from_rows(
    problems: Sequence[Mapping[str, Any]],
    tests: Sequence[Mapping[str, Any]],
    solutions: Sequence[Mapping[str, Any]] = (),
) -> list[Problem]:
    """The problems that `rows` wrote, in the order of their rows; tests of other suites are left out."""
    tests_of: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in tests:
        tests_of.setdefault((row["problem_id"], row["suite_hash"]), []).append(row)
    solutions_of: dict[str, list[Mapping[str, Any]]] = {}
    for row in solutions:
        solutions_of.setdefault(row["problem_id"], []).append(row)
    keys = [(row["problem_id"], row["suite_hash"]) for row in problems]
    return [
        _from_row(row, tests_of.get(key, []), solutions_of.get(key[0], []))
        for row, key in zip(problems, keys, strict=True)
    ]


def solution_id(problem_id: str, solution: Solution) -> str:
    """Identity of a known solution: the problem, the language and the exact text."""
    return _digest([problem_id, solution.language, solution.program])


def _problem_row(problem: Problem) -> Row:
    return {
        "problem_id": problem.problem_id,
        "problem_set": problem.problem_set,
        "split": problem.split,
        "title": problem.title,
        "source": problem.source,
        "licence": problem.licence,
        "statement": problem.statement,
        "style": problem.style,
        "entry_point": problem.entry_point or None,
        "checker_json": json.dumps(asdict(problem.checker) | _extent(problem), sort_keys=True),
        "cpu_limit_s": problem.limits.cpu_s,
        "memory_limit_bytes": problem.limits.memory_bytes,
        "suite_hash": problem.suite_hash,
        "public_tests": [{"input": test.input, "output": test.expected} for test in problem.public_tests],
        "content_hash": problem.content_hash,
        "unjudgeable_reason": problem.unjudgeable_reason,
    }


def _extent(problem: Problem) -> dict[str, Any]:
    every = {"every_test": True} if problem.every_test else {}
    named = {"packages": list(problem.packages), "prelude": problem.prelude}
    return every | {name: value for name, value in named.items() if value}


def _test_rows(problem: Problem) -> list[Row]:
    return [
        {
            "problem_id": problem.problem_id,
            "suite_hash": problem.suite_hash,
            "position": position,
            "input": test.input,
            "expected": test.expected,
            "hidden": position >= len(problem.public_tests),
        }
        for position, test in enumerate(problem.tests)
    ]


def _solution_rows(problem: Problem) -> list[Row]:
    return [
        {
            "solution_id": solution_id(problem.problem_id, solution),
            "problem_id": problem.problem_id,
            "language": solution.language,
            "program": solution.program,
            "claimed": solution.claimed,
            "verified": solution.verified,
            "origin": solution.origin,
        }
        for solution in problem.solutions
    ]


def _from_row(
    row: Mapping[str, Any], tests: Sequence[Mapping[str, Any]], solutions: Sequence[Mapping[str, Any]]
) -> Problem:
    ordered = sorted(tests, key=lambda test: test["position"])
    checker = json.loads(row["checker_json"])
    every_test, packages = bool(checker.pop("every_test", False)), tuple(checker.pop("packages", ()))
    prelude = str(checker.pop("prelude", ""))
    return Problem(
        problem_id=row["problem_id"],
        problem_set=row["problem_set"],
        split=row["split"],
        title=row["title"],
        statement=row["statement"],
        public_tests=tuple(TestCase(test["input"], test["expected"]) for test in ordered if not test["hidden"]),
        hidden_tests=tuple(TestCase(test["input"], test["expected"]) for test in ordered if test["hidden"]),
        checker=Checker(**checker),
        limits=Limits(cpu_s=row["cpu_limit_s"], memory_bytes=row["memory_limit_bytes"]),
        style=row["style"],
        entry_point=row["entry_point"] or "",
        solutions=tuple(
            Solution(s["program"], s["language"], s["claimed"], s["verified"], s["origin"]) for s in solutions
        ),
        source=row["source"],
        licence=row["licence"],
        unjudgeable_reason=row["unjudgeable_reason"],
        every_test=every_test,
        packages=packages,
        prelude=prelude,
    )


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
