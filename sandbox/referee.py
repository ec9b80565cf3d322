"""Runs asserts against recorded answers, in a sandbox of its own which no foreign program ever enters.

`main` is run as a program of its own for each ruling, by a runner that has imported this module. It reads one JSON
object from standard input: the trusted `setup` and `test` code, the `names` it may call, the `calls` made so far and
their `answers`, both as text. It prints one letter and a text: A, all asserts hold; F, one does not, and which; N,
these calls need answers; E, the test code itself is broken or cannot be judged, whatever the program. Names under test
become functions that look answers up, so an assert only ever sees plain values and stand-ins for objects.

A pass over the test code decides once its calls, from the first to the last, are those that were answered, in that
order: then it was plain Python. Whatever a pass leaves out, or does on answers given in another order, only finds calls
ahead of time. As the list is made anew by each pass, at least one call more of it is plain each time.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import marshal
import sys
import types
from collections.abc import Iterable
from typing import Any, TypeGuard

from sandbox.stand_ins import StandIn, Stream, UnderTest
from sandbox.values import CHANGEABLE, Carrier, NotCarried

SKIPPED = "__skipped__"
"""Name by which wrapped statements ask what they may end with."""


class Unanswered(BaseException):
    """An answer is missing; the statement that wanted it is skipped for now."""


class EndOfPass(BaseException):
    """Enough calls are found ahead of time; the pass ends here."""


class BrokenTest(Exception):
    """The test code cannot run, whatever the program answers."""


class TestSide(Carrier):
    """What the asserts give to the program and get from it."""

    def __init__(self, record: CallRecord) -> None:
        super().__init__()
        self._record = record
        self._stand_ins: dict[int, StandIn] = {}
        self._open: set[int] = set()

    def decode_other(self, tag: str, rest: list[Any]) -> Any:
        if tag == "G":
            return Stream(self._record, [self.decode(item) for item in rest[0]], int(rest[1]))
        if tag != "@":
            raise ValueError(f"a program's answer holds {tag!r}")
        number, kind = int(rest[0]), str(rest[1])
        return self._stand_ins.setdefault(number, StandIn(self._record, number, kind))

    def encode_iterator(self, value: Any) -> Any:
        if isinstance(value, Stream) and value.number is not None:
            return ["G", [self.encode(item) for item in value.items], value.number]
        return super().encode_iterator(value)

    def encode_other(self, value: Any) -> Any:
        if isinstance(value, StandIn):
            return ["@", value._number]
        if isinstance(value, UnderTest):
            return ["U", value._name]
        if isinstance(value, types.ModuleType):
            return ["M", value.__name__]
        if isinstance(value, types.FunctionType) and value.__module__ == "test":
            return self.encode_function(value)
        raise NotCarried(f"{value!r:.80}, a value of type {type(value).__name__!r}")

    def encode_function(self, function: types.FunctionType) -> Any:
        """Form of a function of the test code: its code, and what it uses from around itself."""
        if id(function) in self._open:
            raise NotCarried(f"{function.__qualname__}, which calls itself")
        self._open.add(id(function))
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        used = [name for name in sorted(names_in(function.__code__)) if name in function.__globals__]
        around = {name: function.__globals__[name] for name in used if name != "__builtins__"}
        if SKIPPED in around:
            around[SKIPPED] = tuple  # called, it is empty: in the program nothing is skipped
        for value in (*cells, *around.values()):
            if isinstance(value, CHANGEABLE):
                raise NotCarried(f"{function.__qualname__}, which uses a {type(value).__name__} from around itself")
        form = [
            "L", marshal.dumps(function.__code__).hex(), function.__name__, self.encode(function.__defaults__),
            self.encode(function.__kwdefaults__), [self.encode(value) for value in cells],
            [[name, self.encode(value)] for name, value in around.items()],
        ]  # fmt: skip
        self._open.discard(id(function))
        return form


def names_in(code: types.CodeType) -> set[str]:
    """Names a function and those inside it look up."""
    inner = [names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


class CallRecord:
    """Answers by call, and the calls of this pass in the order in which it makes them."""

    def __init__(self, calls: list[Any], answers: list[Any], ahead: int) -> None:
        """`ahead`: how many calls a pass finds, at most, behind the last one that is plain Python's."""
        self.asked = [self.key(call) for call in calls]
        self.known = dict(zip(self.asked, answers, strict=False))
        self.withheld = len(self.known) < len(self.asked)
        """Whether a call was not answered, although the program was asked."""
        self.ahead, self.beyond = ahead, 0
        self.seen: dict[str, int] = {}
        self.made: list[Any] = []
        self.side = TestSide(self)
        self.exceptions: dict[str, type[Exception]] = {}
        self.names: set[str] = set()

    @property
    def plain(self) -> bool:
        """Whether all calls so far were answered as they were made: the pass has done what plain Python does."""
        return not self.beyond

    def key(self, call: list[Any]) -> str:
        """The call and how many equal ones came before it."""
        text = json.dumps(call[:3])
        return f"{call[3]}:{text}"

    def call(self, target: list[Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Look the outcome up and let it happen: arguments changed, result returned or exception raised."""
        call = [target, *self.side.encode_all(list(args), named), 0]
        text = json.dumps(call[:3])
        call[3] = self.seen.get(text, 0)
        self.seen[text] = call[3] + 1
        key = self.key(call)
        if self.beyond or self.asked[len(self.made) : len(self.made) + 1] != [key]:
            self.beyond += 1
        if self.beyond <= self.ahead:
            self.made.append(call)
        if self.beyond >= self.ahead:
            raise EndOfPass
        answer = self.known.get(key)
        if answer is None and self.beyond and key not in self.known and target[0] == "name":
            answer = self.known.get(f"0:{text}")  # most likely what an equal call was answered; the next round tells
        if answer is None:
            self.withheld |= key in self.known
            raise Unanswered
        values = [*args, *named.values()]
        left = answer.get("args", [None] * len(values))
        changed = [(mine, form[0]) for mine, form in zip(values, left, strict=True) if form is not None]
        decoded = self.side.decode_all(*(form for _, form in changed))
        for (mine, _), theirs in zip(changed, decoded, strict=True):
            copy_into(mine, theirs)
        if "raised" in answer:
            raise self.exception_like(answer)
        return values[answer["same"]] if "same" in answer else self.side.decode_all(answer["result"])[0]

    def skipped(self) -> tuple[type[BaseException], ...]:
        """What a statement may end with and yet not end the pass, which goes on to find further calls."""
        return (Unanswered,) if self.plain else (Unanswered, AssertionError)

    def exception_like(self, answer: dict[str, Any]) -> BaseException:
        """An exception of the types that the test code can know, else a plain one."""
        kinds: list[Any] = [self.exceptions[name] for name in answer["raised"] if name in self.exceptions]
        for name in answer["raised"]:
            if name in ("StopIteration", "StopAsyncIteration") and name not in self.names:
                name = "RuntimeError"  # inside `map` or `zip` a test would take it for the end
            kind = getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, Exception):
                kinds.append(kind)
                break
        bases = tuple(kinds) or (Exception,)
        values = answer.get("values")
        given = [answer["text"]] if values is None else self.side.decode_all(*values)
        own = {"__str__": lambda _: answer["text"]} if answer.get("own") else {}
        try:
            return type(bases[0].__name__, bases, own)(*given)
        except TypeError:
            return Exception(answer["text"])


def copy_into(mine: Any, theirs: Any) -> None:
    """Make a mutable argument what the program made of it."""
    if type(mine) is not type(theirs):
        return
    if isinstance(mine, (list, bytearray)) or type(mine).__name__ == "array":
        mine[:] = theirs
    elif isinstance(mine, CHANGEABLE):
        kept: Any = mine
        kept.clear()
        (kept.extend if hasattr(kept, "extend") else kept.update)(theirs)


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


def prepare(test: str, names: list[str], namespace: dict[str, Any], record: CallRecord) -> tuple[Any, list[str]]:
    """Test code ready to run, and the names it calls that are under test."""
    tree = ast.parse(test)
    defines_check = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    used = used_names(ast.walk(tree))
    if defines_check and "check" not in used:
        tree.body += ast.parse("check(candidate)").body
    uncalled = [n.name for n in tree.body if is_test(n) and n.name not in used]
    tree.body += ast.parse("\n".join(f"{name}()" for name in uncalled)).body
    wanted = under_test(tree, names, namespace, record)
    tree = ast.fix_missing_locations(SkipUnanswered().visit(tree))
    return compile(tree, "test.py", "exec"), wanted


def is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef]:
    """Whether it is a function that pytest would call: `test_...` without parameters."""
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test") and not ast.unparse(node.args)


def under_test(tree: ast.Module, names: list[str], namespace: dict[str, Any], record: CallRecord) -> list[str]:
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
    bound |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)) and n.name}
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


def referee(request: dict[str, Any]) -> str:
    """The letter and text to print."""
    first = not request["calls"]
    answers = json.loads(request["answers"] or "[]")
    record = CallRecord(json.loads(request["calls"] or "[]"), answers, request["ahead"])
    namespace: dict[str, Any] = {"__name__": "test", SKIPPED: record.skipped}
    try:
        exec(request["setup"], namespace)
        code, wanted = prepare(request["test"], request["names"], namespace, record)
        for name in wanted:
            real = request["names"][0] if name == "candidate" and request["names"] else name
            namespace[name] = UnderTest(record, real)
        exec(code, namespace)
    except (Unanswered, EndOfPass):
        pass
    except NotCarried as error:
        if record.plain:
            return f"Eit gives the program {error}, which cannot be carried over"
    except BrokenTest as error:
        return f"E{error}"
    except SystemExit:
        if record.plain:  # the test ends itself; before that it may have done so for what was left out
            raise
    except Exception as error:  # noqa: BLE001  whatever the test code raises
        if record.plain:
            words = "assertion failed" if isinstance(error, AssertionError) else f"{type(error).__name__}:"
            return f"{'E' if first else 'F'}{words} {str(error)[:200]}"
    if record.withheld:
        return "Fthe program left a call unanswered"
    return "A" if record.plain else "N" + json.dumps(record.made)


def main() -> None:
    """Read the request, print the ruling; what the test code prints may hold the program's words and goes elsewhere."""
    verdict, sys.stdout = sys.stdout, sys.stderr
    verdict.write(referee(json.loads(sys.stdin.buffer.read())))
    verdict.flush()
