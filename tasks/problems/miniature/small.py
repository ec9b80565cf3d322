"""The small vocabulary's compositions: a source, perhaps a filter, perhaps a map, a reduction."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from itertools import product
from random import Random

from tasks.problems.miniature.composition import NOTHING, Composition
from tasks.problems.miniature.operations import FILTERS, MAPS, REDUCTIONS, SOURCES

STRATA = (1, 2, 1, 2, 1, 2, 1, 0, 1, 2, 1, 2, 1, 2, 1, 2)
"""Numbers of confusable operations of successive problems: how hard the set is for the reference policy."""
_EVALUATION_SHARE = 4
"""One composition of this many is kept for evaluation."""
_SOURCE_WEIGHTS = {"line": 6, "range": 3, "digits": 3, "words": 5, "letters": 3}


def for_evaluation(composition: Composition) -> bool:
    """Whether this composition belongs to evaluation: a fixed property, so that no seed can mix the splits."""
    digest = hashlib.sha256(composition.key.encode()).digest()
    return digest[0] % _EVALUATION_SHARE == 0


@cache
def all_compositions() -> tuple[Composition, ...]:
    """Every composition of the vocabulary, in a fixed order; some are trivial (see generate.py)."""
    return tuple(_combinations())


def candidates(random: Random, *, evaluation: bool) -> list[Composition]:
    """Every composition of a split, in random order."""
    shuffled = [c for c in all_compositions() if for_evaluation(c) == evaluation]
    random.shuffle(shuffled)
    return shuffled


def shown(random: Random) -> Iterator[Composition]:
    """Endless compositions for pretraining, none of evaluation."""
    allowed = [composition for composition in all_compositions() if not for_evaluation(composition)]
    by_source = {source.name: [c for c in allowed if c.source == source.name] for source in SOURCES}
    names, weights = list(_SOURCE_WEIGHTS), list(_SOURCE_WEIGHTS.values())
    while True:
        yield random.choice(by_source[random.choices(names, weights)[0]])


def _combinations() -> Iterator[Composition]:
    for source in SOURCES:
        filters = [NOTHING, *(f.name for f in FILTERS if f.kind == source.kind)]
        maps = [NOTHING, *(m.name for m in MAPS if m.kind == source.kind)]
        reductions = [r.name for r in REDUCTIONS if r.kind == source.kind]
        for filter_, map_, reduction in product(filters, maps, reductions):
            if (filter_, map_) != (NOTHING, NOTHING):
                yield Composition(source.name, (filter_, map_), reduction)
