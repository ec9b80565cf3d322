"""What Python's operators and built-in functions ask of an object that stays in its program.

Part of what runs inside, on both sides: the program says which of these its object's class defines (`defined_by`), its
stand-in among the asserts gets just these (stand_ins.py), and the program applies them (`applied`).

Compared and combined are two objects of the program only. Where the other operand is a value of the asserts, it may be
what they expect, and an object that is asked about it could call everything equal.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from typing import Any

COMBINED = "add and floordiv lshift matmul mod mul or pow rshift sub truediv xor"
COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
WITH_ANOTHER: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in COMPARED},
    **{f"__{name}__": getattr(operator, f"__{name}__") for name in COMBINED.split()},
    **{f"__i{name}__": getattr(operator, f"__i{name}__") for name in COMBINED.split()},
}
"""Operators between two objects, by the name of their method; those from the right are `FROM_RIGHT`."""
FROM_RIGHT = {f"__r{name}__": f"__{name}__" for name in COMBINED.split()}
NOT_ASKED = ("__contains__",)
"""Methods that take what the asserts expect; without them Python would do something else instead."""


def raised_inside(kind: str | None) -> tuple[Any, Any, None]:
    """What `__exit__` is told of an exception of this built-in type, if any; its words stay with the asserts."""
    if kind is None:
        return None, None, None
    found = getattr(builtins, kind, Exception)
    try:
        return found, found(), None
    except TypeError:  # one that needs arguments
        return Exception, Exception(kind), None


ALONE: dict[str, Callable[..., Any]] = {
    "__len__": len, "__bool__": bool, "__iter__": iter, "__reversed__": reversed, "__hash__": hash,
    "__str__": str, "__repr__": repr, "__format__": format,
    "__int__": int, "__float__": float, "__complex__": complex, "__index__": operator.index,
    "__abs__": abs, "__neg__": operator.neg, "__pos__": operator.pos, "__invert__": operator.invert,
    "__round__": round,
    "__getitem__": operator.getitem, "__setitem__": operator.setitem, "__delitem__": operator.delitem,
    "__enter__": lambda manager: type(manager).__enter__(manager),
    "__exit__": lambda manager, kind: type(manager).__exit__(manager, *raised_inside(kind)),
    "__aenter__": lambda manager: type(manager).__aenter__(manager),
    "__aexit__": lambda manager, kind: type(manager).__aexit__(manager, *raised_inside(kind)),
    "__aiter__": aiter, "__anext__": lambda items: type(items).__anext__(items),
}  # fmt: skip
"""What is asked of one object, by the name of its method; a key may go along, never what is expected of it."""
AWAITED = "__await__"
NAMES = (*ALONE, *WITH_ANOTHER, *FROM_RIGHT, *NOT_ASKED, AWAITED, "__call__")


@functools.cache
def defined_by(kind: type[Any]) -> list[str]:
    """Names of those methods that a class has otherwise than `object`; its own metaclass's are not its objects'."""
    if kind is range:
        return []  # it is here because it is too long to be gone through
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        found |= {name: vars(base)[name] for name in NAMES if name in vars(base)}
    return [name for name in NAMES if found.get(name) is not None]


def applied(name: str, thing: Any, args: list[Any]) -> Any:
    """What comes of a method of this name on an object, as Python's own operator or function of it does it."""
    if name in FROM_RIGHT:
        return WITH_ANOTHER[FROM_RIGHT[name]](args[0], thing)
    return (WITH_ANOTHER.get(name) or ALONE[name])(thing, *args)
