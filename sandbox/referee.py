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

import builtins
import json
import marshal
import sys
import types
from typing import Any

from sandbox.asserts import (
    RUN_CASES,
    RUN_COROUTINE,
    SKIPPED,
    BrokenTest,
    let_failures_through,
    prepare,
    run_cases,
    run_coroutine,
)
from sandbox.stand_ins import StandIn, Stream, UnderTest, stand_in_class
from sandbox.values import CHANGEABLE, Carrier, NotCarried


class Unanswered(BaseException):
    """An answer is missing; the statement that wanted it is skipped for now."""


class EndOfPass(BaseException):
    """Enough calls are found ahead of time; the pass ends here."""


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
        number = int(rest[0])
        if number not in self._stand_ins:
            kind = stand_in_class(str(rest[1]), tuple(str(method) for method in rest[2]))
            self._stand_ins[number] = kind(self._record, ["object", number])
        return self._stand_ins[number]

    def encode_iterator(self, value: Any) -> Any:
        if isinstance(value, Stream) and value.number is not None:
            return ["G", [self.encode(item) for item in value.items], value.number]
        return super().encode_iterator(value)

    def encode_other(self, value: Any) -> Any:
        if isinstance(value, StandIn):
            return ["@", value.__target__[1]]
        if isinstance(value, UnderTest):
            return ["U", value.__target__[1]]
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
        self.stdout = sys.stdout
        self.exceptions: dict[str, type[Exception]] = {}
        self.names: set[str] = set()

    @property
    def plain(self) -> bool:
        """Whether all calls so far were answered as they were made: the pass has done what plain Python does."""
        return not self.beyond

    def key(self, call: list[Any]) -> str:
        """The call and how many equal ones came before it."""
        return f"{call[3]}:{json.dumps([*call[:3], *call[4:]])}"

    def call(self, target: list[Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Look the outcome up and let it happen: arguments changed, result returned or exception raised."""
        call = [target, *self.side.encode_all(list(args), named), 0]
        if sys.stdout is not self.stdout:
            call.append("printing")  # the asserts are about to look at it
        text = json.dumps([*call[:3], *call[4:]])
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
        if printed := answer.get("printed"):
            sys.stdout.write(str(printed))
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
            if name == "StopIteration" and name not in self.names:
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


def referee(request: dict[str, Any]) -> str:
    """The letter and text to print."""
    first = not request["calls"]
    answers = json.loads(request["answers"] or "[]")
    record = CallRecord(json.loads(request["calls"] or "[]"), answers, request["ahead"])
    namespace: dict[str, Any] = {"__name__": "test", SKIPPED: record.skipped}
    namespace |= {RUN_CASES: run_cases, RUN_COROUTINE: run_coroutine}
    if "unittest" in request["setup"] + request["test"]:
        let_failures_through()
    try:
        exec(request["setup"], namespace)
        code, wanted = prepare(request["test"], request["names"], namespace, record)
        for name in wanted:
            real = request["names"][0] if name == "candidate" and request["names"] else name
            namespace[name] = UnderTest(record, ["name", real])
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
            return f"{'E' if first else 'F'}{words_of(error)}"
    if record.withheld:
        return "Fthe program left a call unanswered"
    return "A" if record.plain else "N" + json.dumps(record.made)


def words_of(error: Exception) -> str:
    """What ended the test code."""
    kind = "assertion failed" if isinstance(error, AssertionError) else f"{type(error).__name__}:"
    try:
        return f"{kind} {str(error)[:200]}"
    except BaseException:  # noqa: BLE001  it speaks of an object that the program would have to be asked about
        return kind


def main() -> None:
    """Read the request, print the ruling; what the test code prints may hold the program's words and goes elsewhere."""
    verdict, sys.stdout = sys.stdout, sys.stderr
    verdict.write(referee(json.loads(sys.stdin.buffer.read())))
    verdict.flush()
