"""Which of the candidates for an offline corpus are kept: one of nearly equal programs, and not too many per problem.

Pure functions over one problem's candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tasks.problems.dedup import near_duplicates

KEPT = "kept"
NEAR_DUPLICATE = "near duplicate"
OVER_THE_CAP = "over the cap"


@dataclass(frozen=True, slots=True)
class CorpusCandidate:
    """A judged response for the problem; `program` is what was judged."""

    trajectory_id: str
    source: str
    correct: bool
    program: str


def choose(candidates: Sequence[CorpusCandidate], *, threshold: float, cap: int) -> dict[str, str]:
    """What becomes of each candidate, by trajectory id: KEPT, NEAR_DUPLICATE or OVER_THE_CAP.

    Of near duplicates the first candidate is kept; a right program and a wrong one never count as the same, since one
    token can make the difference. Under the cap the sources take turns, each in the order of its candidates.
    """
    fates = dict.fromkeys((candidate.trajectory_id for candidate in candidates), NEAR_DUPLICATE)
    distinct = [c for good in (True, False) for c in _distinct([c for c in candidates if c.correct is good], threshold)]
    by_source: dict[str, list[CorpusCandidate]] = {}
    for candidate in distinct:
        by_source.setdefault(candidate.source, []).append(candidate)
    turns = [c for turn in zip_longest(*by_source.values()) for c in turn if c is not None]
    for place, candidate in enumerate(turns):
        fates[candidate.trajectory_id] = KEPT if place < cap else OVER_THE_CAP
    return fates


def _distinct(candidates: Sequence[CorpusCandidate], threshold: float) -> list[CorpusCandidate]:
    if threshold >= 1:  # exact copies have been taken out already
        return list(candidates)
    firsts = near_duplicates([candidate.program for candidate in candidates], threshold)
    return [candidate for number, candidate in enumerate(candidates) if firsts[number] == number]
