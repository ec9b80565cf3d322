"""Trainers that use trajectories again, killed at any moment: the uses recorded are the uses made."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tasks.train.shared.job import TrainJob
from tests.tasks.train.conftest import RUN
from tests.tasks.train.trainer.test_runs import assert_identical, job_in, kill_at, outcome, run
from tests.tasks.train.trainer_process import start
from warehouse import Warehouse

STEPS = 10
KILLS = 20
REPLAYED: dict[str, Any] = {
    "steps": STEPS,
    "snapshot_interval": 5,
    "checkpoint_interval": 3,
    "sources": {"online": {"share": 0.25}, "replay": {"share": 0.5}, "offline": {"share": 0.25}},
    "replay": {"uses": 3, "window": 4, "rule": "balanced"},
}


@pytest.fixture(scope="module")
def whole(stocked: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(run(job_in(stocked, reference, tmp_path_factory.mktemp("whole"), **REPLAYED)))


def assert_uses_are_recorded_once(job: TrainJob) -> None:
    """Every use is one row, none beyond what the recipe allows, and nothing is used before it was new."""
    with Warehouse.open(job.warehouse) as warehouse:
        rows = warehouse.rows("SELECT * FROM uses WHERE run_id = ? AND source <> 'offline' ORDER BY step, use", (RUN,))
        steps = warehouse.rows("SELECT step FROM train_batches WHERE run_id = ? ORDER BY step", (RUN,))
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    assert len({(row["step"], row["trajectory_id"]) for row in rows}) == len(rows)
    assert max(row["use"] for row in rows) <= 3
    assert max(row["steps_since_first"] for row in rows) <= 4
    assert all((row["source"] == "online") == (row["use"] == 1) for row in rows)
    assert Counter(row["source"] for row in rows) == {"online": 20, "replay": 2 + 4 * 8}


def test_a_killed_run_uses_again_what_it_would_have_used(
    stocked: Path, reference: Path, tmp_path: Path, whole: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path, **REPLAYED)
    kill_at(job, 2)
    kill_at(job, 4)
    assert_identical(outcome(run(job)), whole)
    assert_uses_are_recorded_once(job)


def struck_after(job: TrainJob, seconds: float) -> bool:
    """Start the trainer and kill it that much later; False when it had ended by then."""
    process = start(job)
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_kills_leave_the_uses_that_were_made_and_the_losses_that_would_have_been(
    stocked: Path, reference: Path, tmp_path: Path, whole: dict[str, Any]
) -> None:
    """Runs are killed at random moments and resumed, one after the other, until twenty kills have struck."""
    chance, kills, number = random.Random(21), 0, 0
    while kills < KILLS:
        job, number = job_in(stocked, reference, tmp_path / str(number), **REPLAYED), number + 1
        while kills < KILLS and not job.manifest.exists():
            kills += struck_after(job, chance.uniform(0.3, 6.0))
        assert_identical(outcome(run(job)), whole)
        assert_uses_are_recorded_once(job)
