"""Plain Python values as JSON, and calls of a program's functions: what crosses between a program and its asserts.

Part of what runs inside. Numbers, text, bytes, built-in containers and built-in types cross as themselves, subclasses
as their base, iterators as their items; anything else crosses as a mere name, equal to nothing. So no object with
methods of the program's own ever meets an assert.
"""

from __future__ import annotations

import builtins
import collections
import json
from typing import Any

MOST_ITEMS = 100_000
EXACT_FLOAT = 1 << 53


class Opaque:
    """Stands for a value that is not plain; equal to nothing but itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


def encode(value: Any) -> Any:
    """JSON form of a value: bare for None, bool, text and small integers, else [tag, ...]."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        plain = int.__index__(value)
        return plain if -EXACT_FLOAT < plain < EXACT_FLOAT else ["i", f"{plain:x}"]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return ["f", float.hex(value)]
    if isinstance(value, complex):
        return ["c", value.real.hex(), value.imag.hex()]
    if isinstance(value, (bytes, bytearray)):
        return ["b" if isinstance(value, bytes) else "B", bytes(value).hex()]
    return encode_container(value)


def encode_container(value: Any) -> Any:
    """JSON form of a container or of something that crosses by name only."""
    if isinstance(value, dict):
        return ["d", [[encode(k), encode(v)] for k, v in dict.items(value)]]
    if id(value) in TYPE_NAMES:
        return ["T", TYPE_NAMES[id(value)]]
    if isinstance(value, range):
        return ["r", [encode(bound) for bound in (value.start, value.stop, value.step)]]
    for kind, tag in TAGS.items():
        if isinstance(value, kind):
            return [tag, [encode(item) for item in value]]
    if hasattr(value, "__next__"):
        items: list[Any] = []
        for item in value:
            items.append(encode(item))
            if len(items) > MOST_ITEMS:
                break
        return ["g", items]
    return ["?", type(value).__name__[:100]]


BUILTIN_TYPES = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
TYPE_NAMES = {id(kind): name for name, kind in BUILTIN_TYPES.items()}
Keys, Values, Items = type({}.keys()), type({}.values()), type({}.items())
TAGS: dict[type[Any], str] = {
    list: "l", tuple: "t", set: "S", frozenset: "F", collections.deque: "q", Keys: "k", Values: "v", Items: "m",
}  # fmt: skip
MAKERS: dict[str, Any] = {
    "l": list, "t": tuple, "S": set, "F": frozenset, "q": collections.deque, "g": iter,
    "k": lambda items: dict.fromkeys(items).keys(),
    "v": lambda items: dict(enumerate(items)).values(),
    "m": lambda items: dict(items).items(),
    "r": lambda bounds: range(*bounds),
}  # fmt: skip


def decode(form: Any) -> Any:
    """The value of a JSON form."""
    if not isinstance(form, list):
        return form
    tag, *rest = form
    if tag in MAKERS:
        return MAKERS[tag]([decode(item) for item in rest[0]])
    if tag == "d":
        return {decode(k): decode(v) for k, v in rest[0]}
    if tag == "T":
        return BUILTIN_TYPES.get(rest[0], Opaque("type"))
    if tag == "i":
        return int(rest[0], 16)
    if tag == "f":
        return float.fromhex(rest[0])
    if tag == "c":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if tag in ("b", "B"):
        return bytes.fromhex(rest[0]) if tag == "b" else bytearray.fromhex(rest[0])
    return Opaque(str(rest[0]))


Call = tuple[str, list[Any], dict[str, Any]]


def read_calls(data: bytes) -> list[Call]:
    """(function, positional, named arguments) of each call."""
    return [(name, decode(args), decode(named)) for name, args, named, *_ in json.loads(data or b"[]")]


def answer_calls(namespace: dict[str, Any], calls: list[Call], dumps: Any = json.dumps) -> bytes:
    """Each call's outcome in order: its result and the arguments as it left them, or the exception's type."""
    answers: list[dict[str, Any]] = []
    for name, args, named in calls:
        try:
            result = namespace[name](*args, **named)
            answers.append({"result": encode(result), "args": encode(args)})
        except Exception as error:  # noqa: BLE001  the program's own, an outcome like any other
            answers.append({"raised": type(error).__name__[:100], "text": str(error)[:200]})
    return dumps(answers).encode()
