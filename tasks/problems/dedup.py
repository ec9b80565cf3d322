"""Duplicate programs: exact ones by syntax tree, near ones by MinHash over tokens.

A shingle is five successive tokens of a program (names, numbers, operators; comments and layout left out). Two
programs are near duplicates when the Jaccard similarity of their shingle sets is at least the threshold. MinHash
(rensa) only proposes pairs: 16 bands of 4 find a pair at 0.8 with probability 0.9998. Each is decided on the shingle
sets themselves, so nothing below the threshold is ever called a duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import rensa as _rensa  # without types of its own

rensa: Any = _rensa
Sketch: TypeAlias = Any
"""A `rensa.RMinHash`."""

THRESHOLD = 0.8
"""Similarity from which two programs count as near duplicates."""
SHINGLE_TOKENS = 5
BANDS = 16
PERMUTATIONS = 64
_SEED = 1

_TOKEN = re.compile(
    r"#[^\n]*|[rbfRBF]{0,2}(?:'''(?s:.*?)'''|\"\"\"(?s:.*?)\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\")"
    r"|\w+|\*\*|//|[<>=!]=|<<|>>|->|[^\w\s]"
)


def near_duplicates(programs: Sequence[str], threshold: float = THRESHOLD) -> list[int]:
    """For each program the index of the first kept one that it nearly repeats; a kept program has its own index.

    Programs are taken in order, and each is compared with those kept before it: the better one should come first.
    """
    index = rensa.RMinHashLSH(threshold=threshold, num_perm=PERMUTATIONS, num_bands=BANDS)
    result: list[int] = []
    for row, program in enumerate(programs):
        found = shingles(program)
        sketch = sketch_of(found)
        proposed: list[int] = sorted(index.query(sketch)) if found else []
        alike = (other for other in proposed if similarity(found, shingles(programs[other])) >= threshold)
        first = next(alike, row)
        if first == row and found:
            index.insert(row, sketch)
        result.append(first)
    return result


def sketch_of(elements: Iterable[str]) -> Sketch:
    """The MinHash of a set of texts."""
    sketch = rensa.RMinHash(num_perm=PERMUTATIONS, seed=_SEED)
    sketch.update(list(elements))
    return sketch


def program_tokens(program: str) -> list[str]:
    """Tokens of a program, Python or not, without comments and layout."""
    return [token for token in _TOKEN.findall(program) if not token.startswith("#")]


def shingles(program: str) -> set[str]:
    """The program's shingles; fewer than five tokens make one, none make none."""
    tokens = program_tokens(program)
    if len(tokens) < SHINGLE_TOKENS:
        return {"\0".join(tokens)} if tokens else set()
    return {"\0".join(tokens[i : i + SHINGLE_TOKENS]) for i in range(len(tokens) - SHINGLE_TOKENS + 1)}


def similarity(one: set[str], other: set[str]) -> float:
    """Jaccard similarity of two sets; 1 for two empty ones."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0
