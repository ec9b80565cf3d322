"""What stands among the asserts for a program's functions, classes, objects and iterators: each use becomes a call.

Fields of theirs begin with two underscores: such names are never asked of the program, so none of its own is hidden.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from sandbox.operators import ALONE, AWAITED, FROM_RIGHT, NOT_ASKED, WITH_ANOTHER


class Record(Protocol):
    """Knows what the program answered (`referee.CallRecord`)."""

    def call(self, target: list[Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The outcome of a call of `target`."""
        ...


class OfTheProgram:
    """Something that stays in the program: its attributes are read and set there."""

    __record__: Record
    __target__: list[Any]
    """What a call of it is a call of: ["name", its name] or ["object", its number]."""

    def __init__(self, record: Record, target: list[Any]) -> None:
        vars(self).update(__record__=record, __target__=target)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__record__.call([*self.__target__, name], (), {})

    def __setattr__(self, name: str, value: Any) -> None:
        self.__record__.call(["set", self.__target__[1], name], (value,), {})


def called(self: OfTheProgram, *args: Any, **named: Any) -> Any:
    """The outcome of a call of it."""
    return self.__record__.call(self.__target__, args, named)


def apply(thing: OfTheProgram, method: str, *args: Any) -> Any:
    """Let the program do what Python's operator or function of this method does."""
    return thing.__record__.call(["apply", thing.__target__[1], method], args, {})


class UnderTest(OfTheProgram):
    """A function or class of the program, by name."""

    __call__ = called

    def __instancecheck__(self, value: Any) -> bool:
        return self.__record__.call(["isinstance", self.__target__[1]], (value,), {}) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return self.__record__.call(["issubclass", self.__target__[1]], (kind,), {}) is True

    def __getitem__(self, key: Any) -> Any:
        return apply(self, "__getitem__", key)

    def __iter__(self) -> Iterator[Any]:
        return iter(apply(self, "__iter__"))

    def __len__(self) -> int:
        return apply(self, "__len__")

    def __bool__(self) -> bool:
        return True  # a function, a class


class StandIn(OfTheProgram):
    """An object of the program, by number: what is done with it becomes a call, and it can be handed back.

    Of the operators, `stand_in_class` gives it those that its class has in the program.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of the program>"


@functools.cache
def stand_in_class(name: str, methods: tuple[str, ...]) -> type[StandIn]:
    """A class of stand-ins for objects of a class that has this name and, of the operators' methods, these."""
    space: dict[str, Any] = {method: method_of(method) for method in methods}
    if AWAITED in space:
        space |= {"send": awaited, "throw": thrown, "close": lambda _: None}
    return type(name, (StandIn,), space)


def method_of(name: str) -> Any:
    """What a stand-in does where Python calls its method of this name."""
    if name in NOT_ASKED:
        return None
    if name == "__call__":
        return called
    if name == AWAITED:
        return waits
    if name in ("__exit__", "__aexit__"):
        return leaving(name)
    if name in ALONE:
        return lambda self, *args: apply(self, name, *args)
    if name in WITH_ANOTHER or name in FROM_RIGHT:
        return lambda self, other: apply(self, name, other) if isinstance(other, StandIn) else NotImplemented
    raise ValueError(f"a program's answer holds {name!r}")


def leaving(method: str) -> Callable[..., Any]:
    """`__exit__` or `__aexit__`: of an exception only the built-in type goes to the program."""

    def leave(self: StandIn, kind: type[BaseException] | None, error: BaseException | None, *_: Any) -> Any:
        if error is not None and not isinstance(error, Exception):
            raise error  # the pass ends here
        builtin = next((base.__name__ for base in kind.__mro__ if base.__module__ == "builtins"), "") if kind else None
        return apply(self, method, builtin)

    return leave


def awaited(self: StandIn, _: Any) -> Any:
    """What an event loop does with a coroutine; this one is through at once."""
    raise StopIteration(self.__record__.call(["await", self.__target__[1]], (), {}))


def waits(self: StandIn) -> Generator[Any, None, Any]:
    """What `await` does."""
    yield from ()
    return self.__record__.call(["await", self.__target__[1]], (), {})


def thrown(_: StandIn, error: Any, *__: Any) -> Any:
    """What an event loop does to cancel a coroutine."""
    raise error


class Stream:
    """An iterator of the program: items that have come, and the number by which it is asked for further ones."""

    def __init__(self, record: Record, items: list[Any], number: int) -> None:
        self._record = record
        self.items = deque(items)
        self.number: int | None = number

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self.items and self.number is not None:
            number, self.number = self.number, None  # it has ended if it raises
            more = self._record.call(["next", number], (), {})
            self.items = more.items if isinstance(more, Stream) else deque(more)
            self.number = more.number if isinstance(more, Stream) else None
        if not self.items:
            raise StopIteration
        return self.items.popleft()
