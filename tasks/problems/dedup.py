"""Duplicate programs: exact ones by syntax tree, near ones by MinHash over tokens.

Shape legend: N programs, S shingles of all programs together, P permutations, `bands` x `rows` = P.

A shingle is five successive tokens of a program (names, numbers, operators; comments and layout left out). Two programs
are near duplicates when the Jaccard similarity of their shingle sets is at least the threshold. MinHash only proposes
pairs; each is decided on the shingle sets themselves, so nothing below the threshold is ever called a duplicate.
Time grows as N log N; memory is about 4 S + 12 N bytes beside the texts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tasks.problems.programs import normal_hash

Words: TypeAlias = npt.NDArray[np.uint32]
Indices: TypeAlias = npt.NDArray[np.int64]

THRESHOLD = 0.8
"""Similarity from which two programs count as near duplicates."""
SHINGLE_TOKENS = 5
_BANDS = 16
_ROWS = 4
_CHUNK_SHINGLES = 1 << 18
"""Shingles hashed at a time; bounds memory at this many times 4 bytes, for each permutation in turn."""

_TOKEN = re.compile(
    r"#[^\n]*|[rbfRBF]{0,2}(?:'''(?s:.*?)'''|\"\"\"(?s:.*?)\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|\w+|\*\*|//|[<>=!]=|<<|>>|->|[^\w\s]"
)


@dataclass(frozen=True, slots=True)
class Shingles:
    """Hashed shingle sets of N programs, one after the other: program i has `values[starts[i]:starts[i + 1]]`."""

    values: Words
    starts: Indices

    def similarity(self, one: int, other: int) -> float:
        """Jaccard similarity of two programs' shingle sets; 1 for two empty ones."""
        a = self.values[self.starts[one] : self.starts[one + 1]]
        b = self.values[self.starts[other] : self.starts[other + 1]]
        shared = np.intersect1d(a, b, assume_unique=True).size
        union = a.size + b.size - shared
        return shared / union if union else 1.0


def exact_duplicates(programs: Iterable[str]) -> list[int]:
    """For each program the index of the first one with the same syntax tree (see `normal_hash`)."""
    first: dict[str, int] = {}
    return [first.setdefault(normal_hash(program), index) for index, program in enumerate(programs)]


def near_duplicates(programs: Sequence[str], threshold: float = THRESHOLD) -> list[int]:
    """For each program the smallest index in its cluster; a program without near duplicates has its own index.

    Clusters are transitive: programs that reach each other through near duplicates belong together.
    """
    found = shingles(programs, program_tokens)
    parents = np.arange(len(programs), dtype=np.int64)
    for one, other in _candidates(found):
        root, other_root = _root(parents, one), _root(parents, other)
        if root != other_root and found.similarity(one, other) >= threshold:
            parents[max(root, other_root)] = min(root, other_root)
    return [_root(parents, index) for index in range(len(programs))]


def program_tokens(program: str) -> list[str]:
    """Tokens of a program, Python or not, without comments and layout."""
    return [token for token in _TOKEN.findall(program) if not token.startswith("#")]


def shingles(texts: Sequence[str], tokens: Callable[[str], list[str]], length: int = SHINGLE_TOKENS) -> Shingles:
    """The hashed shingle sets of `texts`; a text of fewer than `length` tokens has one shingle, an empty one none."""
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    pieces: list[Words] = []
    for index, text in enumerate(texts):
        piece = _shingles_of(tokens(text), length)
        pieces.append(piece)
        starts[index + 1] = starts[index] + piece.size
    return Shingles(np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint32), starts)


def _shingles_of(tokens: list[str], length: int) -> Words:
    if not tokens:
        return np.zeros(0, dtype=np.uint32)
    if len(tokens) < length:
        return np.array([zlib.crc32("\0".join(tokens).encode("utf-8", "surrogatepass"))], dtype=np.uint32)
    hashes = np.fromiter(
        (zlib.crc32(token.encode("utf-8", "surrogatepass")) for token in tokens), np.uint64, len(tokens)
    )
    count = len(tokens) - length + 1
    mixed = np.zeros(count, dtype=np.uint64)
    for offset in range(length):
        mixed = (mixed ^ hashes[offset : offset + count]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return np.unique((mixed >> np.uint64(32)).astype(np.uint32))


def _candidates(found: Shingles) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of programs that agree on a band: each with the one before it and the first in its bucket.

    These rather than all pairs keep this linear in a bucket's size; other bands propose what one band passes over.
    """
    random = np.random.Generator(np.random.PCG64(0))
    filled = np.flatnonzero(np.diff(found.starts) > 0)
    for _ in range(_BANDS):
        keys = np.zeros(filled.size, dtype=np.uint64)
        for _ in range(_ROWS):
            factor, shift = (int(value) for value in random.integers(1, 1 << 63, size=2, dtype=np.int64))
            minima = _minima(found, filled, np.uint64(factor | 1), np.uint64(shift))
            keys = (keys ^ minima) * np.uint64(0xBF58476D1CE4E5B9)
            keys ^= keys >> np.uint64(31)
        order = np.argsort(keys, kind="stable")
        alike = keys[order[1:]] == keys[order[:-1]]
        heads = np.maximum.accumulate(np.where(alike, 0, np.arange(1, keys.size))) if keys.size > 1 else alike
        later = np.flatnonzero(alike)
        members = filled[order]
        yield from zip(members[later].tolist(), members[later + 1].tolist(), strict=True)
        yield from zip(members[heads[later]].tolist(), members[later + 1].tolist(), strict=True)


def _minima(found: Shingles, filled: Indices, factor: np.uint64, shift: np.uint64) -> npt.NDArray[np.uint64]:
    """(N,) smallest hash of each non-empty program's shingles under one permutation (multiply and shift)."""
    starts, ends = found.starts[filled], found.starts[filled + 1]
    result = np.zeros(filled.size, dtype=np.uint64)
    first = 0
    while first < filled.size:
        last = int(np.searchsorted(ends, starts[first] + _CHUNK_SHINGLES, side="right"))
        last = max(last, first + 1)
        values = found.values[starts[first] : ends[last - 1]].astype(np.uint64)
        hashes = (values * factor + shift) >> np.uint64(32)
        result[first:last] = np.minimum.reduceat(hashes, starts[first:last] - starts[first])
        first = last
    return result


def _root(parents: Any, index: int) -> int:
    while parents[index] != index:
        parents[index] = parents[parents[index]]
        index = int(parents[index])
    return index
