"""How many more samples of pi_0 each prompt gets: as many for all, or more where the soft value is least certain.

Pure: counts in, numbers of samples out. What comes out depends on the counts alone, so that a stage that was killed
goes on with what it would have done, and samples of other stages and runs simply count.

The error of y = ln S estimated from k successes in n samples is sqrt((1 - S) / (n S)) nats. For a given total the mean
squared error is least with n proportional to sqrt((1 - S) / S) (Neyman 1934). S is not known, so the samples are given
out in rounds, each by what the earlier ones showed.

Two things keep early luck from deciding. S is taken as (k + 2) / (n + 4), which holds back both "solved" and
"hopeless" after few samples. And every prompt has a quarter of its uniform share before any is compared. Stopping by
results biases k/n upwards, for a prompt is left alone sooner after a lucky start. Simulated, this is less than the bias
that uniform sampling has from prompts it never saw solved (tests/tasks/q0/test_allocation.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tasks.config import Q0Config
from tasks.estimators import Counts, soft_value_interval

Allocation: TypeAlias = dict[str, int]
"""Further samples by problem id; a problem that needs none is left out."""

PSEUDO = 2.0
"""Successes and failures added to the counts when the next samples are given out."""
FIRST_SHARE = 0.25
"""Share of the samples that every prompt gets before the rest follows the counts."""
SURPLUS = 2.0
"""Times its share that a prompt can have without being counted as if it had its share alone. Without samples of other
runs or a top-up none comes to that."""
ROUNDS = 8
"""The rest is given out in at least this many rounds."""


def plan(counts: Mapping[str, Counts], config: Q0Config, beta: float) -> Allocation:
    """The next samples to draw, given (samples, successes) of every prompt; empty when nothing is left to do.

    Ask again after drawing them. Uniform: what is missing to `config.samples`. Adaptive: the same total over all
    prompts, in rounds, among prompts whose 95% interval of y is wider than `config.narrow_nats`. Then, if the recipe
    says so, prompts without a success get up to `config.zero_top_up` samples; those count as samples of others do.
    """
    wanted = adaptive(counts, config, beta) if config.adaptive else uniform(counts, config.samples)
    return wanted or _zero_top_up(counts, config)


def uniform(counts: Mapping[str, Counts], samples: int) -> Allocation:
    """What is missing to `samples` for every prompt."""
    return {name: samples - n for name, (n, _) in counts.items() if n < samples}


def adaptive(counts: Mapping[str, Counts], config: Q0Config, beta: float) -> Allocation:
    """The next round of the same total, to the prompts whose soft value is least certain."""
    first = uniform(counts, math.ceil(FIRST_SHARE * config.samples))
    if first:
        return first
    budget, needy = remaining(counts, config, beta)
    if budget <= 0 or not needy:
        return {}
    size = math.ceil((1 - FIRST_SHARE) * config.samples * len(counts) / ROUNDS)
    return _filled({name: counts[name] for name in needy}, min(budget, size))


def missing(counts: Mapping[str, Counts], config: Q0Config, beta: float) -> int:
    """How many samples are to come, top-ups aside, if no interval turns out narrow before."""
    if not config.adaptive:
        return sum(uniform(counts, config.samples).values())
    first = sum(uniform(counts, math.ceil(FIRST_SHARE * config.samples)).values())
    budget, needy = remaining(counts, config, beta)
    return max(first, budget if needy else 0)


def remaining(counts: Mapping[str, Counts], config: Q0Config, beta: float) -> tuple[int, list[str]]:
    """What is left of `config.samples` for each prompt on average, and the prompts that it goes to.

    A prompt that has more than twice its share, from other runs or a top-up, counts as if it had its share, and gets
    nothing: what it has too much is not taken from the others.
    """
    total, first = config.samples * len(counts), math.ceil(FIRST_SHARE * config.samples)
    weights = {name: weight(_at_most(c, config.samples)) for name, c in counts.items()}
    uncertain = [name for name, c in counts.items() if width(c, beta) > config.narrow_nats]

    def shares(names: Iterable[str], samples: int) -> dict[str, int]:
        """What each has or, where that is more than twice its share of so many samples, its share."""
        names = list(names)
        level = max(0, samples) / max(1e-9, sum(weights[name] for name in names))
        most = {name: max(first, math.ceil(level * weights[name])) for name in names}
        return {name: n if n <= SURPLUS * most[name] else most[name] for name in names for n, _ in [counts[name]]}

    everybody = shares(counts, total)
    left = total - sum(everybody[name] for name in counts.keys() - set(uncertain))
    theirs = shares(uncertain, left)
    return left - sum(theirs.values()), [name for name in uncertain if theirs[name] == counts[name][0]]


def _at_most(counts: Counts, samples: int) -> Counts:
    """Counts as they were after at most so many samples: an unsolved prompt's weight grows with all it ever had."""
    n, k = counts
    return (n, k) if n <= samples else (samples, round(k * samples / n))


def width(counts: Counts, beta: float) -> float:
    """Width (nats) of the 95% interval of a prompt's soft value."""
    low, high = soft_value_interval(*counts, beta)
    return high - low


def weight(counts: Counts) -> float:
    """What a prompt's number of samples should be proportional to: sqrt((1 - S) / S)."""
    n, k = counts
    share = (k + PSEUDO) / (n + 2 * PSEUDO)
    return math.sqrt((1 - share) / share)


def _filled(counts: Mapping[str, Counts], budget: int) -> Allocation:
    """`budget` samples given so that the totals come as near to the weights as no sample can be taken back.

    Prompts are raised to a common level of n / weight, lowest first; what rounding leaves goes to the lowest.
    """
    weights = {name: weight(c) for name, c in counts.items()}
    order = sorted(counts, key=lambda name: (counts[name][0] / weights[name], name))
    raised: list[str] = []
    drawn = total_weight = level = 0.0
    for name in order:
        if raised and counts[name][0] / weights[name] >= level:
            break
        raised.append(name)
        drawn, total_weight = drawn + counts[name][0], total_weight + weights[name]
        level = (budget + drawn) / total_weight
    exact = {name: max(0.0, level * weights[name] - counts[name][0]) for name in raised}
    wanted = {name: math.floor(value) for name, value in exact.items()}
    left = budget - sum(wanted.values())
    for name in sorted(exact, key=lambda name: (wanted[name] - exact[name], name))[:left]:
        wanted[name] += 1
    return {name: number for name, number in wanted.items() if number}


def _zero_top_up(counts: Mapping[str, Counts], config: Q0Config) -> Allocation:
    missing = {name: config.zero_top_up - n for name, (n, k) in counts.items() if k == 0}
    return {name: min(config.samples, number) for name, number in missing.items() if number > 0}
