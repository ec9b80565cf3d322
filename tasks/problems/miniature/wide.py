"""The wide vocabulary's compositions: a source, `depth` filters and maps in any order, a reduction.

Near twins never lie on both sides of the split: compositions of the same operations in another order, from another
source or with an operation swapped for the one it is confused with belong to one family, and a family is all in one
split. Compositions that mean the same without sharing their operations (`signature`) are kept apart when problems are
chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from random import Random

from tasks.problems.miniature import operations as small
from tasks.problems.miniature import wide_operations as wide
from tasks.problems.miniature.composition import SOURCE_OF, Composition, confused_with

SOURCES = (*small.SOURCES, *wide.SOURCES)
STEPS = (*small.FILTERS, *wide.FILTERS, *small.MAPS, *wide.MAPS)
REDUCTIONS = (*small.REDUCTIONS, *wide.REDUCTIONS)
_EVALUATION_SHARE = 8
"""One family of this many is kept for evaluation."""
_PROBES = 6
"""Inputs of every source that a meaning is told by."""


def draw(random: Random, depth: int) -> Composition:
    """A composition with `depth` steps, no two of which are the same operation or confused with each other."""
    source = random.choice(SOURCES)
    choices = [step.name for step in STEPS if step.kind == source.kind]
    steps: list[str] = []
    while len(steps) < depth:
        name = random.choice(choices)
        if family_of(name) not in map(family_of, steps):
            steps.append(name)
    reduction = random.choice([one.name for one in REDUCTIONS if one.kind == source.kind])
    return Composition(source.name, tuple(steps), reduction)


def for_evaluation(composition: Composition) -> bool:
    """Whether this composition's family belongs to evaluation: a fixed property, so that no seed can mix the splits."""
    digest = hashlib.sha256(" ".join(family(composition)).encode()).digest()
    return digest[0] % _EVALUATION_SHARE == 0


def candidates(random: Random, depth: int, *, evaluation: bool) -> Iterator[Composition]:
    """Endless compositions of a split; some are trivial, and some come twice (see generate.py)."""
    while True:
        composition = draw(random, depth)
        if for_evaluation(composition) == evaluation:
            yield composition


def shown(random: Random, depth: int) -> Iterator[Composition]:
    """Endless compositions of one to `depth` steps for pretraining, none of a family of evaluation."""
    while True:
        composition = draw(random, random.randint(1, depth))
        if not for_evaluation(composition):
            yield composition


def family(composition: Composition) -> tuple[str, ...]:
    """What near twins have in common: their operations but for order and confusion, whatever the source."""
    return (*sorted(map(family_of, composition.steps)), family_of(composition.reduction))


def family_of(name: str) -> str:
    """One name for operations that are confused with each other."""
    other = confused_with(name)
    if other is None:
        return name
    return min(name, other) if confused_with(other) == name else other


def signature(composition: Composition) -> tuple[str | None, ...]:
    """What the composition prints of some fixed values, whatever its source: the same for those that mean the same."""
    return tuple(composition.answer(values) for values in _probes(SOURCE_OF[composition.source].kind))


def phrases() -> list[str]:
    """Every operation of the vocabulary in English."""
    return [one.phrase for one in (*SOURCES, *STEPS, *REDUCTIONS)]


@cache
def _probes(kind: str) -> tuple[tuple[int | str, ...], ...]:
    sources = [source for source in SOURCES if source.kind == kind]
    return tuple(
        tuple(source.read(source.draw(Random(f"{source.name} {number}"))))
        for source in sources
        for number in range(_PROBES)
    )
