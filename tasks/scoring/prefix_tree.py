"""Sequences that begin alike, laid end to end so that every beginning is there once.

Each sequence adds to the row what it does not share with the one before it. The row is then the tree of beginnings in
preorder: what continues a token stands between it and a place known in advance (its segment's reach), and attention
needs to know nothing else. Of the continuations of a beginning the largest comes first, so that a beginning that many
sequences leave at many places, as the rollouts of one trajectory do, still stands in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tasks.engines.prefix_store import common_length


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens start..stop of a row: attended causally by themselves, and wholly by the tokens stop..reach after them."""

    start: int
    stop: int
    reach: int


@dataclass(frozen=True, slots=True)
class Row:
    """Sequences laid out as one row of L tokens."""

    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    """Place of each token in its sequences, from 0."""
    segments: tuple[Segment, ...]
    """In the order of the row, without gaps."""
    places: tuple[tuple[int, ...], ...]
    """Where the tokens of each sequence stand, in the order the sequences were given in."""


def common_lengths(ordered: Sequence[tuple[int, ...]]) -> list[int]:
    """What each of these sorted sequences has in common with the one before it, in tokens; 0 for the first."""
    return [0, *(common_length(left, right) for left, right in pairwise(ordered))] if ordered else []


def shared_row(sequences: Sequence[tuple[int, ...]]) -> Row:
    """The sequences with every beginning once. Depends on them alone, not on their order."""
    order = sorted(range(len(sequences)), key=lambda i: (sequences[i], i))
    ordered = [sequences[i] for i in order]
    steps = _preorder(list(map(len, ordered)), common_lengths(ordered))
    return _row(sequences, [(order[i], kept) for i, kept in steps])


def separate_row(sequences: Sequence[tuple[int, ...]]) -> Row:
    """The sequences end to end, nothing shared."""
    return _row(sequences, [(index, 0) for index in range(len(sequences))])


def _preorder(lengths: Sequence[int], common: Sequence[int]) -> list[tuple[int, int]]:
    """Sorted sequences in the order they are laid out in, largest continuation first: (index, tokens taken over)."""
    new = [0, *accumulate(length - kept for length, kept in zip(lengths, common, strict=True))]
    found: list[tuple[int, int]] = []
    waiting = [(0, len(lengths), 0)]
    while waiting:
        first, end, taken = waiting.pop()
        if end - first == 1:
            found.append((first, taken))
            continue
        shared = min(common[first + 1 : end])
        cuts = [first, *(i for i in range(first + 1, end) if common[i] == shared), end]
        parts = sorted(pairwise(cuts), key=lambda part: new[part[0] + 1] - new[part[1]] - lengths[part[0]])
        waiting += [(*part, shared) for part in reversed(parts[1:])]
        waiting.append((*parts[0], taken))
    return found


def _row(sequences: Sequence[tuple[int, ...]], steps: Sequence[tuple[int, int]]) -> Row:
    tokens: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    places: dict[int, tuple[int, ...]] = {}
    path: list[int] = []
    """Where the tokens of the sequence last added stand."""
    begun: list[int] = []
    """Positions at which the segments of `path` begin, outermost first."""
    for index, kept in steps:
        _close(segments, path, begun, kept, len(tokens))
        new = sequences[index][kept:]
        begun += [kept] if new else []
        path += range(len(tokens), len(tokens) + len(new))
        tokens += new
        positions += range(kept, kept + len(new))
        places[index] = tuple(path)
    _close(segments, path, begun, 0, len(tokens))
    return Row(
        tokens=tuple(tokens),
        positions=tuple(positions),
        segments=tuple(sorted(segments, key=lambda segment: segment.start)),
        places=tuple(places[index] for index in range(len(sequences))),
    )


def _close(segments: list[Segment], path: list[int], begun: list[int], kept: int, reach: int) -> None:
    """Shorten `path` to `kept` tokens: what is taken from it is attended by nothing that stands at `reach` or after."""
    while len(path) > kept:
        first = max(begun[-1], kept)
        segments.append(Segment(path[first], path[-1] + 1, reach))
        del path[first:]
        if first == begun[-1]:
            begun.pop()
