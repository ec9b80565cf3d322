"""Trajectories under search, and the counts of rollouts by prefix, which are all their state."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Count:
    """n rollouts after a prefix, k of them correct. `exact`: S is known, not estimated."""

    n: int = 0
    k: int = 0
    exact: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.k <= self.n:
            raise ValueError(f"{self.k} successes in {self.n} rollouts are impossible")

    @property
    def share(self) -> float:
        """k/n; needs n > 0."""
        return self.k / self.n

    def __add__(self, other: Count) -> Count:
        if self.exact:
            return self
        return Count(self.n + other.n, self.k + other.k)


NOTHING = Count()
CERTAIN = Count(1, 1, exact=True)
"""The end of a correct trajectory."""


@dataclass(frozen=True, slots=True)
class Search:
    """One correct trajectory to be searched."""

    trajectory_id: str
    group: str
    """Everything besides the tokens that decides S: problem, suite, reference policy, sampling. Searches of one group
    share the estimates of equal prefixes."""
    packed: bytes = field(repr=False)
    """Response token ids, four bytes each."""
    prompt: Count
    line_ends: tuple[int, ...] = ()
    """Positions right after a line end, increasing; split points are preferred here. Empty: no preference."""

    @classmethod
    def start(
        cls,
        trajectory_id: str,
        token_ids: Sequence[int],
        prompt_counts: tuple[int, int],
        *,
        group: str,
        line_ends: Iterable[int] = (),
    ) -> Search:
        """A search over `token_ids`, the response of a correct trajectory, with its prompt's (n, k).

        (0, 0) makes the search roll out the prompt itself first.
        """
        if not token_ids:
            raise ValueError(f"trajectory {trajectory_id!r} has no response tokens")
        inside = tuple(sorted({end for end in line_ends if 0 < end < len(token_ids)}))
        packed = array("i", token_ids).tobytes()
        return cls(trajectory_id, group, packed, Count(*prompt_counts), inside)

    @property
    def length(self) -> int:
        """Number of response tokens."""
        return len(self.packed) // array("i").itemsize

    def prefix(self, position: int) -> str:
        """Name of the first `position` tokens in this group: 32 hex digits."""
        digest = self._digest()
        digest.update(self.packed[: position * array("i").itemsize])
        return digest.hexdigest()

    def prefixes(self) -> Iterator[tuple[int, str]]:
        """(position, name) of every prefix between the prompt and the whole response, without both."""
        digest, size = self._digest(), array("i").itemsize
        for position in range(1, self.length):
            digest.update(self.packed[(position - 1) * size : position * size])
            yield position, digest.copy().hexdigest()

    def _digest(self) -> hashlib.blake2b:
        return hashlib.blake2b(self.group.encode() + b"\0", digest_size=16)


class PrefixCounts:
    """Counts per prefix; grows by `absorb` and forgets nothing."""

    def __init__(self, stored: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._counts = {prefix: Count(n, k) for prefix, (n, k) in (stored or {}).items()}

    def absorb(self, prefix: str, n: int, k: int) -> None:
        """Add n rollouts after `prefix`, k of them correct."""
        self._counts[prefix] = self.get(prefix) + Count(n, k)

    def get(self, prefix: str) -> Count:
        """All counts of `prefix`; (0, 0) when it was never estimated."""
        return self._counts.get(prefix, NOTHING)

    def of(self, search: Search, position: int) -> Count:
        """What is known about S after `position` tokens of the searched trajectory."""
        if position == search.length:
            return CERTAIN
        counts = self.get(search.prefix(position))
        return search.prompt + counts if position == 0 else counts
