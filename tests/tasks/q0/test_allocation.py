"""What the allocation of Q0's samples promises: totals, stopping, and smaller errors than uniform sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from tasks.config import PAPER_BETA, Q0Config
from tasks.estimators import soft_value, soft_value_of_share
from tasks.q0.allocation import adaptive, plan, weight, width

ADAPTIVE = Q0Config(samples=100, adaptive=True, narrow_nats=1e-9)


def drawn(shares: Mapping[str, float], config: Q0Config, seed: int) -> dict[str, tuple[int, int]]:
    """Counts after sampling as planned from prompts with these success probabilities."""
    generator = np.random.default_rng(seed)
    counts = dict.fromkeys(shares, (0, 0))
    while work := plan(counts, config, PAPER_BETA):
        for name, number in work.items():
            n, k = counts[name]
            counts[name] = (n + number, k + int(generator.binomial(number, shares[name])))
    return counts


def test_uniform_tops_up_what_is_missing_and_nothing_else() -> None:
    counts = {"new": (0, 0), "half": (50, 3), "full": (100, 0), "more": (150, 1)}
    assert plan(counts, Q0Config(samples=100), PAPER_BETA) == {"new": 100, "half": 50}


def test_adaptive_spends_exactly_the_uniform_total() -> None:
    shares = {f"p{i}": 0.9 / (i + 1) ** 2 for i in range(30)}
    counts = drawn(shares, ADAPTIVE, seed=1)
    assert sum(n for n, _ in counts.values()) == 100 * len(shares)
    assert min(n for n, _ in counts.values()) >= 25


@pytest.mark.parametrize("narrow", [1e-9, 0.3, 1.0, 2.0])
def test_without_samples_of_others_it_spends_no_more_than_the_uniform_total(narrow: float) -> None:
    config = ADAPTIVE.model_copy(update={"narrow_nats": narrow})
    for seed in range(20):
        values = 10 ** np.random.default_rng([seed, 5]).uniform(-3, 0, 40)
        counts = drawn({f"p{i:02d}": float(share) for i, share in enumerate(values)}, config, seed)
        assert sum(n for n, _ in counts.values()) <= 100 * len(counts)


@pytest.mark.parametrize(
    "known",
    [
        {f"known{i}": (800, 16) for i in range(40)},
        {f"topped{i}": (3200, 0) for i in range(10)},
        {f"topped{i}": (3200, 0) for i in range(10)} | {f"easy{i}": (100, 60) for i in range(38)},
    ],
)
def test_new_prompts_get_their_share_whatever_others_have_too_much(known: dict[str, tuple[int, int]]) -> None:
    generator = np.random.default_rng(4)
    counts = known | {f"new{i}": (0, 0) for i in range(20)}
    while work := plan(counts, ADAPTIVE, PAPER_BETA):
        for name, number in work.items():
            n, k = counts[name]
            counts[name] = (n + number, k + int(generator.binomial(number, 0.02)))
    new = [n for name, (n, _) in counts.items() if name.startswith("new")]
    assert sum(new) >= 0.8 * 100 * len(new)
    assert all(counts[name] == had for name, had in known.items())


@pytest.mark.parametrize("share", [0.3, 0.8, 0.95])
def test_what_a_prompt_has_too_much_brings_it_no_more(share: float) -> None:
    """Its own interval stays wide however much it gets, so it would take round after round."""
    generator = np.random.default_rng(6)
    known = {f"hopeless{i}": (3200, 0) for i in range(5)}
    counts, rounds = known | {f"new{i}": (0, 0) for i in range(95)}, 0
    while work := plan(counts, ADAPTIVE, PAPER_BETA):
        rounds += 1
        for name, number in work.items():
            n, k = counts[name]
            counts[name] = (n + number, k + int(generator.binomial(number, share)))
    assert all(counts[name] == had for name, had in known.items())
    assert sum(n for n, _ in counts.values()) - 5 * 3200 <= 100 * len(counts)
    assert rounds <= 40


@pytest.mark.parametrize("share", [0.3, 0.8, 0.95])
def test_a_top_up_is_not_followed_by_rounds_without_end(share: float) -> None:
    shares = {f"p{i}": share for i in range(95)} | {f"hopeless{i}": 0.0 for i in range(5)}
    counts = drawn(shares, ADAPTIVE.model_copy(update={"zero_top_up": 3200}), seed=2)
    assert all(counts[f"hopeless{i}"] == (3200, 0) for i in range(5))
    assert sum(n for name, (n, _) in counts.items() if name.startswith("p")) <= 1.1 * 100 * len(counts)


def test_hard_prompts_get_what_easy_ones_leave() -> None:
    counts = drawn({"easy": 0.95, "middle": 0.3, "hard": 0.01}, ADAPTIVE, seed=2)
    assert counts["easy"][0] < counts["middle"][0] < counts["hard"][0]


def test_a_prompt_whose_interval_is_narrow_is_left_alone_and_the_rest_is_saved() -> None:
    config = Q0Config(samples=100, adaptive=True, narrow_nats=0.5)
    counts = drawn({"easy": 0.95, "easier": 0.99}, config, seed=3)
    assert all(width(c, PAPER_BETA) <= 0.5 for c in counts.values())
    assert sum(n for n, _ in counts.values()) < 200


def test_the_plan_depends_on_counts_alone_so_that_a_broken_round_goes_on() -> None:
    counts = {"a": (40, 4), "b": (60, 1), "c": (25, 20)}
    whole = adaptive(counts, ADAPTIVE, PAPER_BETA)
    after_a = counts | {"a": (40 + whole.get("a", 0), 4)}
    rest = adaptive(after_a, ADAPTIVE, PAPER_BETA)
    assert sum(n for n, _ in after_a.values()) + sum(rest.values()) <= 300
    assert whole == adaptive(dict(reversed(counts.items())), ADAPTIVE, PAPER_BETA)


def test_shares_follow_the_weights_when_nothing_was_drawn_yet() -> None:
    counts = {"one": (100, 50), "other": (100, 10)}
    config = Q0Config(samples=10_000, adaptive=True, narrow_nats=1e-9)
    while work := adaptive(counts, config, PAPER_BETA):
        counts = {
            name: (n + work.get(name, 0), round((n + work.get(name, 0)) * k / n)) for name, (n, k) in counts.items()
        }
    ratio = weight(counts["other"]) / weight(counts["one"])
    assert counts["other"][0] / counts["one"][0] == pytest.approx(ratio, rel=0.02)
    assert ratio == pytest.approx(math.sqrt(9), rel=0.02)


def test_prompts_without_a_success_get_more_when_the_recipe_says_so() -> None:
    config = Q0Config(samples=100, zero_top_up=250)
    assert plan({"never": (100, 0), "once": (100, 1)}, config, PAPER_BETA) == {"never": 100}
    assert plan({"never": (200, 0), "once": (100, 1)}, config, PAPER_BETA) == {"never": 50}
    assert plan({"never": (250, 0), "once": (100, 1)}, config, PAPER_BETA) == {}
    assert plan({"never": (200, 1)}, config, PAPER_BETA) == {}


def test_nothing_is_planned_for_no_prompts() -> None:
    assert plan({}, ADAPTIVE, PAPER_BETA) == plan({}, Q0Config(), PAPER_BETA) == {}


def test_adaptive_has_a_smaller_squared_error_and_no_larger_bias_than_uniform() -> None:
    """Over 40 sets of 40 prompts with shares from 0.001 to 1."""
    errors: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(40):
        values = 10 ** np.random.default_rng([seed, 7]).uniform(-3, 0, 40)
        shares = {f"p{i:02d}": float(share) for i, share in enumerate(values)}
        for way in errors:
            counts = drawn(shares, ADAPTIVE.model_copy(update={"adaptive": way}), seed)
            errors[way] += [
                soft_value(n, k, PAPER_BETA, prior=0.5) - soft_value_of_share(shares[name], PAPER_BETA)
                for name, (n, k) in counts.items()
            ]
    squared = {way: float(np.mean(np.square(found))) for way, found in errors.items()}
    bias = {way: abs(float(np.mean(found))) for way, found in errors.items()}
    assert squared[True] < 0.95 * squared[False]
    assert bias[True] < bias[False]
