"""Pivotal token search: what it finds on known success curves, and what the stage costs.

    python -m benchmarks.pivotal curves [--trajectories 150] [--length 128]
    python -m benchmarks.pivotal stage [--trajectories 64] [--peers 12] [--models FOLDER]

`curves` compares with the recursion as published (Phi-4): K rollouts a node, split while the ends differ by at least
0.2, no interval, no budget. A found token is right when the true S changes there by at least 0.2. Curves end at S = 1.
`stage` runs the stage on the miniature problems, with all searches at once and one by one, each from the same ready
corpus. Seconds are those of the stage's process. `--models` is the folder `models` of a home whose reference policy
exists; otherwise it is trained first.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from benchmarks import harness
from flows.settings import RECIPES
from tasks import config
from tasks.estimators import difference_p_value
from tasks.pivotal import stage as pivotal
from tasks.pivotal.search import PrefixCounts, Search, SearchConfig, search_state, wavefront
from tasks.run import prompt_set, runs
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context, run_stage
from tasks.sampling.reference_counts import REFERENCE_BEHAVIOUR
from tasks.stages import STAGES
from warehouse import Warehouse

GAP = 0.2
PROMPT_SAMPLES = 800
Curve = list[float]
Method = Callable[[Curve, str], tuple[set[int], int]]
"""Searches a curve with a seed; returns pivotal positions and the number of rollouts."""


def main() -> None:
    """Prints the table of a part."""
    options = harness.options(__doc__, ("curves", "stage"), trajectories=64, peers=12, length=128, models=None)
    if options.part == "curves":
        harness.show(curves(options.trajectories, options.length))
        return
    with tempfile.TemporaryDirectory() as folder:
        harness.show(stage(Path(folder), options))


def piecewise(length: int, draws: random.Random, levels: Sequence[float], drift: float = 0.0) -> Curve:
    """Steps between `levels` at random places, with a drift of up to `drift` inside each level; the end is 1."""
    bounds = [0, *sorted(draws.sample(range(3, length - 2), len(levels) - 1)), length]
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
    "drift only": lambda n, _: [i / n for i in range(n + 1)],
}


class Rollouts:
    """Bernoulli rollouts along one curve, counted."""

    def __init__(self, curve: Curve, seed: str) -> None:
        self.curve, self.draws, self.spent = curve, random.Random(seed), 0
        self.at_prompt = sum(self.draws.random() < curve[0] for _ in range(PROMPT_SAMPLES))

    def at(self, position: int, n: int) -> int:
        """Successes in n rollouts after `position` tokens."""
        self.spent += n
        return sum(self.draws.random() < self.curve[position] for _ in range(n))


def plain(rollouts: int) -> Method:
    """The published recursion, one node at a time."""

    def search(curve: Curve, seed: str) -> tuple[set[int], int]:
        source, found = Rollouts(curve, seed), set[int]()
        stack = [(0, len(curve) - 1, source.at_prompt / PROMPT_SAMPLES, 1.0)]
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

    return search


def ours(looks: tuple[int, ...], name: Literal["bisection", "change_points"]) -> Method:
    """Our search with these numbers of rollouts, without a budget, as the peer has none."""
    rule = SearchConfig(difference_p_value, looks, min_difference=GAP, max_rollouts=1_000_000, method=name)

    def search(curve: Curve, seed: str) -> tuple[set[int], int]:
        source, seen = Rollouts(curve, seed), PrefixCounts()
        one = Search.start(seed, range(len(curve) - 1), (PROMPT_SAMPLES, source.at_prompt), group=seed)
        while nodes := wavefront([one], seen, rule):
            for node in nodes:
                seen.absorb(node.prefix, node.rollouts, source.at(node.position, node.rollouts))
        return {pivot.position for pivot in search_state(one, seen, rule).pivots}, source.spent

    return search


METHODS: dict[str, Method] = {
    "plain recursion, K=10": plain(10),
    "plain recursion, K=40": plain(40),
    "bisection, K=10": ours((10,), "bisection"),
    "bisection, looks 5/10/20/40": ours((5, 10, 20, 40), "bisection"),
    "change points, looks 5/10/20": ours((5, 10, 20), "change_points"),
    "change points, looks 10/20/40": ours((10, 20, 40), "change_points"),
}


def curves(trajectories: int, length: int) -> Iterator[dict[str, Any]]:
    """A row for each family of curves and method."""
    for family, make in FAMILIES.items():
        draws = random.Random(family)
        made = [make(length, draws) for _ in range(trajectories)]
        for name, method in METHODS.items():
            right = wrong = missed = rollouts = 0
            for number, curve in enumerate(made):
                truth = {t for t in range(1, len(curve)) if abs(curve[t] - curve[t - 1]) >= GAP - 1e-9}
                found, spent = method(curve, f"trajectory {number}")
                right, wrong, missed = (
                    right + len(found & truth),
                    wrong + len(found - truth),
                    missed + len(truth - found),
                )
                rollouts += spent
            row = {"curves": family, "method": name, "precision": f"{right / max(1, right + wrong):.2f}"}
            row |= {"recall": f"{right / max(1, right + missed):.2f}", "false a trajectory": wrong / trajectories}
            yield row | {"rollouts a trajectory": rollouts / trajectories, "a token found": rollouts / max(1, right)}


def stage(folder: Path, options: Any) -> Iterator[dict[str, Any]]:
    """Milliseconds a rollout of both orders."""
    ready, base = folder / "ready", 0.0
    if options.models:
        shutil.copytree(options.models, ready / "models")
    changes = {"q0.samples": 50, "corpus.reference_samples": 0, "pivotal.trajectories": options.trajectories}
    with Warehouse.open(ready / "warehouse") as store:
        run_id = runs.create(store, config.load("tiny", changes, folder=RECIPES), origin="benchmark")
        context = Context(run_id, runs.load_config(store, run_id), store, ready)
        for name in ("prepare", "q0", "corpus"):
            run_stage(STAGES[name], context)
    for name, most in (("all at once", options.trajectories), ("one by one", options.peers)):
        home = folder / name
        shutil.copytree(ready, home)
        wall, cpu, rollouts, pivots = search(home, most, at_once=not base)
        base = base or cpu / rollouts
        row = {"order": name, "trajectories": most, "rollouts": rollouts, "pivotal tokens": pivots}
        row |= {"ms a rollout": 1000 * wall / rollouts, "CPU ms": 1000 * cpu / rollouts}
        yield row | {"CPU, times as much": cpu / rollouts / base}


def search(home: Path, most: int, *, at_once: bool) -> tuple[float, float, int, int]:
    """Wall seconds, CPU seconds, rollouts and pivotal tokens of the run's first `most` searches."""
    with Warehouse.open(home / "warehouse") as store:
        run_id = runs.latest(store)
        context = Context(run_id, runs.load_config(store, run_id), store, home)
        prompts = prompt_set.load(context, "train")
        planned = pivotal.plan(context, prompts)
        searches = planned.searches[:most]
        seen, rule = PrefixCounts(), SearchConfig.from_config(context.config.pivotal, difference_p_value)
        with open_sampler(context, prompts.reference, REFERENCE_BEHAVIOUR) as sampler:
            began = harness.clock(wall=True), harness.clock()
            paid = sum(
                pivotal.advance(context, prompts, replace(planned, searches=group), seen, rule, sampler)
                for group in ([searches] if at_once else [[one] for one in searches])
            )
            wall, cpu = harness.clock(wall=True) - began[0], harness.clock() - began[1]
        return wall, cpu, paid, sum(len(search_state(one, seen, rule).pivots) for one in searches)


if __name__ == "__main__":
    main()
