"""A composition of operations: its statement, its meaning, and the compositions it can be confused with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from tasks.problems.miniature.operations import (
    FILTER_OF,
    FILTERS,
    MAP_OF,
    MAPS,
    REDUCTION_OF,
    REDUCTIONS,
    SOURCE_OF,
    SOURCES,
)

_EVALUATION_SHARE = 4
"""One composition of this many is kept for evaluation."""


@dataclass(frozen=True, slots=True, order=True)
class Composition:
    """Names of the operations, `-` where there is none; at least a filter or a map is there."""

    source: str
    filter: str
    map: str
    reduction: str

    @property
    def key(self) -> str:
        """The composition as one word."""
        return f"{self.source}.{self.filter}.{self.map}.{self.reduction}"

    @property
    def for_evaluation(self) -> bool:
        """Whether this composition belongs to evaluation: a fixed property, so that no seed can mix the splits."""
        digest = hashlib.sha256(self.key.encode()).digest()
        return digest[0] % _EVALUATION_SHARE == 0

    @property
    def statement(self) -> str:
        """The task in plain English."""
        parts = [SOURCE_OF[self.source].phrase]
        if self.filter != "-":
            parts.append(FILTER_OF[self.filter].phrase)
        if self.map != "-":
            parts.append(MAP_OF[self.map].phrase)
        return " ".join([*parts, REDUCTION_OF[self.reduction].phrase])

    @property
    def confusable(self) -> int:
        """How many of the operations have one that they are confused with."""
        return sum(len(choices) > 1 for choices in self._choices())

    def output(self, text: str) -> str | None:
        """What a correct program prints for the input `text`; None where the task has no answer (nothing is left)."""
        values = SOURCE_OF[self.source].read(text)
        if self.filter != "-":
            values = [value for value in values if FILTER_OF[self.filter].apply(value)]
        if self.map != "-":
            values = [MAP_OF[self.map].apply(value) for value in values]
        return REDUCTION_OF[self.reduction].apply(values) if values else None

    def rivals(self) -> list[Composition]:
        """Every composition that mistakes turn this one into, and those that leave out its filter or map."""
        confused = {Composition(self.source, *names) for names in product(*self._choices())}
        shortened = {
            Composition(self.source, "-", self.map, self.reduction),
            Composition(self.source, self.filter, "-", self.reduction),
        }
        return sorted((confused | shortened) - {self})

    def confused(self, mistakes: tuple[bool, bool, bool]) -> Composition:
        """The composition with the operations (filter, map, reduction) marked in `mistakes` swapped where possible."""
        names = [choices[-1] if wrong else choices[0] for choices, wrong in zip(self._choices(), mistakes, strict=True)]
        return Composition(self.source, *names)

    def _choices(self) -> tuple[tuple[str, ...], ...]:
        return (
            _with_confusion(self.filter, FILTER_OF[self.filter].confused_with if self.filter != "-" else None),
            _with_confusion(self.map, MAP_OF[self.map].confused_with if self.map != "-" else None),
            _with_confusion(self.reduction, REDUCTION_OF[self.reduction].confused_with),
        )


@cache
def all_compositions() -> tuple[Composition, ...]:
    """Every composition of the vocabulary, in a fixed order; some are trivial (see generate.py)."""
    return tuple(_combinations())


def _combinations() -> Iterator[Composition]:
    for source in SOURCES:
        filters = ["-", *(f.name for f in FILTERS if f.kind == source.kind)]
        maps = ["-", *(m.name for m in MAPS if m.kind == source.kind)]
        reductions = [r.name for r in REDUCTIONS if r.kind == source.kind]
        for filter_, map_, reduction in product(filters, maps, reductions):
            if (filter_, map_) != ("-", "-"):
                yield Composition(source.name, filter_, map_, reduction)


def _with_confusion(name: str, other: str | None) -> tuple[str, ...]:
    return (name,) if other is None else (name, other)
