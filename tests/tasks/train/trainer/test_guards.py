"""What a run leaves behind when a guard stops it, and how it goes on."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tasks.scoring.reference import fingerprint
from tasks.train.shared.job import TrainJob
from tasks.train.trainer import checkpoint
from tests.tasks.train.conftest import RUN, config, fill, make_job
from tests.tasks.train.trainer.test_runs import outcome, run
from tests.tasks.train.trainer_process import start
from warehouse import Warehouse

RECORDED = "SELECT step, batch_id, trajectory_ids FROM train_batches ORDER BY step"
REFERENCES = "SELECT DISTINCT trajectory_id FROM reference_logprobs"
BAD = "online-0010"
"""Trained on in step 3; its stored reference log-probabilities are NaN."""


def poisoned(folder: Path, reference: Path, **train: Any) -> TrainJob:
    """A job that meets a trajectory whose value is not finite, with enough others to do without."""
    fill(folder / "warehouse", reference, online=32)
    job = make_job(folder, reference, config(**train))
    job.write(folder / "job.json")
    with Warehouse.open(job.warehouse) as warehouse:
        length = warehouse.value("SELECT len(token_ids) FROM trajectories WHERE trajectory_id = ?", (BAD,))
        row = {
            "trajectory_id": BAD,
            "fingerprint": fingerprint(reference, job.train, "float32", "cpu"),
            "logprobs": [float("nan")] * length,
        }
        warehouse.append("poison", {"reference_logprobs": [row]}, run_id="setup")
    return job


def stopped(job: TrainJob) -> dict[str, Any]:
    """The last line of a run that ends with an error."""
    process = start(job)
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 1, errors.decode()[-2000:]
    return next(json.loads(line) for line in out.splitlines() if b'"error"' in line)


def quarantine(job: TrainJob, batch: str) -> None:
    with Warehouse.open(job.warehouse) as warehouse:
        row = {"bad_batch_id": batch, "reason": "a value that is not finite"}
        warehouse.append(f"quarantine/{batch}", {"quarantine": [row]}, run_id="setup")


def test_a_stopped_run_names_the_trajectory_and_goes_on_without_it(reference: Path, tmp_path: Path) -> None:
    job = poisoned(tmp_path, reference)
    line = stopped(job)
    assert line["kind"] == "NonFinite"
    batch = f"rollout/{RUN}/0/00000001"
    for part in (BAD, "In step 3", "checkpoint of step 2", f"spo quarantine {batch}"):
        assert part in line["error"]
    again = stopped(job)
    assert again["kind"] == "ReferenceDrift", "resumed, it takes the same batch again and checks what is stored of it"
    assert "spo quarantine poison" in again["error"]
    quarantine(job, batch)
    result = outcome(run(job))
    used = [identity for ids in result["batches"].values() for identity in ids if identity.startswith("online")]
    assert sorted(used) == [f"online-{i:04d}" for i in range(32) if not 8 <= i < 16]


def test_a_step_whose_trajectories_were_quarantined_after_it_was_recorded_is_drawn_anew(
    reference: Path, tmp_path: Path
) -> None:
    job = poisoned(tmp_path, reference, checkpoint_interval=100)
    stopped(job)
    for folder in job.checkpoints.iterdir():
        folder.rename(tmp_path / folder.name)  # as if the process had been killed before it was written
    quarantine(job, f"rollout/{RUN}/0/00000000")  # what steps 1 and 2 used
    quarantine(job, "poison")
    with Warehouse.open(job.warehouse) as warehouse:
        before = warehouse.rows(RECORDED)
        first = warehouse.rows(REFERENCES)
    result = outcome(run(job))["batches"]
    assert set(result) == set(range(1, 7))
    bad = {f"online-{i:04d}" for i in range(8)}
    assert bad <= {identity for row in before for identity in row["trajectory_ids"]}
    assert not bad & {identity for ids in result.values() for identity in ids}, "what is recorded is what was used"
    with Warehouse.open(job.warehouse) as warehouse:
        doubled = "SELECT step, name FROM train_steps GROUP BY ALL HAVING count(*) > 1"
        assert not warehouse.rows(doubled), "figures of a step that was taken otherwise are superseded, too"
        assert {row["trajectory_id"] for row in first} <= {row["trajectory_id"] for row in warehouse.rows(REFERENCES)}
        replaced = warehouse.rows("SELECT * FROM quarantine WHERE reason LIKE 'superseded by train/%'")
        assert {row["bad_batch_id"] for row in replaced} == {row["batch_id"] for row in before}
        now = warehouse.rows(RECORDED)
    shutil.rmtree(job.checkpoints)
    outcome(run(job))
    with Warehouse.open(job.warehouse) as warehouse:
        assert warehouse.rows(RECORDED) == now, "taken again in the same way, it changes nothing"


@pytest.mark.slow
def test_several_processes_stop_together(reference: Path, tmp_path: Path) -> None:
    line = stopped(poisoned(tmp_path, reference, processes=2, zero_stage=2))
    assert BAD in line["error"]
    assert "checkpoint of step 2" in line["error"]


@pytest.mark.slow
def test_several_processes_that_wait_for_rollouts_stop_with_a_checkpoint(reference: Path, tmp_path: Path) -> None:
    """The first one alone waits for trajectories; what ends its waiting ends all."""
    fill(tmp_path / "warehouse", reference, online=4)  # of the eight that the first two steps take
    job = make_job(tmp_path, reference, config(processes=2))
    job.write(tmp_path / "job.json")
    process = start(job)
    assert process.stdout is not None
    assert b'"done": 1' in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=200)
    assert "checkpoint of step 1 written" in errors.decode()
    assert checkpoint.newest_step(job.checkpoints) == 1
