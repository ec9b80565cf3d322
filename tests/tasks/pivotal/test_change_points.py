"""The change-point posterior, the error rates both methods state, and what they find on known curves."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from tasks.estimators import difference_p_value
from tasks.pivotal.change_points import jump_probabilities
from tasks.pivotal.search import Comparison, Count, PrefixCounts, Search, SearchConfig, search_state, wavefront

Curve = list[float]


def by_enumeration(positions: list[int], counts: list[tuple[int, int]], rate: float) -> list[float]:
    """P(a jump of any size in each gap), summed over all ways to cut the positions into segments."""

    def evidence(first: int, last: int) -> float:
        n = sum(n for n, _ in counts[first : last + 1])
        k = sum(k for _, k in counts[first : last + 1])
        return math.gamma(k + 0.5) * math.gamma(n - k + 0.5) / math.gamma(n + 1) / math.pi

    gaps = len(positions) - 1
    weight_with, total = [0.0] * gaps, 0.0
    for jumps in itertools.product([False, True], repeat=gaps):
        weight = 1.0
        for gap, jump in enumerate(jumps):
            stay = (1 - rate) ** (positions[gap + 1] - positions[gap])
            weight *= 1 - stay if jump else stay
        starts = [0, *(gap + 1 for gap, jump in enumerate(jumps) if jump), gaps + 1]
        for first, after in itertools.pairwise(starts):
            weight *= evidence(first, after - 1)
        total += weight
        weight_with = [w + weight * jump for w, jump in zip(weight_with, jumps, strict=True)]
    return [weight / total for weight in weight_with]


def test_recursion_equals_the_sum_over_all_segmentations() -> None:
    positions, counts = [0, 4, 5, 9, 20, 21], [(10, 1), (10, 2), (5, 4), (10, 9), (20, 12), (8, 8)]
    expected = by_enumeration(positions, counts, rate=0.05)
    assert jump_probabilities(positions, counts, rate=0.05, min_jump=0.0) == pytest.approx(expected, abs=1e-9)


def test_larger_jumps_are_less_probable_than_any_jump() -> None:
    positions, counts = [0, 8, 16], [(40, 2), (10, 6), (10, 10)]
    small, large = (jump_probabilities(positions, counts, rate=0.1, min_jump=bound) for bound in (0.1, 0.6))
    assert all(a > b for a, b in zip(small, large, strict=True))


def test_neighbours_of_one_level_lend_each_other_their_counts() -> None:
    alone = jump_probabilities([9, 10], [(10, 2), (10, 8)], rate=0.02, min_jump=0.2)[0]
    positions, counts = [7, 8, 9, 10, 11, 12], [(10, 2)] * 3 + [(10, 8)] * 3
    assert jump_probabilities(positions, counts, rate=0.02, min_jump=0.2)[2] > max(alone, 0.8)


@pytest.mark.parametrize("positions,counts", [([0], [(1, 0)]), ([0, 0], [(1, 0)] * 2), ([0, 1], [(1, 0)])])
def test_impossible_positions_are_refused(positions: list[int], counts: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="increasing positions"):
        jump_probabilities(positions, counts, rate=0.1, min_jump=0.2)


def run(curve: Curve, rule: SearchConfig, seed: int) -> tuple[dict[int, float], int]:
    """(pivotal positions and their probability, rollouts) of one search on a known curve."""
    draws, seen = random.Random(seed), PrefixCounts()

    def successes(position: int, n: int) -> int:
        return sum(draws.random() < curve[position] for _ in range(n))

    search = Search.start(str(seed), range(len(curve) - 1), (400, successes(0, 400)), group="p")
    while nodes := wavefront([search], seen, rule):
        for node in nodes:
            seen.absorb(node.prefix, node.rollouts, successes(node.position, node.rollouts))
    outcome = search_state(search, seen, rule)
    return {pivot.position: pivot.probability for pivot in outcome.pivots}, outcome.spent


def change_points(**changes: object) -> SearchConfig:
    return SearchConfig(
        **{  # type: ignore[arg-type]
            "p_value": difference_p_value,
            "looks": (10, 20, 40),
            "method": "change_points",
            "max_rollouts": 5000,
        }
        | changes
    )


def steps(length: int, *jumps: tuple[int, float]) -> Curve:
    curve = [next((v for at, v in reversed(jumps) if position >= at), 0.05) for position in range(length + 1)]
    return [*curve[:-1], 1.0]


def test_two_jumps_are_found_with_few_rollouts() -> None:
    curve, found, spent = steps(100, (37, 0.5), (80, 0.97)), 0, 0
    for seed in range(20):
        pivots, rollouts = run(curve, change_points(), seed)
        found, spent = found + len({37, 80} & set(pivots)), spent + rollouts
    assert found >= 26
    assert spent / 20 < 300


def test_gradual_change_is_rarely_called_pivotal() -> None:
    curve = [position / 80 for position in range(81)]
    false = sum(len(run(curve, change_points(), seed)[0]) for seed in range(20))
    assert false / 20 <= 0.5


def test_search_over_all_counts_resumes_exactly_from_the_stored_ones() -> None:
    curve, rule = steps(60, (20, 0.5), (45, 0.95)), change_points()
    search = Search.start("t", range(60), (400, 20), group="p")
    stored: dict[str, tuple[int, int]] = {}

    def roll(seen: PrefixCounts) -> None:
        for node in wavefront([search], seen, rule):
            draws = random.Random(f"{node.prefix}/{seen.get(node.prefix).n}")
            seen.absorb(
                node.prefix, node.rollouts, sum(draws.random() < curve[node.position] for _ in range(node.rollouts))
            )
            count = seen.get(node.prefix)
            stored[node.prefix] = (count.n, count.k)

    whole = PrefixCounts()
    while wavefront([search], whole, rule):
        roll(whole)
    expected, stored = search_state(search, whole, rule), {}
    while wavefront([search], PrefixCounts(stored), rule):
        roll(PrefixCounts(stored))
    assert search_state(search, PrefixCounts(stored), rule) == expected


def test_ends_are_never_asked_for_again_and_budget_holds() -> None:
    _, spent = run([0.5] * 40 + [1.0], change_points(max_rollouts=60), 0)
    assert spent <= 60


@pytest.mark.slow
def test_tokens_called_pivotal_are_so_at_least_as_often_as_stated() -> None:
    draws, right, called = random.Random(0), 0, 0
    for seed in range(250):
        levels, curve = [draws.betavariate(0.5, 0.5)], [0.0]
        for _ in range(64):
            if draws.random() < 2 / 64:
                levels.append(draws.betavariate(0.5, 0.5))
            curve.append(levels[-1])
        curve = [levels[0], *curve[1:-1], 1.0]
        pivots, _ = run(curve, change_points(confidence=0.8), seed)
        called += len(pivots)
        right += sum(abs(curve[p] - curve[p - 1]) >= 0.2 for p in pivots)
    assert called > 150
    assert right / called >= 0.8


@pytest.mark.parametrize("looks", [(10,), (5, 10, 20, 40)])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_equal_ends_are_called_different_at_most_as_often_as_stated(looks: tuple[int, ...], share: float) -> None:
    draws, called = random.Random(1), 0
    rule = SearchConfig(difference_p_value, looks, min_difference=0.2, confidence=0.9, max_rollouts=10_000)
    for _ in range(1000):
        ends, verdict = [Count(), Count()], Comparison.unclear
        while verdict is Comparison.unclear and (look := rule.missing(*ends)):
            more = look - ends[0].n
            ends = [end + Count(more, sum(draws.random() < share for _ in range(more))) for end in ends]
            verdict = rule.compare(*ends)
        called += verdict is Comparison.different
    assert called / 1000 <= 0.1
