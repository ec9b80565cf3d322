"""Pivotal token search as a pure wavefront: which prefixes of which trajectories to estimate next.

A trajectory's success probability S_t, under rollouts of the reference policy after t of its tokens, is known at t = 0
(the prompt's own counts) and at the end (1, since the trajectory is correct). An interval whose ends differ is split;
an interval of one token whose ends differ is a pivotal token. Everything is recomputed from the counts in the
`Ledger`, so a search has no other state: stopping it anywhere and filling a ledger with the stored counts resumes it,
and prefixes shared by several trajectories of one prompt are paid once.

    ledger = Ledger(stored)                                      # {prefix: (n, k)}
    while nodes := wavefront(searches, ledger, rule):            # every search at once: full engine batches
        for node in nodes:                                       # roll out token_ids[:node.position], judge
            ledger.absorb(node.prefix, n, k)                     # n = node.rollouts, or what did come back
    outcomes = [examine(search, ledger, rule) for search in searches]

Source: Cohen et al. 2025, section 3.1.3; Abdin et al. 2024 (Phi-4). No model, no I/O.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tasks.config import PivotalConfig

PValue: TypeAlias = Callable[[tuple[int, int], tuple[int, int]], float]
"""Two-sided p-value of equal success probabilities given (n, k) of both, e.g. `estimators.difference_p_value`."""


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


_ROUNDING = 1e-9
"""1 - 0.8 must count as 0.2."""
NOTHING = Count()
CERTAIN = Count(1, 1, exact=True)
"""The end of a correct trajectory."""


@dataclass(frozen=True, slots=True)
class Node:
    """A prefix that needs `rollouts` more rollouts: token_ids[:position] of the trajectory."""

    prefix: str
    trajectory_id: str
    """One trajectory that starts with the prefix; others may share it."""
    position: int
    rollouts: int


@dataclass(frozen=True, slots=True)
class Pivot:
    """Token number `position` (counted from 1: token_ids[position - 1]) changes the success probability."""

    position: int
    before: Count
    after: Count

    @property
    def change(self) -> float:
        """Estimated S after the token minus S before it."""
        return self.after.share - self.before.share


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
        size = array("i").itemsize
        digest = hashlib.blake2b(self.group.encode() + b"\0", digest_size=16)
        digest.update(self.packed[: position * size])
        return digest.hexdigest()


class Ledger:
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


class Comparison(Enum):
    """What the counts say about the two ends of an interval."""

    different = "different"
    alike = "alike"
    unclear = "unclear"


@dataclass(frozen=True, slots=True)
class Rule:
    """When two ends differ, and how much a search may cost.

    Ends differ when their shares differ by at least `min_difference` and the p-value is at most
    (1 - confidence) / len(looks). With one look this is a test at fixed size. With several, it is repeated whenever
    both ends have reached the next of `looks`, so that clear intervals stay cheap and doubtful ones get more rollouts;
    by Bonferroni two equal ends are called different with probability at most 1 - confidence, as with one look.
    """

    p_value: PValue
    looks: tuple[int, ...] = (10,)
    """Rollouts per node at each look, increasing."""
    min_difference: float = 0.2
    confidence: float = 0.9
    max_rollouts: int = 320
    """Budget per trajectory."""

    def __post_init__(self) -> None:
        if not self.looks or any(b <= a for a, b in zip((0, *self.looks), self.looks, strict=False)):
            raise ValueError(f"looks must be positive and increasing, got {self.looks}")

    @classmethod
    def from_config(cls, config: PivotalConfig, p_value: PValue) -> Rule:
        """The rule of a recipe; the budget is `max_nodes` nodes at `rollouts` rollouts."""
        return cls(
            p_value=p_value,
            looks=config.looks or (config.rollouts,),
            min_difference=config.min_difference,
            confidence=config.confidence,
            max_rollouts=config.max_nodes * config.rollouts,
        )

    def compare(self, before: Count, after: Count) -> Comparison:
        """Whether the ends differ, as far as their counts go; both need at least looks[0] rollouts or exactness."""
        difference = abs(after.share - before.share) + _ROUNDING
        alpha = (1 - self.confidence) / len(self.looks)
        if difference >= self.min_difference and self._p_value(before, after) <= alpha:
            return Comparison.different
        if self.missing(before, after) == 0 or difference + _margin(before, after) < self.min_difference:
            return Comparison.alike
        return Comparison.unclear

    def missing(self, *ends: Count) -> int:
        """The look that the poorest end should reach next; 0 when all looks are taken."""
        poorest = min((end.n for end in ends if not end.exact), default=self.looks[-1])
        return next((look for look in self.looks if look > poorest), 0)

    def _p_value(self, before: Count, after: Count) -> float:
        if before.exact == after.exact:
            return self.p_value((before.n, before.k), (after.n, after.k))
        return 1.0 if before.share == after.share else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a search stands, given the counts so far."""

    trajectory_id: str
    pivots: tuple[Pivot, ...]
    wanted: tuple[Node, ...]
    """Empty when the search is over."""
    estimated: tuple[int, ...]
    """Positions the search went through, increasing, without 0 and the end."""
    spent: int
    """Rollouts in the ledger at those positions."""
    out_of_budget: bool
    """More intervals were open than the budget could pay."""


def wavefront(searches: Iterable[Search], ledger: Ledger, rule: Rule) -> list[Node]:
    """Every prefix that any search needs next, each once, by trajectory and position; empty when all are over."""
    wanted: dict[str, Node] = {}
    for search in searches:
        for node in examine(search, ledger, rule).wanted:
            known = wanted.get(node.prefix)
            if known is None or known.rollouts < node.rollouts:
                wanted[node.prefix] = node
    return sorted(wanted.values(), key=lambda node: (node.trajectory_id, node.position))


def examine(search: Search, ledger: Ledger, rule: Rule) -> Outcome:
    """Replay the bisection on the counts so far: pivots found, positions passed, nodes wanted next."""
    walk = _Walk(search, ledger, rule)
    walk.run()
    spent = sum(ledger.of(search, position).n for position in walk.passed)
    affordable, short = _within_budget(walk.wanted, rule.max_rollouts - spent)
    nodes = [
        Node(search.prefix(position), search.trajectory_id, position, rollouts) for position, rollouts in affordable
    ]
    return Outcome(
        trajectory_id=search.trajectory_id,
        pivots=tuple(sorted(walk.pivots, key=lambda pivot: pivot.position)),
        wanted=tuple(sorted(nodes, key=lambda node: node.position)),
        estimated=tuple(sorted(walk.passed)),
        spent=spent,
        out_of_budget=short,
    )


def split_point(first: int, last: int, line_ends: Sequence[int] = ()) -> int:
    """Where to split: the line end nearest to the middle, if one lies in the interval's middle half, or the middle."""
    middle = (first + last) // 2
    quarter = (last - first) / 4
    near = [end for end in line_ends if first + quarter <= end <= last - quarter and first < end < last]
    return min(near, key=lambda end: (abs(end - middle), end), default=middle)


class _Walk:
    """One replay of the bisection, breadth first."""

    def __init__(self, search: Search, ledger: Ledger, rule: Rule) -> None:
        self.search, self.ledger, self.rule = search, ledger, rule
        self.pivots: list[Pivot] = []
        self.passed: set[int] = set()
        self.wanted: dict[int, tuple[int, float]] = {}
        """Position -> (rollouts, difference of the interval's ends: what is settled first)."""

    def run(self) -> None:
        prompt = self.ledger.of(self.search, 0)
        if prompt.n < self.rule.looks[0]:
            self._want(0, self.rule.looks[0], 1.0)
            return
        intervals = [(0, self.search.length)]
        for first, last in intervals:
            intervals += self._halves(first, last)

    def _halves(self, first: int, last: int) -> list[tuple[int, int]]:
        before, after = self.ledger.of(self.search, first), self.ledger.of(self.search, last)
        difference = abs(after.share - before.share)
        comparison = self.rule.compare(before, after)
        if comparison is Comparison.unclear:
            for position in (first, last):
                self._want(position, self.rule.missing(before, after), difference)
        if comparison is not Comparison.different:
            return []
        if last - first == 1:
            self.pivots.append(Pivot(last, before, after))
            return []
        middle = split_point(first, last, self.search.line_ends)
        self.passed.add(middle)
        if self._want(middle, self.rule.looks[0], difference):
            return []
        return [(first, middle), (middle, last)]

    def _want(self, position: int, rollouts: int, difference: float) -> bool:
        """Ask for rollouts up to a total; False when the position has them."""
        known = self.ledger.of(self.search, position)
        more = rollouts - known.n
        if known.exact or more <= 0:
            return False
        before = self.wanted.get(position, (0, 0.0))
        self.wanted[position] = (max(more, before[0]), max(difference, before[1]))
        return True


def _within_budget(wanted: Mapping[int, tuple[int, float]], budget: int) -> tuple[list[tuple[int, int]], bool]:
    """The wanted (position, rollouts) that fit, largest differences first, and whether something did not fit."""
    fit: list[tuple[int, int]] = []
    for position, (rollouts, _) in sorted(wanted.items(), key=lambda item: (-item[1][1], item[0])):
        if rollouts <= budget:
            fit.append((position, rollouts))
            budget -= rollouts
    return fit, len(fit) < len(wanted)


def _margin(before: Count, after: Count) -> float:
    """1.64 standard errors of the difference of two shares, each share drawn towards 1/2 by one pseudo-rollout."""

    def variance(count: Count) -> float:
        share = (count.k + 0.5) / (count.n + 1)
        return 0.0 if count.exact else share * (1 - share) / count.n

    return 1.64 * math.sqrt(variance(before) + variance(after))
