"""A run that really collapses is announced before it has, and a sound one is not.

On a toy (toy_task), trained on its own samples alone at a high rate, as docs/decisions/0005 tells.
"""

from __future__ import annotations

from typing import Any

import pytest

from tasks.config import GuardConfig
from tasks.train.trainer.guards import CollapseWatch
from tasks.train.trainer.metrics import Figures
from tests.tasks.train.conftest import config
from tests.tasks.train.trainer.toy_task import BATCH, mean, pretrained, train


@pytest.fixture(scope="module")
def reference() -> Any:
    return pretrained()


def warned(found: list[Figures]) -> dict[str, int]:
    """Kind of warning -> first step with it."""
    watch, first = CollapseWatch(GuardConfig()), dict[str, int]()
    for step, figures in enumerate(found, start=1):
        for kind in watch.warnings(figures):
            first.setdefault(kind, step)
    return first


def test_a_collapse_is_announced_before_every_sample_fails(reference: Any) -> None:
    settings = config(batch_size=BATCH, clip_epsilon=0.01, sources={"online": {"share": 1.0}}).train
    found = train(reference, settings, 45, rate=3e-3)
    assert mean(found[-5:], "pass_fraction") == 0
    assert mean(found[-5:], "online/stop_fraction") < mean(found[:5], "online/stop_fraction") / 2
    gone = next(i + 1 for i in range(len(found)) if all(f["pass_fraction"] == 0 for f in found[i:]))
    first = warned(found)
    assert {"pull", "clipped", "stop", "length"} <= set(first)
    assert first["pull"] <= gone - 5


def test_a_run_that_learns_is_not_warned_of(reference: Any) -> None:
    settings = config(batch_size=BATCH, clip_epsilon=0.7, sources={"online": {"share": 1.0}}).train
    found = train(reference, settings, 45, rate=1e-3)
    assert mean(found[-5:], "pass_fraction") > 2 * mean(found[:5], "pass_fraction")
    assert warned(found) == {}


def test_a_value_model_that_says_nothing_and_is_far_off_is_warned_of() -> None:
    cases = {(-0.2, 0.0, -0.8): {"value"}, (-0.2, -0.7, -0.8): set[str](), (0.1, 0.0, -0.8): set[str]()}
    for (explained, value, returned), kinds in cases.items():
        watch = CollapseWatch(GuardConfig())
        figures = {"explained_variance": explained, "value": value, "return": returned}
        assert set([watch.warnings(figures) for _ in range(10)][-1]) == kinds


def test_where_values_are_not_trained_failures_above_0_are_no_symptom() -> None:
    symptoms = {"grad_norm": 1.0, "online/stop_fraction": 0.1, "clipped_fraction": 0.9}
    for regression, kinds in ((True, {"clipped", "stop"}), (False, {"stop"})):
        watch = CollapseWatch(GuardConfig(), regression=regression)
        assert set([watch.warnings(symptoms) for _ in range(10)][-1]) == kinds


def test_the_length_is_compared_with_that_of_as_many_steps_ago_as_are_known() -> None:
    watch = CollapseWatch(GuardConfig())
    lengths = [20.0] * 5 + [60.0] * 5
    told = [watch.warnings({"grad_norm": 1.0, "online/length": length}) for length in lengths][-1]
    assert told["length"] == "online responses have 60.0 tokens on average; 10 steps ago it was 20.0"


def test_fractional_rewards_say_something_where_nothing_passes_every_test() -> None:
    watch = CollapseWatch(GuardConfig(), binary=False)
    assert not [watch.warnings({"grad_norm": 1.0, "online/pass_fraction": 0.0}) for _ in range(9)][-1]


def test_rewards_of_one_class_are_warned_of_where_they_last_and_something_is_missing() -> None:
    successes, failures = {"offline/pass_fraction": 1.0}, {"online/pass_fraction": 0.0}
    mixed, chance = {**successes, "online/pass_fraction": 0.0}, [failures] * 4 + [{"online/pass_fraction": 0.1}]
    cases: list[tuple[list[Figures], bool, str]] = [
        ([successes] * 5, False, "successes only (offline): nothing says what fails"),
        ([successes] * 5, True, ""),
        ([successes] * 4, False, ""),
        ([failures] * 5, False, "failures only (online): nothing says what succeeds"),
        ([failures] * 5, True, "failures only (online): nothing says what succeeds"),
        (chance, False, ""),
        ([mixed] * 20, False, ""),
    ]
    for found, imitation, message in cases:
        watch = CollapseWatch(GuardConfig(), imitation=imitation)
        last = [watch.warnings({"grad_norm": 1.0, **figures}) for figures in found][-1]
        assert last.get("one class", "").endswith(message)
        assert bool(message) == ("one class" in last)
