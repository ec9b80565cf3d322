"""Pivotal token search as a pure wavefront: which prefixes of which trajectories to estimate next.

A trajectory's success probability S_t, under rollouts of the reference policy after t of its tokens, is known at t = 0
(the prompt's own counts) and at the end (1, since the trajectory is correct). An interval over which S changes is
split; an interval of one token over which it changes is a pivotal token. Two methods tell whether it changes:
`bisection` tests the counts of the interval's two ends, as published; `change_points` weighs all counts along the
trajectory together (`tasks/pivotal/change_points.py`), and so finds the same tokens from fewer rollouts.

Everything is recomputed from the counts in `PrefixCounts`, so a search has no other state: stopping it anywhere and
filling `PrefixCounts` with the stored counts resumes it, and prefixes that several trajectories of one prompt share are
paid once.

    seen = PrefixCounts(stored)                                      # {prefix: (n, k)}
    while nodes := wavefront(searches, seen, rule):            # every search at once: full engine batches
        for node in nodes:                                       # roll out token_ids[:node.position], judge
            seen.absorb(node.prefix, n, k)                     # n = node.rollouts, or what did come back
    outcomes = [search_state(search, seen, rule) for search in searches]

Source: Cohen et al. 2025, section 3.1.3; Abdin et al. 2024 (Phi-4). No model, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Literal, TypeAlias

from tasks.config import PivotalConfig
from tasks.pivotal.change_points import jump_probabilities
from tasks.pivotal.prefix_counts import Count, PrefixCounts, Search

__all__ = [
    "Count",
    "Node",
    "Outcome",
    "Pivot",
    "PrefixCounts",
    "Search",
    "SearchConfig",
    "search_state",
    "split_point",
    "wavefront",
]

PValue: TypeAlias = Callable[[tuple[int, int], tuple[int, int]], float]
"""Two-sided p-value of equal success probabilities given (n, k) of both, e.g. `estimators.difference_p_value`."""
_ROUNDING = 1e-9
"""1 - 0.8 must count as 0.2."""


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
    probability: float = math.nan
    """That S changes here by at least the rule's minimum, given all counts; not known to `bisection`."""

    @property
    def change(self) -> float:
        """Estimated S after the token minus S before it."""
        return self.after.share - self.before.share


class Comparison(Enum):
    """What the counts say about the two ends of an interval."""

    different = "different"
    alike = "alike"
    unclear = "unclear"


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """When S changes over an interval, and how much a search may cost.

    `bisection`: ends differ when their shares differ by at least `min_difference` and the p-value is at most
    (1 - confidence) / len(looks). With one look this is a test at fixed size. With several, it is repeated whenever
    both ends have reached the next of `looks`, so that clear intervals stay cheap and doubtful ones get more rollouts;
    by Bonferroni two equal ends are called different with probability at most 1 - confidence, as with one look.

    `change_points`: intervals where S jumps by `min_difference` with probability at least `explore` are split; a token
    where it does with probability at least `confidence` is pivotal; between the two, its ends get the next look. On
    trajectories drawn from the model at least a share `confidence` of the tokens called pivotal are.
    """

    p_value: PValue
    looks: tuple[int, ...] = (10,)
    """Rollouts per node at each look, increasing."""
    min_difference: float = 0.2
    confidence: float = 0.8
    max_rollouts: int = 320
    """Budget per trajectory."""
    method: Literal["bisection", "change_points"] = "bisection"
    explore: float = 0.2
    jumps: float = 2.0
    """Jumps expected in a trajectory (`change_points`)."""

    def __post_init__(self) -> None:
        if not self.looks or any(b <= a for a, b in zip((0, *self.looks), self.looks, strict=False)):
            raise ValueError(f"looks must be positive and increasing, got {self.looks}")

    @classmethod
    def from_config(cls, config: PivotalConfig, p_value: PValue) -> SearchConfig:
        """The rule of a recipe; the budget is `max_nodes` nodes at `rollouts` rollouts."""
        more = (2 * config.rollouts, 4 * config.rollouts) if config.method == "change_points" else ()
        return cls(
            p_value=p_value,
            method=config.method,
            explore=config.explore,
            looks=config.looks or (config.rollouts, *more),
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
    """Rollouts counted at those positions."""
    out_of_budget: bool
    """More intervals were open than the budget could pay."""


def wavefront(searches: Iterable[Search], seen: PrefixCounts, rule: SearchConfig) -> list[Node]:
    """Every prefix that any search needs next, each once, by trajectory and position; empty when all are over."""
    wanted: dict[str, Node] = {}
    for search in searches:
        for node in search_state(search, seen, rule).wanted:
            known = wanted.get(node.prefix)
            if known is None or known.rollouts < node.rollouts:
                wanted[node.prefix] = node
    return sorted(wanted.values(), key=lambda node: (node.trajectory_id, node.position))


def search_state(search: Search, seen: PrefixCounts, rule: SearchConfig) -> Outcome:
    """What the counts so far say: pivots found, positions estimated, nodes wanted next."""
    walk = _Bisection(search, seen, rule) if rule.method == "bisection" else _ChangePoints(search, seen, rule)
    walk.run()
    spent = sum(seen.of(search, position).n for position in walk.passed)
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
    """What a look at the counts finds out."""

    def __init__(self, search: Search, seen: PrefixCounts, rule: SearchConfig) -> None:
        self.search, self.seen, self.rule = search, seen, rule
        self.pivots: list[Pivot] = []
        self.passed: set[int] = set()
        self.wanted: dict[int, tuple[int, float]] = {}
        """Position -> (rollouts, urgency: what is paid first when the budget is short)."""

    def run(self) -> None:
        if not self.want(0, self.rule.looks[0], 1.0):
            self.look()

    def look(self) -> None:
        raise NotImplementedError

    def want(self, position: int, rollouts: int, urgency: float) -> bool:
        """Ask for rollouts up to a total; False when the position has them."""
        known = self.seen.of(self.search, position)
        more = rollouts - known.n
        if known.exact or more <= 0:
            return False
        before = self.wanted.get(position, (0, 0.0))
        self.wanted[position] = (max(more, before[0]), max(urgency, before[1]))
        return True


class _Bisection(_Walk):
    """One replay of the bisection, breadth first."""

    def look(self) -> None:
        intervals = [(0, self.search.length)]
        for first, last in intervals:
            intervals += self._halves(first, last)

    def _halves(self, first: int, last: int) -> list[tuple[int, int]]:
        before, after = self.seen.of(self.search, first), self.seen.of(self.search, last)
        difference = abs(after.share - before.share)
        comparison = self.rule.compare(before, after)
        if comparison is Comparison.unclear:
            for position in (first, last):
                self.want(position, self.rule.missing(before, after), difference)
        if comparison is not Comparison.different:
            return []
        if last - first == 1:
            self.pivots.append(Pivot(last, before, after))
            return []
        middle = split_point(first, last, self.search.line_ends)
        self.passed.add(middle)
        if self.want(middle, self.rule.looks[0], difference):
            return []
        return [(first, middle), (middle, last)]


class _ChangePoints(_Walk):
    """One look at all counts along the trajectory."""

    def look(self) -> None:
        known = {0: self.seen.of(self.search, 0)}
        known |= {p: count for p, name in self.search.prefixes() if (count := self.seen.get(name)).n}
        self.passed = set(known) - {0}
        sure = self.rule.looks[0]
        known[self.search.length] = Count(sure, sure)
        chances = jump_probabilities(
            list(known),
            [self._capped(count) for count in known.values()],
            rate=min(0.5, self.rule.jumps / self.search.length),
            min_jump=self.rule.min_difference,
        )
        for (first, last), chance in zip(pairwise(known), chances, strict=True):
            self._judge(first, last, chance)

    def _judge(self, first: int, last: int, chance: float) -> None:
        if chance < self.rule.explore:
            return
        if last - first > 1:
            self.want(split_point(first, last, self.search.line_ends), self.rule.looks[0], chance)
        elif chance >= self.rule.confidence:
            before, after = self.seen.of(self.search, first), self.seen.of(self.search, last)
            self.pivots.append(Pivot(last, before, after, chance))
        else:
            ends = [position for position in (first, last) if 0 < position < self.search.length]
            look = self.rule.missing(*(self.seen.of(self.search, position) for position in ends))
            for position in ends:
                self.want(position, look, chance)

    def _capped(self, count: Count) -> tuple[float, float]:
        """Counts weighing at most as the last look: a prompt's many samples would forbid the slightest drift."""
        weight = min(1.0, self.rule.looks[-1] / count.n)
        return count.n * weight, count.k * weight


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
