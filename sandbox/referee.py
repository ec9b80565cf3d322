"""Runs asserts against recorded answers, in a sandbox of its own which no foreign program ever enters.

It is itself judged-program shaped: compiled and run by a runner, it reads one JSON object from standard input: the
trusted `setup` and `test` code, the `names` it may call, the `calls` made so far and their `answers`, both as text. It
prints one letter and a text: A, all asserts hold; F, one does not, and which; N, these calls need answers; E, the test
code itself is broken. Names under test become functions that look answers up, so an assert only ever sees plain values.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import sys
from typing import Any

from sandbox.values import decode, encode


class Unanswered(BaseException):
    """An answer is missing; the assert that wanted it is skipped for now."""


class FromProgram:
    """Mixed into exceptions that the program under test raised."""


class CallRecord:
    """Answers by call, and the calls in the order in which they were made."""

    def __init__(self, calls: list[Any], answers: list[Any]) -> None:
        self.known: dict[str, Any] = {}
        for call, answer in zip(calls, answers, strict=False):
            self.known[self.key(call)] = answer
        self.seen: dict[str, int] = {}
        self.made = list(calls)
        self.asked = {self.key(call) for call in calls}
        self.missing = self.withheld = False

    def key(self, call: list[Any]) -> str:
        """The call and how many equal ones came before it."""
        text = json.dumps(call[:3])
        return f"{call[3]}:{text}"

    def call(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Look the outcome up and let it happen: arguments changed, result returned or exception raised."""
        call = [name, encode(list(args)), encode(named), 0]
        text = json.dumps(call[:3])
        call[3] = self.seen.get(text, 0)
        self.seen[text] = call[3] + 1
        key = self.key(call)
        answer = self.known.get(key)
        if answer is None:
            self.missing = True
            self.withheld |= key in self.asked
            self.asked.add(key)
            self.made.append(call)
            raise Unanswered
        if "raised" in answer:
            raise exception_like(answer["raised"], answer["text"])
        for mine, theirs in zip(args, decode(answer["args"]), strict=True):
            copy_into(mine, theirs)
        return decode(answer["result"])


def copy_into(mine: Any, theirs: Any) -> None:
    """Make a mutable argument what the program made of it."""
    if type(mine) is not type(theirs):
        return
    if isinstance(mine, (list, bytearray)):
        mine[:] = theirs
    elif isinstance(mine, (dict, set)):
        mine.clear()
        mine.update(theirs)


def exception_like(name: str, text: str) -> BaseException:
    """An exception of the built-in type of this name, else a plain one."""
    if name in ("StopIteration", "StopAsyncIteration"):
        name = "RuntimeError"  # inside `map` or `zip` a test would take it for the end
    kind = getattr(builtins, name, None)
    base: type[Exception] = kind if isinstance(kind, type) and issubclass(kind, Exception) else Exception
    mixed: Any = type(base.__name__, (base, FromProgram), {})
    try:
        return mixed(text)
    except TypeError:
        return Exception(text)


class SkipUnanswered(ast.NodeTransformer):
    """Wraps each assert so that a missing answer skips it alone: one pass collects all calls."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        handler = ast.ExceptHandler(ast.Name("__Unanswered", ast.Load()), None, [ast.Pass()])
        return ast.Try([node], [handler], [], [])


def prepare(test: str, names: list[str], namespace: dict[str, Any]) -> tuple[Any, list[str]]:
    """Test code ready to run, and the names it calls that are under test."""
    tree = ast.parse(test)
    defines_check = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    calls_check = any(isinstance(n, ast.Expr) and "check(" in ast.unparse(n) for n in tree.body)
    if defines_check and not calls_check:
        tree.body += ast.parse("check(candidate)").body
    wanted = [*names, "candidate"] if names else under_test(tree, namespace)
    tree = ast.fix_missing_locations(SkipUnanswered().visit(tree))
    return compile(tree, "test.py", "exec"), wanted


def under_test(tree: ast.Module, namespace: dict[str, Any]) -> list[str]:
    """Names the test code uses without anybody defining them; modules among them are imported into the namespace.

    Where all names are known, the built-in functions it calls: the program has functions of these names.
    """
    nodes = list(ast.walk(tree))
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    bound |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    bound |= {(a.asname or a.name).split(".")[0] for n in nodes
              if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}  # fmt: skip
    unknown = {name for name in used - bound - set(namespace) if not hasattr(builtins, name)}
    modules = (unknown & sys.stdlib_module_names) - called
    namespace.update({name: importlib.import_module(name) for name in modules})
    return sorted(unknown - modules or called - bound - set(namespace))


def referee(request: dict[str, Any]) -> str:
    """The letter and text to print."""
    record = CallRecord(json.loads(request["calls"] or "[]"), json.loads(request["answers"] or "[]"))
    namespace: dict[str, Any] = {"__name__": "test", "__Unanswered": Unanswered}
    try:
        exec(request["setup"], namespace)
        code, wanted = prepare(request["test"], request["names"], namespace)
        for name in wanted:
            real = request["names"][0] if name == "candidate" and request["names"] else name
            namespace[name] = lambda *args, _name=real, **named: record.call(_name, args, named)
        exec(code, namespace)
    except Unanswered:
        pass
    except AssertionError as error:
        return f"Fassertion failed {str(error)[:200]}"
    except Exception as error:  # noqa: BLE001  whatever the test code raises
        broken = isinstance(error, (NameError, SyntaxError, ImportError)) and not isinstance(error, FromProgram)
        return f"{'E' if broken else 'F'}{type(error).__name__}: {str(error)[:200]}"
    if record.withheld:
        return "Fthe program left a call unanswered"
    return "N" + json.dumps(record.made) if record.missing else "A"


def main() -> None:
    """Read the request, print the ruling; what the test code prints may hold the program's words and goes elsewhere."""
    verdict, sys.stdout = sys.stdout, sys.stderr
    verdict.write(referee(json.loads(sys.stdin.buffer.read())))
    verdict.flush()
