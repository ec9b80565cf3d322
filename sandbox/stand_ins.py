"""What stands among the asserts for a program's functions, classes, objects and iterators: each use becomes a call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol


class Record(Protocol):
    """Knows what the program answered (`referee.CallRecord`)."""

    def call(self, target: list[Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The outcome of a call of `target`."""
        ...


class UnderTest:
    """A function or class of the program, by name."""

    def __init__(self, record: Record, name: str) -> None:
        vars(self).update(_record=record, _name=name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._record.call(["name", self._name], args, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._record.call(["name", self._name, name], (), {})

    def __setattr__(self, name: str, value: Any) -> None:
        self._record.call(["set", self._name, name], (value,), {})

    def __instancecheck__(self, value: Any) -> bool:
        return self._record.call(["isinstance", self._name], (value,), {}) is True

    def __subclasscheck__(self, kind: Any) -> bool:
        return self._record.call(["issubclass", self._name], (kind,), {}) is True


class StandIn:
    """An object that stays in the program: it can be called, its attributes read and set, and be handed back."""

    def __init__(self, record: Record, number: int, kind: str) -> None:
        vars(self).update(_record=record, _number=number, _kind=kind)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._record.call(["object", self._number], args, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._record.call(["object", self._number, name], (), {})

    def __setattr__(self, name: str, value: Any) -> None:
        self._record.call(["set", self._number, name], (value,), {})

    def __repr__(self) -> str:
        return f"<{self._kind} of the program>"


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
