"""Calls of a program's functions answered in its own process: what becomes of objects that do not cross.

Part of what runs inside (values.py has what crosses, referee.py the asserts' side).
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import itertools
import json
import marshal
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

from sandbox.operators import applied, defined_by
from sandbox.values import CHANGEABLE, MOST_ITEMS, PLAIN, Carrier, is_iterator

FIRST_ITEMS = 8
"""So many items of an iterator cross at first."""
BUILTIN_NAMES = frozenset(name for name in dir(builtins) if not name.startswith("_"))


class ProgramSide(Carrier):
    """Keeps the objects that do not cross, and makes functions of the test code from their form."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        super().__init__()
        self.namespace = namespace
        self.kept: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.chunks: dict[int, int] = {}
        """How many items of an iterator were last given, by its number."""
        self._loop: Any = None

    def encode_other(self, value: Any) -> Any:
        numpy = sys.modules.get("numpy")  # its numbers cross by value, as whoever asserts compares them
        if numpy is not None and isinstance(value, numpy.generic) and isinstance(plain := value.item(), PLAIN):
            return self.encode(plain)
        kind = type(value)
        return ["@", self.number_of(value), kind.__name__[:100], defined_by(kind)]

    def number_of(self, value: Any) -> int:
        """The number under which it is kept."""
        number = self.numbers.setdefault(id(value), len(self.kept))
        if number == len(self.kept):
            self.kept.append(value)
        return number

    def encode_iterator(self, value: Any) -> Any:
        """Form of the next items, and a number to ask for further ones by, of which there are four times as many."""
        number, items = self.number_of(value), list[Any]()
        size = self.chunks[number] = min(4 * self.chunks.get(number, FIRST_ITEMS // 4), MOST_ITEMS)
        try:
            for item in itertools.islice(value, size):
                items.append(self.encode(item))
        except Exception as error:  # noqa: BLE001  who asks for the next item gets it
            number = self.number_of(error)
        else:
            if len(items) < size:
                return ["g", items]
        return ["G", items, number]

    def decode_other(self, tag: str, rest: list[Any]) -> Any:
        if tag == "@":
            return self.kept[rest[0]]
        if tag == "U":
            return self.named(rest[0])
        if tag == "G":
            return self.resumed([self.decode(item) for item in rest[0]], rest[1])
        if tag == "M":
            return importlib.import_module(rest[0])
        code, name, defaults, named_defaults, cells, names = rest
        positional, by_name = self.decode(defaults), self.decode(named_defaults)  # in the order of their encoding
        closure = tuple(types.CellType(self.decode(form)) for form in cells)
        space = {"__builtins__": builtins} | {key: self.decode(form) for key, form in names}
        made = types.FunctionType(marshal.loads(bytes.fromhex(code)), space, name, positional, closure or None)
        made.__kwdefaults__ = by_name
        return made

    def resumed(self, items: list[Any], number: int) -> Iterator[Any]:
        """Items that the asserts had got of an iterator of the program, and those that they had not."""
        yield from items
        yield from self.call(["next", number], [], {})

    def named(self, name: str) -> Any:
        """What the program gives this name. Raises NameError where it gives it nothing.

        Asserts of a function with a built-in name may call other built-in functions beside it.
        """
        if name in self.namespace:
            return self.namespace[name]
        if name in BUILTIN_NAMES and BUILTIN_NAMES & self.namespace.keys():
            return getattr(builtins, name)
        raise NameError(f"name {name!r} is not defined")

    def call(self, target: list[Any], args: list[Any], named: dict[str, Any]) -> Any:
        """What comes of a call of ["name", f] or ["object", number]; with a name behind these, their attribute.

        ["next", number] is the iterator itself, of which the next items cross, or raises what its next item raises.
        ["set", name or number, attribute] sets that; ["isinstance", name] and ["issubclass", name] say what these do;
        ["apply", name or number, method] is what Python's operator of this method does; ["await", number] awaits it.
        """
        kind, which, *attribute = target
        thing = self.named(which) if isinstance(which, str) else self.kept[which]
        if kind == "next":
            if isinstance(thing, Exception):
                raise thing
            return thing
        if kind == "apply":
            return applied(attribute[0], thing, args)
        if kind == "await":
            return self.awaited(thing)
        if kind == "set":
            return setattr(thing, attribute[0], args[0])
        if kind in ("isinstance", "issubclass"):
            return isinstance(args[0], thing) if kind == "isinstance" else issubclass(args[0], thing)
        return getattr(thing, attribute[0]) if attribute else thing(*args, **named)

    def awaited(self, thing: Any) -> Any:
        """What comes of a coroutine; all run in one event loop."""
        import asyncio

        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(thing)


def read_calls(data: bytes) -> list[Any]:
    """The calls that the asserts want: [target, arguments, named arguments, how many equal ones came before].

    A fifth item says that what the call prints goes with its answer.
    """
    return json.loads(data or b"[]")


def answer_calls(namespace: dict[str, Any], calls: list[Any], dumps: Any = json.dumps) -> bytes:
    """Each call's outcome in order: its result and the arguments it changed, or the exception's types.

    Arguments are counted through: those by position, then those by keyword. Where they share containers, either all of
    them come back or none.
    """
    side = ProgramSide(namespace)
    answers: list[dict[str, Any]] = []
    for target, given, named, _, *printing in calls:
        if printing:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                answer = answered(side, target, given, named)
            answers.append(answer | {"printed": printed.getvalue()})
        else:
            answers.append(answered(side, target, given, named))
    return dumps(answers).encode()


def answered(side: ProgramSide, target: list[Any], given: Any, named: Any) -> dict[str, Any]:
    """The outcome of one call."""
    try:
        args, keywords = side.decode_all(given, named)
        try:
            result = side.call(target, args, keywords)
        except Exception as error:  # noqa: BLE001  the program's own, an outcome like any other
            return raised(error, side) | left_anyway(side, (given, named), (args, keywords))
        same = [i for i, arg in enumerate([*args, *keywords.values()]) if arg is result]
        left = left_by(side, (given, named), (args, keywords))
        if same and isinstance(result, CHANGEABLE):
            return {"same": same[0], "args": left}
        return {"result": side.encode_all(result)[0], "args": left}
    except Exception as error:  # noqa: BLE001  of values that have no form
        return raised(error, side)


def raised(error: Exception, side: ProgramSide) -> dict[str, Any]:
    """An exception as an outcome; `own`: its class says itself what it reads as."""
    names = [kind.__name__[:100] for kind in type(error).__mro__[:20]]
    own = not isinstance(type(error).__str__, types.WrapperDescriptorType)
    return {"raised": names, "text": str(error)[:2000], "values": values_of(error, side), "own": own}


def left_by(side: ProgramSide, before: tuple[Any, Any], after: tuple[list[Any], dict[str, Any]]) -> list[Any]:
    """What a call has made of its arguments, see `changes`; not of iterators, which its result may still read."""
    args = [None if is_iterator(value) else value for value in after[0]]
    named = {name: None if is_iterator(value) else value for name, value in after[1].items()}
    return changes(before, side.encode_all(args, named), tied=side.tied)


def left_anyway(side: ProgramSide, before: tuple[Any, Any], after: tuple[Any, Any]) -> dict[str, Any]:
    """The same of a call that raised an exception; nothing where the arguments have no form."""
    try:
        return {"args": left_by(side, before, after)}
    except Exception:  # noqa: BLE001  whatever the program's objects do
        return {}


def changes(before: Sequence[Any], after: Sequence[Any], *, tied: bool) -> list[Any]:
    """[form] of each argument that a call has changed, None of the others; `tied`: of all if it has changed any.

    `before` and `after`: forms of the list of arguments by position and of the dictionary of those by keyword.
    """
    old, new = ([*args[1], *(form for _, form in named[1])] for args, named in (before, after))
    changed = [two is not None and one != two for one, two in zip(old, new, strict=True)]
    return [[form] if here or (tied and any(changed)) else None for here, form in zip(changed, new, strict=True)]


def values_of(error: Exception, side: ProgramSide) -> Any:
    """Form of an exception's arguments; None where they are long or cannot be had."""
    try:
        form = side.encode_all(*error.args[:10])
        return form if len(json.dumps(form)) < 2000 else None
    except Exception:  # noqa: BLE001  whatever the program's objects do
        return None
