"""Pivotal token search against the plain recursive algorithm, on success curves whose pivotal tokens are known.

    python -m benchmarks.pivotal_search [--trajectories 300] [--length 128] [--seed 0]

The peer is the recursion as published (Phi-4): K rollouts per node, split while the ends differ by at least 0.2, no
interval, no budget. Ours runs with both methods of `tasks/pivotal/search.py`, without a budget as well.
A found token counts as right when the true S changes there by at least 0.2. Curves end at S = 1 (a correct program).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.estimators import difference_p_value
from tasks.pivotal.search import PrefixCounts, Search, SearchConfig, search_state, wavefront

K = 10
GAP = 0.2
PROMPT_SAMPLES = 800
Curve = list[float]
Found = tuple[set[int], int]
"""Pivotal positions and rollouts spent."""


@dataclass(frozen=True, slots=True)
class Score:
    """Totals over trajectories."""

    right: int
    false: int
    missed: int
    rollouts: int
    trajectories: int

    def line(self, name: str) -> str:
        """One row of the table."""
        found = self.right + self.false
        precision = self.right / found if found else float("nan")
        recall = self.right / (self.right + self.missed) if self.right + self.missed else float("nan")
        each = self.rollouts / self.right if self.right else float("nan")
        rate = self.rollouts / self.trajectories
        return (
            f"  {name:<30} precision {precision:5.2f}  recall {recall:5.2f}  false/trajectory "
            f"{self.false / self.trajectories:5.2f}  rollouts/trajectory {rate:7.1f}  rollouts/found {each:7.1f}"
        )


def piecewise(length: int, draws: random.Random, levels: Sequence[float], drift: float = 0.0) -> Curve:
    """Steps between `levels` at random places, with a drift of up to `drift` inside each level; the end is 1."""
    places = sorted(draws.sample(range(3, length - 2), len(levels) - 1))
    bounds = [0, *places, length]
    curve: Curve = []
    for level, first, last in zip(levels, bounds, bounds[1:], strict=False):
        curve += [min(1.0, max(0.0, level + drift * (i / max(1, last - first - 1) - 0.5))) for i in range(last - first)]
    return [*curve, 1.0]


FAMILIES: dict[str, Callable[[int, random.Random], Curve]] = {
    "one jump": lambda n, d: piecewise(n, d, [d.uniform(0.02, 0.2), d.uniform(0.85, 1.0)]),
    "one jump, middling": lambda n, d: piecewise(n, d, [d.uniform(0.2, 0.3), d.uniform(0.7, 0.8), 0.95]),
    "three jumps": lambda n, d: piecewise(n, d, [0.05, 0.35, 0.65, 0.95]),
    "non-monotone": lambda n, d: piecewise(n, d, [0.1, 0.6, 0.2, 0.95]),
    "jumps and drift": lambda n, d: piecewise(n, d, [0.1, 0.5, 0.9], drift=0.15),
    "drift only": lambda n, d: [i / n for i in range(n + 1)] if d else [],
}


class Rollouts:
    """Bernoulli rollouts along one curve, counted."""

    def __init__(self, curve: Curve, seed: str) -> None:
        self.curve, self.draws, self.spent = curve, random.Random(seed), 0

    def at(self, position: int, n: int) -> int:
        """Successes in n rollouts after `position` tokens."""
        self.spent += n
        return sum(self.draws.random() < self.curve[position] for _ in range(n))


def plain(curve: Curve, seed: str, rollouts: int = K) -> Found:
    """The recursive algorithm, one node at a time."""
    source, found = Rollouts(curve, seed), set[int]()
    start = sum(random.Random(seed + "prompt").random() < curve[0] for _ in range(PROMPT_SAMPLES)) / PROMPT_SAMPLES
    stack = [(0, len(curve) - 1, start, 1.0)]
    while stack:
        first, last, before, after = stack.pop()
        if abs(after - before) < GAP - 1e-9:
            continue
        if last - first == 1:
            found.add(last)
            continue
        middle = (first + last) // 2
        share = source.at(middle, rollouts) / rollouts
        stack += [(first, middle, before, share), (middle, last, share, after)]
    return found, source.spent


def ours(curve: Curve, seed: str, rule: SearchConfig) -> Found:
    """The wavefront on one trajectory."""
    source, seen = Rollouts(curve, seed), PrefixCounts()
    start = sum(random.Random(seed + "prompt").random() < curve[0] for _ in range(PROMPT_SAMPLES))
    search = Search.start(seed, range(len(curve) - 1), (PROMPT_SAMPLES, start), group=seed)
    while nodes := wavefront([search], seen, rule):
        for node in nodes:
            seen.absorb(node.prefix, node.rollouts, source.at(node.position, node.rollouts))
    return {pivot.position for pivot in search_state(search, seen, rule).pivots}, source.spent


def score(curves: Sequence[Curve], method: Callable[[Curve, str], Found]) -> Score:
    """Run a method on every curve and compare with the truth."""
    right = false = missed = rollouts = 0
    for i, curve in enumerate(curves):
        truth = {t for t in range(1, len(curve)) if abs(curve[t] - curve[t - 1]) >= GAP - 1e-9}
        found, spent = method(curve, f"trajectory {i}")
        right += len(found & truth)
        false += len(found - truth)
        missed += len(truth - found)
        rollouts += spent
    return Score(right, false, missed, rollouts, len(curves))


def rule(
    looks: tuple[int, ...], method: Literal["bisection", "change_points"], confidence: float = 0.8
) -> SearchConfig:
    """Our rule without a budget, as the peer has none."""
    return SearchConfig(
        difference_p_value, looks, min_difference=GAP, confidence=confidence, max_rollouts=1_000_000, method=method
    )


def method(looks: tuple[int, ...], name: Literal["bisection", "change_points"]) -> Callable[[Curve, str], Found]:
    """One way to run ours."""
    return lambda curve, seed: ours(curve, seed, rule(looks, name))


METHODS: dict[str, Callable[[Curve, str], Found]] = {
    "plain recursion, K=10": plain,
    "plain recursion, K=40": lambda curve, seed: plain(curve, seed, 40),
    "bisection, K=10": method((10,), "bisection"),
    "bisection, looks 5/10/20/40": method((5, 10, 20, 40), "bisection"),
    "change points, looks 5/10/20": method((5, 10, 20), "change_points"),
    "change points, looks 10/20/40": method((10, 20, 40), "change_points"),
}


def main() -> None:
    """Print one table per family of curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=300)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for family, make in FAMILIES.items():
        draws = random.Random(f"{family}/{arguments.seed}")
        curves = [make(arguments.length, draws) for _ in range(arguments.trajectories)]
        print(family)
        for name, method in METHODS.items():
            print(score(curves, method).line(name), flush=True)


if __name__ == "__main__":
    main()
