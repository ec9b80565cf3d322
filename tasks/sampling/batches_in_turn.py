"""Batches of work on their way into an engine, which reads them in its own time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

B = TypeVar("B")
A = TypeVar("A")


class BatchesInTurn(Generic[B, A]):
    """Reads batches `B`, no more than there is room for, and gives what each asks for, `A`, one by one."""

    def __init__(
        self, batches: Iterator[B | None], room: Callable[[], bool], begin: Callable[[int, B], Iterator[A]]
    ) -> None:
        """`begin`: what is asked for by the batch of this number. None among `batches`: there is none for now."""
        self._batches, self._room, self._begin = batches, room, begin
        self._next: B | None = None
        self.ended = False
        """Whether all batches are read."""
        self._begun = 0
        self.under_way: dict[int, A] = {}
        """What was given and is not finished, by its number in the call; whoever finishes it takes it out."""

    def look(self) -> bool:
        """Whether there is a batch to begin."""
        if self._next is None and not self.ended and self._room():
            try:
                self._next = next(self._batches)
            except StopIteration:
                self.ended = True
        return self._next is not None

    def asked_for(self) -> Iterator[A | None]:
        """For one call of the engine: what the batches ask for, and None after each and while there is none."""
        given = 0
        while not self.ended or self._next is not None:
            if self.look() and self._next is not None:
                batch, self._next = self._next, None
                self._begun += 1
                for asked in self._begin(self._begun - 1, batch):
                    self.under_way[given] = asked
                    given += 1
                    yield asked
            yield None
