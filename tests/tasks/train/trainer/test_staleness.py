"""Used again, the same samples teach more, however far the policy has moved from what sampled them (decision 14)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.train.conftest import config
from tests.tasks.train.trainer.toy_task import BATCH, mean, pretrained, train


@pytest.fixture(scope="module")
def reference() -> Any:
    return pretrained()


def last_quarter(reference: Any, uses: int, window: int) -> tuple[float, float]:
    """Share of the new responses that pass, and log-ratio of those used again, in the last quarter of the toy's run.

    Each of 1,920 responses is used so many times on average.
    """
    replayed = {"replay": {"share": 1 - 1 / uses}} if uses > 1 else {}
    reuse = {"replay": {"uses": 64, "window": window}} if uses > 1 else {}
    shares = {"online": {"share": 1 / uses}} | replayed
    settings = config(batch_size=BATCH, sources=shares, clip_epsilon=0.7, **reuse).train
    found = train(reference, settings, 60 * uses, rate=1e-3)
    late = found[-len(found) // 4 :]
    return mean(late, "online/pass_fraction"), mean(late, "replay/log_ratio") if uses > 1 else 0.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_samples_used_again_teach_more_than_samples_used_once_at_every_window(reference: Any) -> None:
    once, _ = last_quarter(reference, 1, 1)
    assert once < 0.9
    for uses, window in ((2, 10), (2, 40), (2, 160), (4, 10), (4, 40), (4, 160)):
        passed, _ = last_quarter(reference, uses, window)
        assert passed > 0.95, (uses, window)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wide_window_draws_what_the_policy_has_left_far_behind_and_loses_nothing(reference: Any) -> None:
    near, far = last_quarter(reference, 2, 10), last_quarter(reference, 2, 160)
    assert far[1] > 5 * near[1]
    assert far[0] > near[0] - 0.03
