"""Counter-based randomness: a number for every (seed, prompt, sample, position), whatever else is in the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SEED_MASK = (1 << 63) - 1


def derived_seed(*parts: object) -> int:
    """A seed in [0, 2**63) decided by `parts` (their text); different parts give unrelated seeds."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & _SEED_MASK


def sample_seed(seed: int, index: int) -> int:
    """Seed of a request's `index`-th sample; the first sample's is the request's own."""
    return seed if index == 0 else derived_seed(seed, index)


def stream_key(seed: int, prompt_ids: Sequence[int]) -> int:
    """Key of the random stream of one sample (its `sample_seed`) of one prompt, in [0, 2**64)."""
    content = np.asarray(prompt_ids, dtype=np.int64).tobytes()
    digest = hashlib.blake2b(content, digest_size=8, key=(seed & _SEED_MASK).to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def uniforms(keys: NDArray[np.uint64], positions: NDArray[Any]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) with 24 random bits, one per (key, position): exact in float32.

    The mixing function is splitmix64 (Steele, Lea and Flood 2014), whose counter is key + position * golden ratio.
    """
    state = keys + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state = state ^ (state >> np.uint64(31))
    return (state >> np.uint64(40)).astype(np.float64) * 2.0**-24
