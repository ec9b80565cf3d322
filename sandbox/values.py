"""Python values as JSON: what crosses between a program and its asserts.

Part of what runs inside. Numbers, text, built-in containers, values of the standard library's small types and built-in
functions cross as themselves; subclasses as their base, iterators as their items. A function of the test code crosses
by its code. Any other object stays with the program and crosses as a number by which the asserts can call it, ask for
its attributes or hand it back; so no object with methods of the program's own ever meets an assert.
"""

from __future__ import annotations

import array
import builtins
import collections
import datetime
import decimal
import fractions
import importlib
import itertools
import types
from typing import Any

MOST_ITEMS = 100_000
LONGEST_RANGE = 10_000_000
EXACT_FLOAT = 1 << 53
FUNCTION_MODULES = (
    "builtins", "math", "cmath", "operator", "_operator", "string", "itertools", "functools", "_functools",
    "statistics", "collections", "decimal", "fractions", "datetime",
)  # fmt: skip
"""Modules whose functions and types cross by name."""
KEPT_BACK = {
    "open", "eval", "exec", "compile", "input", "breakpoint", "exit", "quit", "__import__", "__build_class__",
    "getattr", "setattr", "delattr", "globals", "locals", "vars", "dir", "help", "super",
}  # fmt: skip
PLAIN = (bool, int, float, complex, str, bytes)
"""What NumPy's scalars stand for."""
CHANGEABLE = (list, dict, set, bytearray, collections.deque, array.array)


class NotCarried(Exception):
    """A value of the test code cannot be given to a program; the message says which."""


class Carrier:
    """Both directions for plain values; subclasses say what becomes of the others."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[Any, list[Any], int]] = {}
        """Changeable containers of the values being encoded, by identity: kept alive, with their form and label."""
        self._shared: dict[Any, Any] = {}
        """Containers of the values being decoded, by label."""
        self.tied = False
        """Whether the values encoded last held a container more than once."""

    def encode_all(self, *values: Any) -> list[Any]:
        """Forms of values that belong together: a list that stands in them twice is one on the other side, too."""
        outer, self._met = self._met, {}  # items of an iterator of the test code may be calls themselves
        try:
            forms = [self.encode(value) for value in values]
            self.tied = any(form[0] == "&" for _, form, _ in self._met.values())
            return forms
        finally:
            self._met = outer

    def decode_all(self, *forms: Any) -> list[Any]:
        """The values of forms made by one `encode_all`; errors as of `decode`."""
        outer, self._shared = self._shared, {}  # to put an object into a set may be a call itself
        try:
            return [self.decode(form) for form in forms]
        finally:
            self._shared = outer

    def encode(self, value: Any) -> Any:
        """JSON form of a value: bare for None, bool, text and small integers, else [tag, ...]."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if isinstance(value, int):
            plain = int.__index__(value)
            return plain if -EXACT_FLOAT < plain < EXACT_FLOAT else ["i", f"{plain:x}"]
        return self.encode_changeable(value) if isinstance(value, CHANGEABLE) else self.encode_kind(value)

    def encode_changeable(self, value: Any) -> Any:
        """Form of a list or another changeable container; of one met before a reference, and that form gets a label."""
        if id(value) not in self._met:
            form = self.encode_kind(value)
            self._met[id(value)] = (value, form, len(self._met))
            return form
        _, form, label = self._met[id(value)]
        if form[0] != "&":
            form[:] = ["&", label, form[:]]
        return ["=", label]

    def encode_kind(self, value: Any) -> Any:
        """Form of a value by its type."""
        if type(value) is list:
            return ["l", [self.encode(item) for item in value]]
        for kinds, form in SIMPLE_FORMS:
            if isinstance(value, kinds):
                return form(value)
        return self.encode_container(value)

    def encode_container(self, value: Any) -> Any:
        """JSON form of a container, a type, a named function or an iterator."""
        if isinstance(value, dict):
            return self.encode_mapping(value)
        if isinstance(value, tuple) and type(value) is not tuple and is_named(value):
            names = [str(name) for name in type(value)._fields]  # pyright: ignore[reportAttributeAccessIssue]
            return ["n", type(value).__name__[:100], names, [self.encode(item) for item in tuple.__iter__(value)]]
        if isinstance(value, collections.deque):
            return ["q", [self.encode(item) for item in value], value.maxlen]
        for kind, tag in TAGS.items():
            if isinstance(value, kind):
                return [tag, [self.encode(item) for item in value]]
        if id(value) in TYPE_NAMES:
            return ["T", TYPE_NAMES[id(value)]]
        if name := function_name(value):
            return ["N", *name]
        if isinstance(value, range) and len(value) <= LONGEST_RANGE:
            return ["r", [self.encode(bound) for bound in (value.start, value.stop, value.step)]]
        if isinstance(value, slice):
            return ["s", [self.encode(bound) for bound in (value.start, value.stop, value.step)]]
        if is_iterator(value):
            return self.encode_iterator(value)
        return self.encode_other(value)

    def encode_iterator(self, value: Any) -> Any:
        """Form of an iterator: its items."""
        return ["g", [self.encode(item) for item in itertools.islice(value, MOST_ITEMS)]]

    def encode_mapping(self, value: dict[Any, Any]) -> Any:
        """JSON form of a dictionary or one of the standard library's kinds of it."""
        items = [[self.encode(k), self.encode(v)] for k, v in dict.items(value)]
        if isinstance(value, collections.defaultdict):
            factory = value.default_factory
            return ["dd", items, None if factory is None else self.encode(factory)]
        if isinstance(value, collections.Counter):
            return ["dc", items]
        return ["do" if isinstance(value, collections.OrderedDict) else "d", items]

    def decode(self, form: Any) -> Any:
        """The value of a JSON form; ValueError, TypeError or LookupError if it is none."""
        if not isinstance(form, list):
            return form
        tag, *rest = form
        if tag in ITEM_MAKERS:
            return ITEM_MAKERS[tag]([self.decode(item) for item in rest[0]])
        if tag in MAPPING_MAKERS:
            return MAPPING_MAKERS[tag]({self.decode(k): self.decode(v) for k, v in rest[0]})
        if tag == "dd":
            items = {self.decode(k): self.decode(v) for k, v in rest[0]}
            return collections.defaultdict(self.decode(rest[1]), items)
        if tag == "q":
            return collections.deque([self.decode(item) for item in rest[0]], rest[1])
        if tag == "n":
            make: Any = collections.namedtuple(rest[0], rest[1])  # pyright: ignore[reportUntypedNamedTuple]
            return make(*[self.decode(item) for item in rest[2]])
        if tag in SIMPLE_MAKERS:
            return SIMPLE_MAKERS[tag](*rest)
        if tag == "&":
            self._shared[rest[0]] = found = self.decode(rest[1])
            return found
        if tag == "=":
            return self._shared[rest[0]]
        return self.decode_other(tag, rest)

    def encode_other(self, value: Any) -> Any:
        """JSON form of what does not cross by value."""
        raise NotImplementedError

    def decode_other(self, tag: str, rest: list[Any]) -> Any:
        """What a form of the other side's `encode_other` stands for."""
        raise NotImplementedError


def is_iterator(value: Any) -> bool:
    """Whether its items are read one after another, and only once."""
    return hasattr(type(value), "__next__") and not hasattr(type(value), "__await__")


def is_named(value: Any) -> bool:
    """Whether a tuple is a named one: its class names as many fields as it has items."""
    names = getattr(type(value), "_fields", None)
    return isinstance(names, tuple) and len(names) == tuple.__len__(value) and all(isinstance(n, str) for n in names)


def function_name(value: Any) -> tuple[str, str] | None:
    """(module, name) under which both sides find this function of the standard library; None if there is none."""
    if not isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.FunctionType, type)):
        return None
    owner = getattr(value, "__objclass__", None)
    module = getattr(owner or value, "__module__", None) or ""
    name = getattr(value, "__qualname__", "")
    try:
        return (module, name) if find_function(module, name) is value else None
    except (LookupError, AttributeError):
        return None


def find_function(module: Any, name: Any) -> Any:
    """The function or type of this name; LookupError if none may cross under it."""
    first, _, last = str(name).partition(".")
    if module not in FUNCTION_MODULES or first in KEPT_BACK or last.startswith("_") or "." in last:
        raise LookupError(f"{module}.{name}")
    found = vars(importlib.import_module(module))[first]
    return vars(found)[last] if last else found


def date_form(value: Any) -> list[Any]:
    """Form of a date or time; of its time zone the offset."""
    if getattr(value, "tzinfo", None) is not None:
        offset = value.utcoffset()
        value = value.replace(tzinfo=None if offset is None else datetime.timezone(offset))
    kinds: tuple[Any, ...] = (datetime.datetime, datetime.date, datetime.time)
    kind = next(kind for kind in kinds if isinstance(value, kind))
    return ["dt", kind.__name__, kind.isoformat(value)]


def date_of(kind: str, text: str) -> Any:
    """The date or time of such a form."""
    return {"datetime": datetime.datetime, "date": datetime.date, "time": datetime.time}[kind].fromisoformat(text)


SIMPLE_FORMS: tuple[tuple[Any, Any], ...] = (
    (str, str.__str__),
    (float, lambda v: ["f", float.hex(v)]),
    (complex, lambda v: ["c", v.real.hex(), v.imag.hex()]),
    (bytes, lambda v: ["b", bytes(v).hex()]),
    (bytearray, lambda v: ["B", bytes(v).hex()]),
    (decimal.Decimal, lambda v: ["D", decimal.Decimal.__str__(v)]),
    (fractions.Fraction, lambda v: ["Q", f"{v.numerator:x}", f"{v.denominator:x}"]),
    ((datetime.date, datetime.time), date_form),
    (datetime.timedelta, lambda v: ["td", v.days, v.seconds, v.microseconds]),
    (array.array, lambda v: ["a", v.typecode, bytes(v).hex()]),
)
BUILTIN_TYPES = {name: kind for name, kind in vars(builtins).items() if isinstance(kind, type)}
TYPE_NAMES = {id(kind): name for name, kind in BUILTIN_TYPES.items()}
Keys, Values, Items = type({}.keys()), type({}.values()), type({}.items())
TAGS: dict[type[Any], str] = {list: "l", tuple: "t", set: "S", frozenset: "F", Keys: "k", Values: "v", Items: "m"}
ITEM_MAKERS: dict[str, Any] = {
    "l": list, "t": tuple, "S": set, "F": frozenset, "g": iter,
    "k": lambda items: dict.fromkeys(items).keys(),
    "v": lambda items: dict(enumerate(items)).values(),
    "m": lambda items: dict(items).items(),
    "r": lambda bounds: range(*bounds),
    "s": lambda bounds: slice(*bounds),
}  # fmt: skip
MAPPING_MAKERS: dict[str, Any] = {"d": dict, "dc": collections.Counter, "do": collections.OrderedDict}
SIMPLE_MAKERS: dict[str, Any] = {
    "i": lambda text: int(text, 16),
    "f": float.fromhex,
    "c": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "b": bytes.fromhex,
    "B": bytearray.fromhex,
    "D": decimal.Decimal,
    "Q": lambda over, under: fractions.Fraction(int(over, 16), int(under, 16)),
    "dt": date_of,
    "td": datetime.timedelta,
    "a": lambda code, text: array.array(code, bytes.fromhex(text)),  # pyright: ignore[reportDeprecated]
    "T": BUILTIN_TYPES.__getitem__,
    "N": find_function,
}
