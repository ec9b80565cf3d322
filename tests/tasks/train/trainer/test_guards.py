"""What a run leaves behind when a guard stops it, and how it goes on."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks.checkpoints.checkpoint import PUBLISHED_FILE
from tasks.scoring.reference import fingerprint
from tasks.train.rollout_worker.backpressure import Backpressure
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.trainer import checkpoint
from tasks.train.trainer.loop import check, nothing_to_sample_from
from tasks.train.trainer.session import Session, open_session
from tasks.train.trainer.state import MixState, ReferenceSteps
from tests.fork_server import process_of
from tests.refusals import refused
from tests.tasks.train.conftest import RUN, config, fill, make_job
from tests.tasks.train.trainer.test_runs import assert_identical, job_in, kill_at, outcome, run
from tests.tasks.train.trainer_process import start
from warehouse import Warehouse
from warehouse.superseding import content
from warehouse.upkeep import maintenance

RECORDED = "SELECT step, batch_id, trajectory_ids FROM train_batches ORDER BY step"
FIGURES = "SELECT step, value FROM train_steps WHERE name = 'loss' ORDER BY step"
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


def test_doubted_log_probabilities_are_put_aside_without_the_steps_that_stored_them(
    reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=32)
    job = make_job(tmp_path, reference, config(steps=4))
    job.write(tmp_path / "job.json")
    outcome(run(job))
    with Warehouse.open(job.warehouse) as warehouse:
        before = warehouse.rows(RECORDED)
        found = warehouse.rows("SELECT * FROM reference_logprobs WHERE contains(batch_id, '/00000001/')")
        others = [content(row) | {"fingerprint": "of another reference"} for row in found]
        warehouse.append("train/another/00000001/scores/0", {"reference_logprobs": others}, run_id="another")

    def spoil(connection: Any, schema: str) -> int:
        spoilt = "list_transform(logprobs, lambda p: p - 1)"
        of_first = f"run_id = '{RUN}' AND contains(batch_id, '/00000001/')"
        connection.execute(f"UPDATE {schema}.reference_logprobs SET logprobs = {spoilt} WHERE {of_first}")
        return 0

    maintenance.rewrite(job.warehouse, spoil)
    shutil.rmtree(job.checkpoints)
    line = stopped(job)
    assert line["kind"] == "ReferenceDrift"
    (batch,) = re.findall(r"`spo quarantine (\S+)`", line["error"])
    assert batch.startswith(f"train/{RUN}/00000001/scores/")
    quarantine(job, batch)
    outcome(run(job))
    with Warehouse.open(job.warehouse) as warehouse:
        assert warehouse.rows(RECORDED) == before
        again = warehouse.rows("SELECT * FROM reference_logprobs WHERE contains(batch_id, '/00000001/')")
        own = {row["trajectory_id"]: row["logprobs"] for row in again if row["run_id"] == RUN}
    assert own == {row["trajectory_id"]: row["logprobs"] for row in found}, "computed anew and stored"


def test_a_checkpoint_of_no_step_asks_nothing_of_the_engine(reference: Path, tmp_path: Path) -> None:
    """It has no optimizer's state, which another number of processes could not take over (ZeRO 3)."""
    job = make_job(tmp_path, reference, config())
    for step in (0, 1):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        state = {"fits": vars(checkpoint)["_fits"](job), "processes": 2}
        (folder / checkpoint.STATE).write_text(json.dumps(state))
    asked: list[Path] = []
    engine: Any = SimpleNamespace(rank=0, load=lambda folder, **_: asked.append(folder))
    for step in (0, 1):
        found = checkpoint.Checkpoint(step, MixState(), ReferenceSteps(), tmp_path / f"step-{step}")
        checkpoint.load(job, engine, found)
    assert asked == [tmp_path / "step-1"]


@pytest.mark.parametrize(
    "step, found, folder, missing",
    [
        (25, None, "kept", True),
        (25, 10, "kept", False),  # workers follow it there from the beginning
        (25, 10, "memory", True),
        (25, 20, "memory", False),
        (20, 10, "memory", True),
        (19, 10, "memory", False),
        (19, 30, "memory", False),  # the process was killed after that
    ],
)
def test_weights_of_an_earlier_stay_on_this_machine_are_no_weights(
    step: int, found: int | None, folder: str, missing: bool, tmp_path: Path
) -> None:
    weights = tmp_path / folder
    weights.mkdir()
    if found is not None:
        newest = published_weights.folder_of(weights, found)
        newest.mkdir()
        (newest / PUBLISHED_FILE).write_text(f'{{"step": {found}, "policy_id": "p", "canaries": []}}')
        (weights / published_weights.LATEST).write_text(newest.name)
    train = SimpleNamespace(model_update_interval=10)
    session: Any = SimpleNamespace(job=SimpleNamespace(weights=weights, kept=tmp_path / "kept", train=train), step=step)
    assert nothing_to_sample_from(session) == missing


def test_a_hand_over_that_fails_is_told_before_anybody_waits_for_it() -> None:
    called: list[str] = []
    session: Any = SimpleNamespace(references=ReferenceSteps(), step=5)
    session.publish = lambda step: called.append(f"publish {step}")
    session.settle = lambda: called.append("settle")
    Session.hand_over(session)
    assert called == ["publish 5", "settle"]


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
        replaced = warehouse.rows("SELECT * FROM quarantine WHERE reason LIKE 'superseded by train%'")
        assert {row["bad_batch_id"] for row in replaced} == {row["batch_id"] for row in before}
        now = warehouse.rows(RECORDED)
    shutil.rmtree(job.checkpoints)
    outcome(run(job))
    with Warehouse.open(job.warehouse) as warehouse:
        assert warehouse.rows(RECORDED) == now, "taken again in the same way, it changes nothing"


def test_what_is_drawn_anew_is_recorded_once_however_often_the_run_is_stopped(reference: Path, tmp_path: Path) -> None:
    """Stopped again before it has reached the steps that were recorded first, the run leaves none of these behind."""
    fill(tmp_path / "warehouse", reference, online=32)
    job = make_job(tmp_path, reference, config(steps=4, checkpoint_interval=1))
    job.write(tmp_path / "job.json")
    outcome(run(job))
    with Warehouse.open(job.warehouse) as warehouse:
        first = warehouse.rows(FIGURES)
    for folder in job.checkpoints.iterdir():
        folder.rename(tmp_path / folder.name)
    quarantine(job, f"rollout/{RUN}/0/00000000")
    kill_at(job, 2)
    second = outcome(run(job))
    with Warehouse.open(job.warehouse) as warehouse:
        now = warehouse.rows(FIGURES)
        steps = warehouse.rows(RECORDED)
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    assert len(now) == len(first) == 4
    assert all(new["value"] != old["value"] for new, old in zip(now, first, strict=True)), "figures of other weights"
    shutil.rmtree(job.checkpoints)
    assert_identical(outcome(run(job)), second)


def test_workers_sample_for_a_step_that_is_drawn_anew(reference: Path, tmp_path: Path) -> None:
    """Strictly in turn, and what the first of three recorded steps used is gone: the trainer waits for it first."""
    fill(tmp_path / "warehouse", reference, online=12)
    job = make_job(tmp_path, reference, config(steps=3, model_update_interval=1, max_batches_ahead=0, rollout_batch=4))
    job.write(tmp_path / "job.json")
    outcome(run(job))
    shutil.rmtree(job.checkpoints)
    shutil.rmtree(job.weights)  # as shared memory is after a restart of the machine
    quarantine(job, f"rollout/{RUN}/0/00000000")
    process = start(job)
    with Warehouse.open(job.warehouse) as warehouse:
        deadline = time.monotonic() + 100
        while not (where := Backpressure.read(warehouse, job)).has_room(job):
            assert time.monotonic() < deadline, where
            time.sleep(0.2)
    process.kill()
    process.communicate()


def test_a_run_that_stops_while_it_waits_for_rollouts_skips_nothing(reference: Path, tmp_path: Path) -> None:
    """Whatever the order of its sources: those before the online one have given what is not trained on."""
    fill(tmp_path / "warehouse", reference, online=0)
    sources = {"offline": {"share": 0.5}, "online": {"share": 0.5}}
    job = make_job(tmp_path, reference, config(sources=sources))
    job.write(tmp_path / "job.json")
    process = start(job)
    deadline = time.monotonic() + 100
    while published_weights.latest(job.weights) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1.0)  # it draws its first batch
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=200)
    found = checkpoint.newest(job)
    assert found is not None
    assert found.mix.cursors == {"offline": (0, 0)}


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


@pytest.mark.parametrize("stage", [0, 3])
def test_a_policy_that_is_not_the_reference_is_refused_before_the_first_step_by_every_zero_stage(
    stage: int, stocked: Path, reference: Path, tmp_path: Path
) -> None:
    job_in(stocked, reference, tmp_path, zero_stage=stage)
    process = process_of(_check_another_reference, str(tmp_path / "job.json"))
    process.start()
    process.join(200)
    assert process.exitcode == 0


def _check_another_reference(job_file: str) -> None:
    """Pass before the reference is changed, and be refused afterwards; DeepSpeed wants a process of its own."""
    torch.set_num_threads(1)
    with open_session(TrainJob.read(Path(job_file))) as session:
        batch, _ = session.next_batch(1)
        check(session, batch, {})
        with torch.no_grad():
            next(session.reference.policy.causal_lm.base_model.layers[0].parameters()).mul_(1.5)
        with refused("ReferenceDrift"):
            check(session, batch, {})
