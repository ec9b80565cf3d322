"""Quarantined batches of a stage are part of what it reads."""

from __future__ import annotations

from collections.abc import Callable

from tests.tasks.conftest import Lab


def test_evaluation_samples_that_were_put_aside_are_drawn_again(copied: Callable[[], Lab]) -> None:
    lab, counted = copied(), "SELECT count(*) FROM eval_samples"
    before = lab.value(counted)
    with lab.store() as store:
        batch = store.value("SELECT min(batch_id) FROM eval_samples")
        store.append("bad", {"quarantine": [{"bad_batch_id": batch, "reason": "by hand"}]}, run_id="by hand")
    assert lab.value(counted) < before
    assert not lab.run("micro-1", "evaluate")["evaluate"].skipped
    assert lab.value(counted) == before
    assert lab.run("micro-1", "evaluate")["evaluate"].skipped
