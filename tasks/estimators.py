"""Counts in, numbers out: pass@k, soft values, intervals, comparisons of two policies, diversity.

Pure functions, no I/O. Legend: n samples, k or c of them correct, S = success probability. `level` is the two-sided
coverage of an interval. Every bootstrap takes its seed, so equal input gives equal output.

Impossible counts (k > n, negative, n = 0 where nothing is known) and parameters raise ValueError.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Counts: TypeAlias = tuple[int, int]
"""(samples, correct samples) of one problem."""
Floats: TypeAlias = npt.NDArray[np.float64]

JEFFREYS = 0.5
RESAMPLES = 2000
PSEUDO_WEIGHT = 0.25


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems with its bootstrap interval."""

    value: float
    low: float
    high: float
    problems: int


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Policy B minus policy A on the same problems."""

    difference: float
    low: float
    high: float
    better: int
    """Problems on which B is higher."""
    worse: int
    equal: int
    p_value: float | None
    """Two-sided exact sign test over the problems that differ; None where the two have other numbers of samples."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of k samples is correct: 1 - C(n-c, k) / C(n, k).

    Computed from exact integers and rounded once, so the result is the double nearest to the true ratio.
    Source: Chen et al. 2021; Li et al. 2022.
    """
    _check_counts(n, c)
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} cannot be estimated from {n} samples: k must be between 1 and n")
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - c, k)) / subsets


def soft_value(n: int, k: int, beta: float, *, prior: float = 0.0, known: float | None = None) -> float:
    """Soft value Q/beta in nats: y = ln(S + (1 - S) exp(-1/beta)), for rewards 0 (pass) and -1 (fail).

    S = k/n; without a success and with `prior` > 0, S = prior / (n + 2 prior), the posterior mean under
    Beta(prior, prior) (0.5: Jeffreys). `prior` = 0 keeps S = 0, hence y = -1/beta, the lowest possible value:
    unbiased as a target of the cross-entropy loss, far too low as Q0 of a prompt that is merely hard.
    `known`, the probability of the correct programs that are known, is S in place of the prior.
    Paper: section 3.1.3.
    """
    _check_counts(n, k)
    if prior < 0:
        raise ValueError(f"prior must not be negative, got {prior}")
    if n + prior == 0:
        raise ValueError("a soft value needs at least one sample, or a prior")
    if k == 0 and known is not None:
        return soft_value_of_share(known, beta)
    share = prior / (n + 2 * prior) if k == 0 and prior > 0 else k / n
    return soft_value_of_share(share, beta)


def soft_value_of_share(share: float, beta: float) -> float:
    """Soft value in nats of a success probability; increasing, from -1/beta at 0 to 0 at 1."""
    _check_beta(beta)
    if not 0 <= share <= 1:
        raise ValueError(f"a success probability lies in [0, 1], got {share}")
    if share == 0:
        return -1 / beta
    if share == 1:
        return 0.0
    return _log_add(math.log(share), math.log1p(-share) - 1 / beta)


def soft_value_interval(n: int, k: int, beta: float, level: float = 0.95) -> tuple[float, float]:
    """Interval of the soft value in nats: the interval of S carried through the increasing map."""
    low, high = beta_interval(n, k, level)
    return soft_value_of_share(low, beta), soft_value_of_share(high, beta)


def soft_value_of_rewards(rewards: Sequence[float], beta: float) -> float:
    """Soft value in nats of sampled rewards in [-1, 0] (also fractional): ln mean exp(r/beta)."""
    _check_beta(beta)
    if not rewards:
        raise ValueError("a soft value needs at least one reward")
    if not all(-1 <= reward <= 0 for reward in rewards):
        raise ValueError("rewards lie in [-1, 0]")
    top = max(rewards) / beta
    return top + math.log(math.fsum(math.exp(reward / beta - top) for reward in rewards) / len(rewards))


def beta_interval(n: int, k: int, level: float = 0.95) -> tuple[float, float]:
    """Jeffreys interval of a success probability: equal-tailed under Beta(k + 1/2, n - k + 1/2).

    The lower end is 0 when k = 0 and the upper end 1 when k = n, where the equal-tailed interval would leave out
    the observed share (Brown, Cai, DasGupta 2001). n = 0 gives (0, 1).
    """
    _check_counts(n, k)
    _check_level(level)
    a, b, tail = k + JEFFREYS, n - k + JEFFREYS, (1 - level) / 2
    low = 0.0 if k == 0 else beta_quantile(tail, a, b)
    high = 1.0 if k == n else beta_quantile(1 - tail, a, b)
    return low, high


@lru_cache(maxsize=65536)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """Quantile of the Beta(a, b) distribution."""
    from scipy.special import betaincinv  # loaded when it is needed: it takes as long as the rest of a short command

    return float(betaincinv(a, b, probability))


def difference_p_value(first: Counts, second: Counts) -> float:
    """Two-sided exact p-value of equal success probabilities given (n, k) twice: Fisher's test.

    Valid for every sample size: under equality, P(p <= alpha) <= alpha. Ends at 1 when either n is 0.
    Source: tables as likely as, or less likely than, the observed one, by exact integers.
    """
    (n1, k1), (n2, k2) = first, second
    _check_counts(n1, k1)
    _check_counts(n2, k2)
    successes = k1 + k2
    ways = [math.comb(n1, k) * math.comb(n2, successes - k) for k in range(successes + 1)]
    return sum(way for way in ways if way <= ways[k1]) / math.comb(n1 + n2, successes)


def sign_test(better: int, worse: int) -> float:
    """Two-sided exact p-value of `better` against `worse` under a fair coin; ties are left out. 1 without any."""
    if better < 0 or worse < 0:
        raise ValueError(f"counts must not be negative, got {better}, {worse}")
    total, fewer = better + worse, min(better, worse)
    return min(1.0, 2 * sum(math.comb(total, i) for i in range(fewer + 1)) / 2**total)


def average_pass_at_k(sets: Mapping[str, Sequence[Counts]], k: int, *, seed: int = 0, level: float = 0.95) -> Estimate:
    """pass@k averaged over problem sets, each set weighing the same (paper: section 5); resampled within each set."""
    groups = [np.array([pass_at_k(n, c, k) for n, c in counts]) for counts in sets.values()]
    return mean_of_shares(groups, seed=seed, level=level)


def mean_of_shares(groups: Sequence[Floats], *, seed: int = 0, level: float = 0.95) -> Estimate:
    """Mean over groups of the mean of their values, all in [0, 1], with a bootstrap interval over the values.

    Each resample also draws from a quarter of a pseudo-value at 0 and at 1. Without them a few dozen problems that
    are nearly all solved (or all unsolved) give intervals that miss the truth most of the time, and an interval of
    width zero when they agree; with them the coverage is right there too and elsewhere the width hardly changes.
    """
    _check_groups(groups, level)
    value = float(np.mean([group.mean() for group in groups]))
    generator = np.random.default_rng(seed)
    means = np.mean([_resampled_means(group, generator, pseudo=(0.0, 1.0)) for group in groups], axis=0)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), sum(len(group) for group in groups))


def average_paired_difference(
    a: Mapping[str, Mapping[str, Counts]],
    b: Mapping[str, Mapping[str, Counts]],
    k: int,
    *,
    seed: int = 0,
    level: float = 0.95,
) -> PairedDifference:
    """pass@k of policy B minus policy A, problem by problem, averaged over problem sets, each weighing the same.

    Both must have the same problems; they are resampled within each set. Raises ValueError. The sign test needs as many
    samples of a problem from both: of the same policy, the one with fewer is at 0 more often and far above it the rest.
    """
    first, second = ({(s, p): found for s in sets for p, found in sets[s].items()} for sets in (a, b))
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise ValueError(f"{len(odd)} problems were evaluated for one policy only, first {odd[0][1]!r}")
    groups = [np.array([pass_at_k(*b[s][p], k) - pass_at_k(*a[s][p], k) for p in sorted(a[s])]) for s in sorted(a)]
    low, high = bootstrap_interval(*groups, seed=seed, level=level)
    deltas = np.concatenate(groups)
    better, worse = int((deltas > 0).sum()), int((deltas < 0).sum())
    return PairedDifference(
        difference=float(np.mean([group.mean() for group in groups])),
        low=low,
        high=high,
        better=better,
        worse=worse,
        equal=len(deltas) - better - worse,
        p_value=sign_test(better, worse) if same_numbers(a, b) else None,
    )


def same_numbers(a: Mapping[str, Mapping[str, Counts]], b: Mapping[str, Mapping[str, Counts]]) -> bool:
    """Whether every problem, all of which both have, has as many samples in both."""
    return all(n == b[name][p][0] for name, own in a.items() for p, (n, _) in own.items())


def bootstrap_interval(*groups: Floats, seed: int, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of the groups' means, widened as Student's t widens a normal interval.

    (nan, nan) when a group has a single value, whose spread nobody knows. Source of the widening: Hesterberg 2015,
    "expanded percentile interval"; of several groups, degrees of freedom as of Welch's test (Satterthwaite 1946): each
    weighs the same, so that a small one decides how far the mean of all is off.
    """
    _check_groups(groups, level)
    if any(len(group) == 1 for group in groups):
        return math.nan, math.nan
    squares = [float(np.var(group, ddof=1)) / len(group) for group in groups]  # of the standard errors of the means
    if (total := sum(squares)) == 0:
        mean = float(np.mean([group.mean() for group in groups]))
        return mean, mean
    freedom = total**2 / sum(square**2 / (len(group) - 1) for square, group in zip(squares, groups, strict=True))
    resampled = sum(float(np.var(group)) / len(group) for group in groups)
    reach = student_quantile((1 + level) / 2, freedom) * math.sqrt(total / resampled)
    tail = NormalDist().cdf(-reach)
    generator = np.random.default_rng(seed)
    means = np.mean([_resampled_means(group, generator) for group in groups], axis=0)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t distribution with `freedom` degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and its two-sided Student interval; the ends are nan for a single value, all are for none."""
    if not values:
        return math.nan, math.nan, math.nan
    mean = statistics.mean(values)
    if len(values) == 1:
        return mean, math.nan, math.nan
    reach = student_quantile((1 + level) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - reach, mean + reach


def _resampled_means(values: Floats, generator: np.random.Generator, pseudo: tuple[float, ...] = ()) -> Floats:
    """Means of resamples of `values`, drawn as counts of its distinct values; `pseudo` values weigh a quarter each."""
    distinct, counts = np.unique(values, return_counts=True)
    support = np.concatenate([distinct, pseudo])
    weights = np.concatenate([counts, np.full(len(pseudo), PSEUDO_WEIGHT)])
    return generator.multinomial(len(values), weights / weights.sum(), size=RESAMPLES) @ support / len(values)


def _check_groups(groups: Sequence[Floats], level: float) -> None:
    _check_level(level)
    if not groups or any(len(group) == 0 for group in groups):
        raise ValueError("a bootstrap needs at least one value in every group")


def _log_add(a: float, b: float) -> float:
    top, rest = max(a, b), min(a, b)
    return top + math.log1p(math.exp(rest - top))


def _check_counts(n: int, k: int) -> None:
    if not 0 <= k <= n:
        raise ValueError(f"{k} successes in {n} samples are impossible")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, got {level}")


def _check_beta(beta: float) -> None:
    if not beta > 0:
        raise ValueError(f"beta must be positive, got {beta}")
