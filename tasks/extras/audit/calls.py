"""Function-style problems: the calls that their tests make, programs that answer new ones, and new tests.

A program is made to read one tuple of arguments and print the value as Python writes it, so that outputs are compared
outside, like those of any other program. It is believed no more than those: what it prints can only make it disagree.
"""

from __future__ import annotations

import ast
import builtins
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tasks.extras.audit.inputs import constants_of
from tasks.problems.problem import Problem
from tasks.programs.identity import parse

MARK = "\x1eaudit "
"""Begins the last line that an answering program prints."""
DRIVER = """

def _audit_answer():
    import ast, sys
    value = {name}(*ast.literal_eval(sys.stdin.read()))
    if type(value).__name__ in ("generator", "map", "filter", "zip", "range", "dict_keys", "dict_values"):
        value = list(value)
    sys.stdout.write("\\n" + {mark!r} + repr(value) + "\\n")


_audit_answer()
"""
TOLERANCE = 1e-6
LONGEST_CALL = 10_000
METHOD = "Solution()."
"""Before the name of what is under test where that is a method."""
UNKNOWN = object()


def called_name(problem: Problem) -> str:
    """What is under test, as the tests call it: `f`, or `Solution().f` for a method; empty if nothing is found.

    That is the entry point, else the first that a test calls and nobody defines.
    """
    called = (name for test in problem.tests for node in _calls(test.input) if (name := _callee(node)))
    if problem.entry_point:
        method = METHOD + problem.entry_point
        return method if method in called else problem.entry_point
    return next((name for name in called if not hasattr(builtins, name)), "")


def answering(program: str, name: str) -> str:
    """The program with what reads arguments and prints the value of `name`."""
    return program + DRIVER.format(name=name, mark=MARK)


def known_arguments(problem: Problem) -> list[tuple[Any, ...]]:
    """The arguments of every call in the tests that are plain values."""
    names = _names_under_test(problem)
    found: dict[str, tuple[Any, ...]] = {}
    for test in problem.tests:
        for node in _calls(test.input):
            if _callee(node) in names and not node.keywords:
                try:
                    arguments = tuple(ast.literal_eval(argument) for argument in node.args)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    continue
                found[repr(arguments)] = arguments
    return list(found.values())


def compared_as_it_is(problem: Problem) -> bool:
    """Whether every call under test stands alone on one side of an assert, so that its very value decides.

    Elsewhere (`set(f(x)) == ...`, `assert f(x)`) different values may be right.
    """
    names = _names_under_test(problem)
    for test in problem.tests:
        tree = parse(test.input)
        if tree is None:
            return False
        asserts = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        alone = {id(side) for one in asserts for side in _compared(one)}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _callee(node) in names]
        if any(id(call) not in alone for call in calls):
            return False
    return True


def _compared(test: ast.expr) -> list[ast.expr]:
    """What an assert compares by value, also as a number close enough to another."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [side for part in test.values for side in _compared(part)]
    if isinstance(test, ast.Call) and ast.unparse(test.func) in ("math.isclose", "isclose"):
        return test.args
    if not isinstance(test, ast.Compare) or len(test.ops) > 1:
        return []
    if isinstance(test.ops[0], ast.Eq | ast.Is):
        return [test.left, *test.comparators]
    match test.left, test.ops[0]:
        case ast.Call(
            func=ast.Name(id="abs"), args=[ast.BinOp(left=one, op=ast.Sub(), right=other)]
        ), ast.Lt() | ast.LtE():
            return [one, other]
        case _:
            return []


def _names_under_test(problem: Problem) -> set[str]:
    return {name for name in (called_name(problem), "candidate") if name}


def _callee(call: ast.Call) -> str:
    """What is called, if it is a function or a method of a new `Solution()`; else empty."""
    match call.func:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Call(func=ast.Name(id="Solution"), args=[], keywords=[]), attr=name):
            return METHOD + name
        case _:
            return ""


def _calls(test: str) -> Iterator[ast.Call]:
    tree = parse(test)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call):
            yield node


class CallMaker:
    """Makes arguments for one problem, in the shape of those that its tests give."""

    def __init__(self, problem: Problem, programs: Sequence[str], seed: int) -> None:
        self._rng = random.Random(f"{seed} {problem.problem_id} {problem.suite_hash}")
        self._known = known_arguments(problem)
        self._numbers, self._texts = constants_of([*programs, problem.statement])
        self._negative = any(number < 0 for number in _numbers_in(self._known))

    def make(self, count: int, avoid: Sequence[str]) -> Iterator[str]:
        """Up to `count` different tuples of arguments as text, none of `avoid`."""
        seen = {*avoid, *map(repr, self._known)}
        if not self._known:
            return
        made = 0
        for _ in range(30 * count):
            arguments = list(self._rng.choice(self._known))
            for _ in range(self._rng.choice((1, 1, 2, 3))):
                if arguments:
                    place = self._rng.randrange(len(arguments))
                    arguments[place] = self.changed(arguments[place])
            text = repr(tuple(arguments))
            if text not in seen and len(text) <= LONGEST_CALL:
                seen.add(text)
                made += 1
                yield text
            if made == count:
                return

    def changed(self, value: Any) -> Any:
        """A value of the same shape: a number at a boundary, a shorter, longer or reordered text or list."""
        rng = self._rng
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            near = [0, 1, 2, value - 1, value + 1, 2 * value, rng.randint(0, 2 * abs(value) + 10), *self._numbers]
            return rng.choice([number for number in near if number >= 0 or self._negative])
        if isinstance(value, float):
            return rng.choice([0.0, 1.0, value / 2, value + 0.5, round(value), rng.uniform(0, 2 * abs(value) + 1)])
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list | tuple):
            return type(value)(self._items(list(value)))
        if isinstance(value, dict):
            kept = [(key, item) for key, item in value.items() if rng.random() < 0.8]
            return {key: self.changed(item) if rng.random() < 0.3 else item for key, item in kept}
        return value

    def _text(self, value: str) -> str:
        rng = self._rng
        letters = sorted({letter for text in _texts_in(self._known) for letter in text}) or ["a"]
        way = rng.randrange(7)
        if way == 0:
            return ""
        if way == 1 and value:
            start = rng.randrange(len(value))
            return value[start : start + rng.randint(1, len(value))]
        if way == 2:
            return value + rng.choice(letters)
        if way == 3:
            return value[::-1]
        if way == 4 and value:
            return rng.choice(value) * rng.randint(1, len(value))
        if way == 5 and self._texts:
            return rng.choice(self._texts)
        place = rng.randrange(len(value) + 1)
        return value[:place] + rng.choice(letters) + value[place + 1 :]

    def _items(self, items: list[Any]) -> list[Any]:
        rng = self._rng
        way = rng.randrange(8)
        if way == 0 or not items:
            return []
        if way == 1:
            return items[: rng.randint(1, len(items))]
        if way == 2:
            return [*items, rng.choice(items)]
        if way == 3:
            return rng.sample(items, len(items))
        if way == 4:
            return [items[0]] * len(items)
        if way == 5:
            return items[::-1]
        place = rng.randrange(len(items))
        return [self.changed(item) if position == place else item for position, item in enumerate(items)]


def answer_in(output: str) -> Any:
    """The value that an answering program printed; `UNKNOWN` when it is no plain one."""
    _, mark, text = output.rpartition(MARK)
    return value_of(text.strip()) if mark else UNKNOWN


def value_of(text: str) -> Any:
    """The plain value that Python writes as this text; `UNKNOWN` for anything else."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def same_answers(a: Any, b: Any) -> bool:
    """Whether two values are equal as asserts compare them, numbers that are not whole up to a millionth."""
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return numbers and (a == b or math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE))
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(map(same_answers, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_answers(a[key], b[key]) for key in a)
    return bool(a == b)


def as_test(name: str, arguments: str, answer: Any) -> str:
    """An assert for a call and its value, with a tolerance for a number that is not whole; empty for others."""
    call = f"{name}(*{arguments})"
    if answer is UNKNOWN:
        return ""
    if isinstance(answer, float):
        return f"assert abs({call} - {answer!r}) <= {TOLERANCE} * max(1, abs({answer!r}))\n"
    return "" if any(isinstance(part, float) for part in _parts(answer)) else f"assert {call} == {answer!r}\n"


def _parts(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _parts(key)
            yield from _parts(item)


def _numbers_in(values: Any) -> Iterator[float]:
    for part in _parts(values):
        if isinstance(part, int | float):
            yield part


def _texts_in(values: Any) -> Iterator[str]:
    for part in _parts(values):
        if isinstance(part, str):
            yield part
