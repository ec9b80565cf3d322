"""Test code made ready for the referee: what of it is the program's, what runs it, and where a pass may leave out some.

Part of what runs inside, beside the asserts.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import sys
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import unittest

NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
SKIPPED = "__skipped__"
"""Name by which wrapped statements ask what they may end with."""
RUN_CASES, RUN_COROUTINE = "__run_cases__", "__run_coroutine__"
"""Names by which added statements run tests that nobody calls."""


class BrokenTest(Exception):
    """The test code cannot run, whatever the program answers."""


class Known(Protocol):
    """What the referee's record of calls has to know of the test code (`referee.CallRecord`)."""

    names: set[str]
    exceptions: dict[str, type[Exception]]


class SkipUnanswered(ast.NodeTransformer):
    """Wraps asserts, statements that only call something and bodies of `for`: a missing answer skips these alone.

    So one pass collects many calls. In a `while` loop only asserts are: a skipped step would keep it from ending.
    """

    looping = False
    depth = 0
    """Loops around; Python nests no more than 20 blocks."""

    def visit_While(self, node: ast.While) -> ast.AST:
        around, self.looping = self.looping, True
        self.generic_visit(node)
        self.looping = around
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.depth += 1
        self.generic_visit(node)
        if not self.looping and self.depth < 5:
            node.body = [skippable(*node.body)]
        self.depth -= 1
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return skippable(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if self.looping or not isinstance(node.value, ast.Call) else skippable(node)


def skippable(*body: ast.stmt) -> ast.Try:
    """The statements, which end well where they end with what `CallRecord.skipped` says at that moment."""
    kinds = ast.Call(ast.Name(SKIPPED, ast.Load()), [], [])
    return ast.Try(list(body), [ast.ExceptHandler(kinds, None, [ast.Pass()])], [], [])


def prepare(test: str, names: list[str], namespace: dict[str, Any], record: Known) -> tuple[Any, list[str]]:
    """Test code ready to run, and the names it calls that are under test."""
    tree = ast.parse(test)
    defines_check = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    used = used_names(ast.walk(tree))
    if defines_check and "check" not in used:
        tree.body += ast.parse("check(candidate)").body
    tree.body = [node for node in tree.body if not runs_all(node)]
    calls = [call for name, call in map(uncalled_test, tree.body) if name and name not in used]
    tree.body += ast.parse("\n".join(calls)).body
    wanted = under_test(tree, names, namespace, record)
    tree = ast.fix_missing_locations(SkipUnanswered().visit(tree))
    return compile(tree, "test.py", "exec"), wanted


def runs_all(node: ast.stmt) -> bool:
    """Whether it is `unittest.main()`, which would look for tests elsewhere and end the process."""
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("unittest.main(")


def uncalled_test(node: ast.stmt) -> tuple[str, str]:
    """Name of a test that the statement defines, and the code that runs it as pytest does; empty where it is none.

    That is a function `test...` without parameters, also a coroutine, or a class of `unittest`.
    """
    if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("TestCase") for base in node.bases):
        return node.name, f"{RUN_CASES}({node.name})"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
        call = f"{node.name}()"
        code = call if isinstance(node, ast.FunctionDef) else f"{RUN_COROUTINE}({call})"
        return ("", "") if ast.unparse(node.args) else (node.name, code)
    return "", ""


def run_cases(kind: type[unittest.TestCase]) -> None:
    """Run the methods of a class of `unittest`; raises what fails."""
    import unittest

    unittest.defaultTestLoader.loadTestsFromTestCase(kind).debug()


def run_coroutine(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a test that is a coroutine."""
    import asyncio

    asyncio.run(coroutine)


def let_failures_through() -> None:
    """Make `unittest` raise what its runners would count: to them an unanswered call is an error like any other."""
    import unittest

    whole = unittest.TestSuite.run

    def case(self: unittest.TestCase, result: Any = None) -> Any:
        self.debug()
        return result

    def suite(self: unittest.TestSuite, result: Any, debug: bool = False) -> Any:
        if debug:
            return whole(self, result, True)
        self.debug()
        return result

    unittest.TestCase.run = unittest.IsolatedAsyncioTestCase.run = case
    unittest.TestSuite.run = suite


def under_test(tree: ast.Module, names: list[str], namespace: dict[str, Any], record: Known) -> list[str]:
    """Names of the program that the test code uses: given ones, classes, and without given ones all nobody defines.

    Modules among the unknown names are imported into the namespace, unknown exceptions made. Where all names are known,
    the built-in functions it calls: the program has functions of these names. BrokenTest if others stay unknown.
    """
    nodes = list(ast.walk(tree))
    record.names = used_names(nodes)
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    known = bound_names(nodes) | set(namespace) | set(dir(builtins)) | {"__file__"}
    unknown = record.names - known
    refuse_what_runs_text(nodes)
    for name in caught_names(nodes) & unknown:
        namespace[name] = record.exceptions[name] = type(name, (Exception,), {})
    unknown -= set(record.exceptions)
    modules = (unknown & sys.stdlib_module_names) - called
    namespace.update({name: importlib.import_module(name) for name in modules})
    unknown -= modules
    if names and record.names & {*names, "candidate"}:
        unknown -= {*names, "candidate"}
        foreign = {name for name in unknown if not name[:1].isupper()}
        if foreign:
            raise BrokenTest(f"name {sorted(foreign)[0]!r} is not defined")
        return [*names, "candidate", *sorted(unknown)]
    return sorted(unknown or called - bound_names(nodes) - set(namespace))


def used_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that the code looks up."""
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def bound_names(nodes: list[ast.AST]) -> set[str]:
    """Names that the code itself gives a value to."""
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    bound |= {n.name for n in nodes if isinstance(n, NAMED) and n.name}
    bound |= {n.name for n in nodes if isinstance(n, (ast.MatchAs, ast.MatchStar)) and n.name}
    bound |= {n.rest for n in nodes if isinstance(n, ast.MatchMapping) and n.rest}
    imports = [n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom))]
    starred = [n.module for n in imports if isinstance(n, ast.ImportFrom) and n.names[0].name == "*" and n.module]
    bound |= {name for module in starred for name in dir(importlib.import_module(module))}
    return bound | {(a.asname or a.name).split(".")[0] for n in imports for a in n.names}


def caught_names(nodes: list[ast.AST]) -> set[str]:
    """Names of exceptions that the code catches, in `except` or as arguments of what stands behind `with`."""
    kinds = [n.type for n in nodes if isinstance(n, ast.ExceptHandler) and n.type is not None]
    behind_with = [n.context_expr for n in nodes if isinstance(n, ast.withitem)]
    for call in [node for node in behind_with if isinstance(node, ast.Call)]:
        if ast.unparse(call.func).lower().endswith(("raises", "raisesregex", "suppress")):
            kinds += call.args
    return {name.id for kind in kinds for name in ast.walk(kind) if isinstance(name, ast.Name)}


def refuse_what_runs_text(nodes: list[ast.AST]) -> None:
    """BrokenTest for test code that would run an answer, or that imports what is not there."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
            if node.func.id in ("eval", "exec", "compile", "__import__") and not constant:
                raise BrokenTest(f"it calls {node.func.id}, which would run an answer of the program")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if importlib.util.find_spec(alias.name.split(".")[0]) is None:
                    raise BrokenTest(f"it imports {alias.name!r}, which is not there")
