"""Comparing two policies, two proportions, and samples with each other."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from tasks.estimators import (
    Counts,
    average_paired_difference,
    average_pass_at_k,
    bootstrap_interval,
    difference_p_value,
    pass_at_k,
    sign_test,
)
from tasks.report.table_sections import difference_text
from tests.refusals import refused


def test_fisher_p_values_match_tables_added_up_by_hand() -> None:
    assert difference_p_value((4, 3), (4, 1)) == pytest.approx(34 / 70)
    assert difference_p_value((10, 10), (10, 0)) == pytest.approx(2 / math.comb(20, 10))
    assert difference_p_value((10, 1), (12, 5)) == pytest.approx((924 + 7920 + 3024 + 210) / 74613)


def test_equal_or_empty_counts_are_no_evidence() -> None:
    assert difference_p_value((10, 4), (10, 4)) == 1.0
    assert difference_p_value((0, 0), (10, 4)) == 1.0


def test_p_value_is_symmetric() -> None:
    assert difference_p_value((10, 2), (800, 500)) == pytest.approx(difference_p_value((800, 500), (10, 2)))
    assert difference_p_value((10, 2), (25, 20)) == pytest.approx(difference_p_value((10, 8), (25, 5)))


@pytest.mark.parametrize("sizes", [(10, 10), (5, 20), (10, 60)])
def test_equal_proportions_are_called_different_at_most_as_often_as_stated(sizes: tuple[int, int]) -> None:
    n1, n2 = sizes
    for share in (0.05, 0.2, 0.5, 0.8):
        rejected = sum(
            math.comb(n1, a) * math.comb(n2, b) * share ** (a + b) * (1 - share) ** (n1 + n2 - a - b)
            for a in range(n1 + 1)
            for b in range(n2 + 1)
            if difference_p_value((n1, a), (n2, b)) <= 0.1
        )
        assert rejected <= 0.1


@pytest.mark.parametrize(
    "better,worse,expected", [(0, 0, 1.0), (1, 0, 1.0), (9, 1, 22 / 1024), (5, 5, 1.0), (0, 10, 2 / 1024)]
)
def test_sign_test_matches_counting_coin_throws(better: int, worse: int, expected: float) -> None:
    assert sign_test(better, worse) == pytest.approx(expected)


def test_paired_difference_counts_problems_and_has_the_sign_of_b_minus_a() -> None:
    a = {f"p{i}": (20, 5) for i in range(20)}
    b = {f"p{i}": (20, 5 if i < 4 else 9 if i < 18 else 2) for i in range(20)}
    result = average_paired_difference({"": a}, {"": b}, 1)
    assert (result.better, result.worse, result.equal) == (14, 2, 4)
    assert result.difference == pytest.approx((14 * 0.2 - 2 * 0.15) / 20)
    assert result.low < result.difference < result.high
    assert result.p_value == sign_test(14, 2)


def test_pairing_sees_a_small_difference_that_unpaired_intervals_hide() -> None:
    a = {f"p{i}": (20, i % 20) for i in range(60)}
    b = {f"p{i}": (20, i % 20 + 1) for i in range(60)}
    apart = average_pass_at_k({"": list(a.values())}, 1), average_pass_at_k({"": list(b.values())}, 1)
    assert apart[0].high > apart[1].low
    assert average_paired_difference({"": a}, {"": b}, 1).low > 0


def test_different_problems_cannot_be_paired() -> None:
    with refused("ValueError", "'q'"):
        average_paired_difference({"": {"p": (20, 1)}}, {"": {"p": (20, 1), "q": (20, 1)}}, 1)


@pytest.mark.parametrize("others", [(), (np.array([0.2]),), (np.linspace(0, 1, 40), np.linspace(0, 1, 3))])
def test_a_set_of_one_problem_has_no_interval_and_leaves_none_to_the_mean_with_others(others: Any) -> None:
    assert all(math.isnan(end) for end in bootstrap_interval(np.array([0.5]), *others, seed=0))
    assert all(math.isnan(end) for end in bootstrap_interval(*others, np.array([0.5]), seed=0))


def test_two_problems_are_enough_for_a_set_among_others() -> None:
    low, high = bootstrap_interval(np.array([0.0, 1.0]), np.full(40, 0.5), seed=0)
    assert low < 0.5 < high


def test_policies_compared_over_a_set_of_one_problem_have_a_difference_and_no_interval() -> None:
    many = {f"p{i}": (10, i % 10) for i in range(30)}
    found = average_paired_difference({"one": {"q": (10, 1)}, "many": many}, {"one": {"q": (10, 9)}, "many": many}, 1)
    assert found.difference == pytest.approx(0.4)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert difference_text(found) == "+40.0 points, 95% interval unknown"


def population(kind: str, size: int, generator: np.random.Generator) -> np.ndarray:
    if kind == "spread":
        return generator.beta(0.3, 0.9, size)
    if kind == "hard":
        return np.where(generator.random(size) < 0.8, 0.0, generator.beta(0.5, 2, size))
    if kind == "two kinds":
        return np.where(generator.random(size) < 0.5, 0.02, 0.9)
    return generator.beta(3, 0.4, size)


@pytest.mark.parametrize(
    "kind,k,problems", [("spread", 1, 32), ("spread", 10, 32), ("hard", 10, 48), ("two kinds", 10, 100)]
)
def test_bootstrap_interval_covers_the_true_pass_at_k_as_stated(kind: str, k: int, problems: int) -> None:
    generator = np.random.default_rng(1)
    table = np.array([pass_at_k(20, c, k) for c in range(21)])
    truth = table[generator.binomial(20, population(kind, 200_000, generator))].mean()
    covered = 0
    for trial in range(400):
        correct = generator.binomial(20, population(kind, problems, generator))
        estimate = average_pass_at_k({"": [(20, int(c)) for c in correct]}, k, seed=trial)
        covered += estimate.low <= truth <= estimate.high
    assert 0.90 <= covered / 400 <= 0.975


def test_interval_covers_nearly_solved_sets_too() -> None:
    generator = np.random.default_rng(2)
    table = np.array([pass_at_k(20, c, 10) for c in range(21)])
    truth = table[generator.binomial(20, population("easy", 200_000, generator))].mean()
    covered = 0
    for trial in range(200):
        correct = generator.binomial(20, population("easy", 32, generator))
        estimate = average_pass_at_k({"": [(20, int(c)) for c in correct]}, 10, seed=trial)
        covered += estimate.low <= truth <= estimate.high
    assert covered / 200 >= 0.90


def test_paired_interval_covers_the_true_difference_as_stated() -> None:
    generator = np.random.default_rng(3)
    covered = 0
    for trial in range(400):
        shares = population("spread", 40, generator)
        lifted = shares + 0.2 * (1 - shares)
        a = {str(i): (20, int(c)) for i, c in enumerate(generator.binomial(20, shares))}
        b = {str(i): (20, int(c)) for i, c in enumerate(generator.binomial(20, lifted))}
        result = average_paired_difference({"": a}, {"": b}, 1, seed=trial)
        covered += result.low <= 0.2 * (1 - 0.25) <= result.high
    assert 0.90 <= covered / 400 <= 0.975


def test_sets_weigh_the_same_in_a_paired_difference_and_pair_within_themselves() -> None:
    a = {"small": {"p0": (20, 0)}, "large": {f"p{i}": (20, 10) for i in range(9)}}
    b = {"small": {"p0": (20, 20)}, "large": {f"p{i}": (20, 10) for i in range(9)}}
    found = average_paired_difference(a, b, 1)
    assert found.difference == pytest.approx(0.5)
    assert (found.better, found.worse, found.equal) == (1, 0, 9)
    with refused("ValueError", "'p0'"):
        average_paired_difference(a, {"large": b["large"]}, 1)


@pytest.mark.parametrize("small, at_least", [(3, 0.83), (12, 0.90)])
def test_interval_over_sets_of_uneven_size_covers_the_true_difference_as_stated(small: int, at_least: float) -> None:
    draws, inside = random.Random(5), 0
    sizes = {"small": small, "large": 60}
    for repeat in range(300):
        a: dict[str, dict[str, Counts]] = {}
        b: dict[str, dict[str, Counts]] = {}
        for name, size in sizes.items():
            shares = [draws.random() * 0.8 for _ in range(size)]
            a[name] = {str(i): (20, sum(draws.random() < s for _ in range(20))) for i, s in enumerate(shares)}
            b[name] = {str(i): (20, sum(draws.random() < s + 0.2 for _ in range(20))) for i, s in enumerate(shares)}
        found = average_paired_difference(a, b, 1, seed=repeat)
        inside += found.low <= 0.2 <= found.high
    assert at_least <= inside / 300 <= 0.985
