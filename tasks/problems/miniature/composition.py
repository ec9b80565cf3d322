"""A composition of operations: its statement, its meaning, and the compositions it can be confused with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tasks.problems.miniature import operations as small
from tasks.problems.miniature import wide_operations as wide

SOURCE_OF = {source.name: source for source in (*small.SOURCES, *wide.SOURCES)}
FILTER_OF = {operation.name: operation for operation in (*small.FILTERS, *wide.FILTERS)}
MAP_OF = {operation.name: operation for operation in (*small.MAPS, *wide.MAPS)}
STEP_OF = FILTER_OF | MAP_OF
REDUCTION_OF = {reduction.name: reduction for reduction in (*small.REDUCTIONS, *wide.REDUCTIONS)}
NOTHING = "-"
"""Stands where there is no operation."""


@dataclass(frozen=True, slots=True, order=True)
class Composition:
    """Names of the operations; `steps` are filters and maps in their order, `-` where there is none."""

    source: str
    steps: tuple[str, ...]
    reduction: str

    @classmethod
    def of(cls, key: str) -> Composition:
        """The composition whose `key` this is."""
        source, *steps, reduction = key.split(".")
        return cls(source, tuple(steps), reduction)

    @property
    def key(self) -> str:
        """The composition as one word."""
        return ".".join([self.source, *self.steps, self.reduction])

    @property
    def present(self) -> list[str]:
        """Names of the steps that are there."""
        return [name for name in self.steps if name != NOTHING]

    @property
    def statement(self) -> str:
        """The task in plain English."""
        steps = [STEP_OF[name].phrase for name in self.present]
        return " ".join([SOURCE_OF[self.source].phrase, *steps, REDUCTION_OF[self.reduction].phrase])

    @property
    def confusable(self) -> int:
        """How many of the operations have one that they are confused with."""
        return sum(len(choices) > 1 for choices in self._choices())

    def answer(self, values: Sequence[Any]) -> str | None:
        """What a correct program prints of the source's values; None where nothing is left of them, so no answer."""
        for name in self.present:
            if name in FILTER_OF:
                values = [value for value in values if FILTER_OF[name].apply(value)]
            else:
                values = [MAP_OF[name].apply(value) for value in values]
        return REDUCTION_OF[self.reduction].apply(values) if values else None

    def rivals(self) -> list[Composition]:
        """Every composition that mistakes turn this one into, and those that leave out one of its steps."""
        confused = {Composition(self.source, names[:-1], names[-1]) for names in product(*self._choices())}
        shortened = {
            Composition(self.source, (*self.steps[:place], NOTHING, *self.steps[place + 1 :]), self.reduction)
            for place in range(len(self.steps))
        }
        return sorted((confused | shortened) - {self})

    def confused(self, mistakes: Sequence[bool]) -> Composition:
        """The composition with the operations (steps, then reduction) marked in `mistakes` swapped where possible."""
        names = [choices[-1] if wrong else choices[0] for choices, wrong in zip(self._choices(), mistakes, strict=True)]
        return Composition(self.source, tuple(names[:-1]), names[-1])

    def _choices(self) -> list[tuple[str, ...]]:
        steps = [_with_confusion(name, confused_with(name)) for name in self.steps]
        return [*steps, _with_confusion(self.reduction, confused_with(self.reduction))]


def confused_with(name: str) -> str | None:
    """The operation that this step or reduction is confused with, if any."""
    found = STEP_OF.get(name) or REDUCTION_OF.get(name)
    return found.confused_with if found else None


def _with_confusion(name: str, other: str | None) -> tuple[str, ...]:
    return (name,) if other is None else (name, other)
