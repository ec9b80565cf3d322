"""The project's own JSON Lines layout, described field by field in docs/guides/problems.md."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Sequence
from dataclasses import replace

from sandbox import Checker, Limits, TestCase
from tasks.problems.problem import Problem, Solution
from tasks.problems.records import Record
from tasks.programs.stubs import given_code

VERDICTS = {
    "AC": "accepted",
    "WA": "wrong_answer",
    "TLE": "time_limit",
    "MLE": "memory_limit",
    "OLE": "output_limit",
    "RTE": "runtime_error",
    "CE": "compile_error",
}
"""Short names of verdicts in problem files, in the sandbox's words."""

SPECIAL_JUDGE = "needs a special judge"
NO_TESTS = "no tests"
IMAGES = "statement has images"
SEVERAL_ANSWERS = "several answers may be right"
INTERACTIVE = "interactive"
FILES = "reads or writes files"


def read_problem(record: Record, problem_set: str) -> Problem:
    """The problem in one line; its split is `train` until sources.py decides. Raises InvalidProblem."""
    function = record.text("style", "stdin") == "function"
    hidden = function_tests(record) if function else _hidden_tests(record)
    problem = Problem(
        problem_id=record.text("problem_id"),
        problem_set=problem_set,
        split="train",
        title=record.text("title", record.text("problem_id")),
        statement=naming(record.text("statement"), record.texts("test_list")) if function else record.text("statement"),
        public_tests=tuple(
            TestCase(test.text("input"), test.text("output")) for test in record.records("public_tests")
        ),
        hidden_tests=hidden,
        checker=_checker(record.record("checker")),
        limits=limits(record.number("time_limit_s"), record.number("memory_limit_mb")),
        style="function" if function else "stdin",
        entry_point=record.text("entry_point", ""),
        solutions=tuple(_solution(solution) for solution in record.records("solutions")),
        source=record.text("source", ""),
        licence=record.text("license", ""),
        prelude=given_code(record.text("statement")) if function else "",
    )
    return replace(problem, unjudgeable_reason=_reason(record, problem))


_CALLED = re.compile(r"(\w+)\s*\(")
_NAMED = re.compile(r"(\w+)\(|\bdef\s+(\w+)|`(\w+)|\b(?:named|called)\s+['\"]?(\w+)")
"""Where a statement gives a name. A function may be called as a word of plain English is: `find`, `sequence`."""


def naming(statement: str, asserts: Sequence[str]) -> str:
    """The statement of a function problem, with its first assert where it names none of the functions called there."""
    first = asserts[0].strip() if asserts else ""
    called = set(_CALLED.findall(first)) - set(keyword.kwlist)
    called = called - set(dir(builtins)) or called  # asked for may be a function that Python has, too
    named = {name for found in _NAMED.findall(statement) for name in found}
    if not first.startswith("assert ") or not called or called & named or first in statement:
        return statement
    return f"{statement.rstrip()}\n\nThe function must pass this test:\n\n{first}\n"


def limits(time_s: float | None, memory_mb: float | None) -> Limits:
    """The limits of a problem; the sandbox's defaults stand in for those that the source does not give."""
    default = Limits()
    memory = default.memory_bytes if memory_mb is None else int(memory_mb * (1 << 20))
    return Limits(cpu_s=default.cpu_s if time_s is None else time_s, memory_bytes=memory)


def function_tests(record: Record) -> tuple[TestCase, ...]:
    """Assert statements as tests, each complete by itself.

    HumanEval's way: `test_code` and `test_call` make one test, with the helper functions that the statement defines.
    MBPP's way: each of `test_list` is one test, after `test_setup_code`.
    """
    if record.data.get("test_code") is not None:
        helpers = _helpers(record.text("statement"), record.text("entry_point", ""))
        return (TestCase(f"{helpers}{record.text('test_code')}\n{record.text('test_call')}\n", ""),)
    setup = record.text("test_setup_code", "")
    asserts = record.texts("test_list") + record.texts("challenge_test_list")
    return tuple(TestCase(f"{setup}\n{text}\n" if setup else f"{text}\n", "") for text in asserts)


def _helpers(statement: str, entry_point: str) -> str:
    """Functions and imports of a statement that is Python, without the function asked for; tests may call them."""
    try:
        body = ast.parse(statement).body
    except (SyntaxError, ValueError):
        return ""
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name != entry_point]
    if not functions:
        return ""
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(ast.unparse(node) for node in [*imports, *functions]) + "\n"


def _hidden_tests(record: Record) -> tuple[TestCase, ...]:
    inputs, outputs = record.texts("input_tests"), record.texts("output_tests")
    if len(inputs) != len(outputs):
        raise record.error("output_tests", f"has {len(outputs)} entries, but 'input_tests' has {len(inputs)}")
    return tuple(TestCase(text, expected) for text, expected in zip(inputs, outputs, strict=True))


def _checker(record: Record) -> Checker:
    kind = record.text("type", "kattis_default")
    tolerances = ("float_tolerance", "float_relative_tolerance", "float_absolute_tolerance")
    given = [record.number(name) or 0.0 for name in tolerances if record.data.get(name) is not None]
    if kind == "codecontests" or kind == "lines":
        return Checker(kind=kind)
    if kind != "exact" and record.flag("space_change_sensitive") and not record.flag("case_sensitive"):
        return Checker(kind="caseless")
    if kind == "exact" or record.flag("space_change_sensitive"):
        return Checker(kind="exact", case_sensitive=True)
    if kind in {"kattis_default", "tokens"}:
        tolerance = max(given) if given else None
        return Checker(kind="tokens", case_sensitive=record.flag("case_sensitive"), float_tolerance=tolerance)
    return Checker(kind="special", name=kind)


def _solution(record: Record) -> Solution:
    verified = record.text("verified", "")
    return Solution(
        program=record.text("code"),
        language=record.text("language", "python3"),
        claimed="accepted" if record.flag("correct", True) else "rejected",
        verified=VERDICTS.get(verified),
        origin=record.text("origin", "human"),
    )


def _reason(record: Record, problem: Problem) -> str | None:
    if problem.checker.kind == "special":
        return SPECIAL_JUDGE
    if not problem.tests:
        return NO_TESTS
    if record.flag("statement_has_image"):
        return IMAGES
    return SEVERAL_ANSWERS if record.flag("multi_answer_suspect") else None
