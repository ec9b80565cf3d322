"""pass@k and its mean over problems."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from tasks.estimators import average_pass_at_k, pass_at_k


def oracle(n: int, c: int, k: int) -> Fraction:
    """1 minus the probability of k failures in a row without replacement."""
    miss = Fraction(1)
    for i in range(k):
        miss *= Fraction(max(0, n - c - i), n - i)
    return 1 - miss


def test_equals_the_exact_ratio_for_every_n_up_to_30() -> None:
    for n in range(1, 31):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            assert pass_at_k(n, c, k) == float(oracle(n, c, k)), (n, c, k)


def test_equals_the_share_of_subsets_that_hold_a_correct_sample() -> None:
    for n, c, k in [(6, 2, 3), (7, 1, 4), (8, 8, 2), (8, 0, 8)]:
        subsets = list(itertools.combinations(range(n), k))
        assert pass_at_k(n, c, k) == sum(any(i < c for i in subset) for subset in subsets) / len(subsets)


def test_large_counts_stay_exact() -> None:
    assert pass_at_k(10_000, 1, 1) == 1e-4
    assert pass_at_k(800, 1, 10) == float(oracle(800, 1, 10))
    assert pass_at_k(10_000, 5_000, 100) == pytest.approx(1.0, abs=1e-15)


def test_pass_at_1_is_the_share_and_pass_at_k_grows_with_k() -> None:
    assert pass_at_k(20, 7, 1) == 0.35
    values = [pass_at_k(20, 3, k) for k in range(1, 21)]
    assert values == sorted(values)
    assert values[-1] == 1.0


@pytest.mark.parametrize("n,c,k", [(20, 3, 21), (20, 3, 0), (5, 6, 1), (5, -1, 1), (0, 0, 1)])
def test_impossible_arguments_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError):
        pass_at_k(n, c, k)


def test_mean_over_problems_is_not_the_pass_rate_of_pooled_samples() -> None:
    estimate = average_pass_at_k({"": [(20, 20), (20, 0)]}, 10)
    assert estimate.value == 0.5
    assert estimate.problems == 2
    assert estimate.low <= 0.5 <= estimate.high


def test_resampling_with_replacement_would_be_biased_and_is_not_what_is_done() -> None:
    replaced = 1 - (1 - 1 / 20) ** 10
    assert replaced == pytest.approx(0.401, abs=1e-3)
    assert average_pass_at_k({"": [(20, 1)] * 5}, 10).value == 0.5


def test_same_seed_same_interval_and_other_seed_nearly_the_same() -> None:
    counts = [(20, c % 21) for c in range(60)]
    one, again, other = (average_pass_at_k({"": counts}, 10, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.low == pytest.approx(other.low, abs=0.02)


def test_problem_sets_weigh_the_same_whatever_their_size() -> None:
    small, large = [(20, 20)] * 3, [(20, 0)] * 300
    estimate = average_pass_at_k({"small": small, "large": large}, 1)
    assert estimate.value == 0.5
    assert estimate.problems == 303


def test_no_problems_is_an_error() -> None:
    with pytest.raises(ValueError):
        average_pass_at_k({"": []}, 1)
    with pytest.raises(ValueError):
        average_pass_at_k({"empty": []}, 1)


def test_agreeing_problems_do_not_make_an_interval_of_width_zero() -> None:
    estimate = average_pass_at_k({"": [(20, 20)] * 30}, 1)
    assert estimate.value == estimate.high == 1.0
    assert 0.9 < estimate.low < 1.0
    assert math.isclose(average_pass_at_k({"": [(20, 0)] * 30}, 1).high, 1 - estimate.low, abs_tol=0.04)
