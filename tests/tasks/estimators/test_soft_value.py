"""Soft values and intervals of a success probability."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tasks.config import PAPER_BETA
from tasks.estimators import (
    beta_interval,
    beta_quantile,
    soft_value,
    soft_value_interval,
    soft_value_of_rewards,
    soft_value_of_share,
    student_quantile,
)

FLOOR = -math.log(100_000)


def test_soft_value_is_the_log_of_the_mean_exponentiated_reward() -> None:
    for n, k in [(800, 1), (800, 40), (10, 9), (10, 10)]:
        mean = k / n * math.exp(0) + (1 - k / n) * math.exp(-1 / PAPER_BETA)
        assert soft_value(n, k, PAPER_BETA) == pytest.approx(math.log(mean), abs=1e-12)


def test_no_success_gives_the_floor_without_a_prior_and_half_a_success_with_it() -> None:
    assert soft_value(800, 0, PAPER_BETA) == pytest.approx(FLOOR)
    assert soft_value(800, 0, PAPER_BETA, prior=0.5) == soft_value_of_share(0.5 / 801, PAPER_BETA)


def test_prior_changes_nothing_once_there_is_a_success() -> None:
    assert soft_value(800, 1, PAPER_BETA, prior=0.5) == soft_value(800, 1, PAPER_BETA)


def test_certain_success_has_value_0_and_values_increase() -> None:
    assert soft_value(10, 10, PAPER_BETA) == 0.0
    values = [soft_value(800, k, PAPER_BETA) for k in range(801)]
    assert values == sorted(values)


def test_large_beta_does_not_lose_digits() -> None:
    assert soft_value(10, 5, 1e6) == pytest.approx(-0.5e-6, rel=1e-6)


def test_sampled_rewards_agree_with_counts_and_allow_fractions() -> None:
    assert soft_value_of_rewards([0, -1, -1, 0], PAPER_BETA) == pytest.approx(soft_value(4, 2, PAPER_BETA))
    expected = math.log((1 + math.exp(-0.25 / PAPER_BETA)) / 2)
    assert soft_value_of_rewards([0, -0.25], PAPER_BETA) == pytest.approx(expected)
    assert soft_value_of_rewards([-1.0], 0.001) == pytest.approx(-1000)


@pytest.mark.parametrize("n,k,beta,prior", [(0, 0, 0.1, 0.0), (3, 4, 0.1, 0.0), (3, 1, 0.0, 0.0), (3, 0, 0.1, -1.0)])
def test_impossible_arguments_are_refused(n: int, k: int, beta: float, prior: float) -> None:
    with pytest.raises(ValueError):
        soft_value(n, k, beta, prior=prior)


@pytest.mark.parametrize("rewards", [[], [0.5], [-1.5]])
def test_impossible_rewards_are_refused(rewards: list[float]) -> None:
    with pytest.raises(ValueError):
        soft_value_of_rewards(rewards, 0.1)


def test_a_beta_quantile_of_integers_is_where_a_binomial_tail_is() -> None:
    for a, b, x in [(1, 1, 0.3), (2, 3, 0.5), (5, 6, 0.9), (40, 3, 0.95), (10, 191, 0.02), (200, 201, 0.5)]:
        n, p = a + b - 1, Fraction(x).limit_denominator(100)
        tail = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(a, n + 1))
        assert beta_quantile(float(tail), a, b) == pytest.approx(float(p), rel=1e-10)


def test_a_beta_quantile_of_halves_follows_the_arcsine_law() -> None:
    for probability in (1e-9, 0.01, 0.3, 0.5, 0.99):
        assert beta_quantile(probability, 0.5, 0.5) == pytest.approx(
            math.sin(math.pi * probability / 2) ** 2, rel=1e-10
        )


@pytest.mark.parametrize(
    "n,k,low,high",
    [
        (10, 0, 0.0, 0.2172),
        (10, 3, 0.0927, 0.6058),
        (10, 10, 0.7828, 1.0),
        (20, 1, 0.0055, 0.2114),
        (30, 15, 0.3284, 0.6716),
    ],
)
def test_jeffreys_intervals_match_published_ones(n: int, k: int, low: float, high: float) -> None:
    assert beta_interval(n, k) == pytest.approx((low, high), abs=1e-3)


def test_nothing_known_gives_the_whole_interval() -> None:
    assert beta_interval(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize("n,share", [(10, 0.3), (10, 0.5), (50, 0.1), (800, 0.01), (800, 0.5)])
def test_jeffreys_interval_covers_the_truth_about_as_often_as_it_says(n: int, share: float) -> None:
    covered = 0.0
    for k in range(n + 1):
        low, high = beta_interval(n, k)
        if low <= share <= high:
            log_chance = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            covered += math.exp(log_chance + k * math.log(share) + (n - k) * math.log1p(-share))
    assert 0.88 <= covered <= 0.99


def test_soft_value_interval_holds_the_soft_value_and_reaches_the_floor_without_a_success() -> None:
    low, high = soft_value_interval(800, 4, PAPER_BETA)
    assert low < soft_value(800, 4, PAPER_BETA) < high < 0
    assert soft_value_interval(800, 0, PAPER_BETA)[0] == pytest.approx(FLOOR)


@pytest.mark.parametrize("p,freedom,expected", [(0.975, 10, 2.228139), (0.95, 1, 6.313752), (0.025, 31, -2.039513)])
def test_student_quantiles_match_the_tables(p: float, freedom: int, expected: float) -> None:
    assert student_quantile(p, freedom) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_impossible_levels_are_refused(level: float) -> None:
    with pytest.raises(ValueError):
        beta_interval(10, 3, level)
