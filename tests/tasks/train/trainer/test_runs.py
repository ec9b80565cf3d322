"""Whole runs of the trainer process: continuation after a kill, ZeRO stages and numbers of processes."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tasks.checkpoints.checkpoint import weight_files
from tasks.config import validate
from tasks.train.shared.job import TrainJob
from tests.examples import MANY
from tests.tasks.train.conftest import RUN, config, make_job
from tests.tasks.train.trainer_process import start
from warehouse import Warehouse

PPO_FIGURES = ("policy_loss", "value_loss", "explained_variance", "value", "kl", "kl_behaviour", "clip_fraction")
FIGURES = ("loss", "grad_norm", "y_T", "y_T_change", "entropy", *PPO_FIGURES)
PPO: dict[str, Any] = {
    "algorithm": "ppo",
    "sources": {"online": {"share": 1.0}},
    "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
    "batch_size": 4,
    "ppo": {"epochs": 2, "minibatches": 2, "value_learning_rate": 1e-2},
}


@pytest.fixture(scope="module")
def uninterrupted(stocked: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(run(job_in(stocked, reference, tmp_path_factory.mktemp("whole"))))


def copied(stocked: Path, folder: Path) -> Path:
    """`folder`, with a copy of the stocked warehouse."""
    shutil.copytree(stocked / "warehouse", folder / "warehouse")
    return folder


def job_in(stocked: Path, reference: Path, folder: Path, **train: Any) -> TrainJob:
    """A job on a copy of the stocked warehouse."""
    job = make_job(copied(stocked, folder), reference, config(**train))
    job.write(folder / "job.json")
    return job


def run(job: TrainJob, *, torchrun: bool = MANY) -> TrainJob:
    """Train to the end; several processes by torchrun in the slow run."""
    process = start(job, torchrun=torchrun)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors.decode()[-3000:]
    return job


def outcome(job: TrainJob) -> dict[str, Any]:
    """Losses of every step, batches, and final weights."""
    with Warehouse.open(job.warehouse) as warehouse:
        figures = warehouse.rows("SELECT step, name, value FROM train_steps WHERE run_id = ?", (RUN,))
        batches = warehouse.rows("SELECT step, trajectory_ids FROM train_batches WHERE run_id = ?", (RUN,))
    (weights,) = weight_files(job.weights / f"step-{job.train.steps:08d}")
    return {
        "figures": {(row["step"], row["name"]): row["value"] for row in figures if row["name"] in FIGURES},
        "batches": {row["step"]: row["trajectory_ids"] for row in batches},
        "weights": load_file(weights),
    }


def online_ids(result: dict[str, Any]) -> list[str]:
    return [i for ids in result["batches"].values() for i in ids if i.startswith("online")]


def assert_identical(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left["weights"].keys() == right["weights"].keys()
    assert left["figures"] == right["figures"]
    assert left["batches"] == right["batches"]
    assert all(torch.equal(tensor, right["weights"][name]) for name, tensor in left["weights"].items())


def assert_close(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left["batches"] == right["batches"]
    for part in ("figures", "weights"):
        assert left[part].keys() == right[part].keys()
    for key, value in left["figures"].items():
        assert value == pytest.approx(right["figures"][key], rel=2e-3), key
    for name, tensor in left["weights"].items():
        assert torch.allclose(tensor, right["weights"][name], atol=2e-4), name


def test_the_first_step_says_how_far_it_moved_the_policy(
    uninterrupted: dict[str, Any], stocked: Path, reference: Path, tmp_path: Path
) -> None:
    changes = {step: value for (step, name), value in uninterrupted["figures"].items() if name == "y_T_change"}
    assert changes.keys() == {1}
    still = outcome(run(job_in(stocked, reference, tmp_path, optimizer={"learning_rate": 1e-12, "warmup_steps": 1})))
    assert still["figures"][1, "y_T_change"] < 1e-4 < 1e-2 < changes[1]


def test_every_online_trajectory_is_trained_exactly_once(uninterrupted: dict[str, Any]) -> None:
    assert sorted(online_ids(uninterrupted)) == [f"online-{i:04d}" for i in range(24)]


def kill_at(job: TrainJob, line: int, delay_s: float = 0.0) -> None:
    """Start the trainer and kill it without warning `delay_s` after it has printed `line` lines."""
    process = start(job)
    assert process.stdout is not None
    for _ in range(line):
        assert process.stdout.readline(), "the trainer ended before it could be killed"
    time.sleep(delay_s)
    process.kill()
    process.communicate()


def test_a_killed_run_continues_exactly(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    """Killed before the first checkpoint and in the middle of later steps."""
    job = job_in(stocked, reference, tmp_path)
    kill_at(job, 1)
    kill_at(job, 2)
    assert_identical(outcome(run(job)), uninterrupted)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_killed_five_times_at_random_moments_continues_exactly(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    """Between and in the middle of steps, publications and checkpoints; each start continues the one before."""
    job = job_in(stocked, reference, tmp_path)
    chance = random.Random(8)
    for line in (0, 1, 1, 2, 1):
        kill_at(job, line, delay_s=chance.uniform(0.0, 0.05) if line else chance.uniform(0.5, 3.0))
        assert not job.manifest.exists(), "killed before its end"
    assert_identical(outcome(run(job)), uninterrupted)


def test_sigterm_writes_a_checkpoint_and_the_run_continues_exactly(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path)
    process = start(job)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode in (0, 3)
    assert sorted(job.checkpoints.glob("step-*"))
    assert_identical(outcome(run(job)), uninterrupted)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_stages_change_no_result(
    stage: int, stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    assert_close(outcome(run(job_in(stocked, reference, tmp_path, zero_stage=stage))), uninterrupted)


@pytest.mark.slow
def test_a_reference_in_main_memory_beside_a_divided_policy_changes_no_number(
    stocked: Path, reference: Path, tmp_path: Path
) -> None:
    results = [
        outcome(run(job_in(stocked, reference, tmp_path / where, zero_stage=3, processes=2, reference_weights=where)))
        for where in ("device", "cpu")
    ]
    assert_identical(*results)


@pytest.mark.parametrize("stage", [*(pytest.param(stage, marks=pytest.mark.slow) for stage in (0, 1, 2)), 3])
def test_two_processes_change_no_result(
    stage: int, stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path, zero_stage=stage, processes=2)
    assert_close(outcome(run(job, torchrun=stage == 0)), uninterrupted)


def in_bfloat16(job: TrainJob) -> TrainJob:
    run = job.config.model_copy(update={"reference": job.config.reference.model_copy(update={"dtype": "bfloat16"})})
    job = job.model_copy(update={"config": run})
    job.write(job.run_dir.parent / "job.json")
    return job


@pytest.mark.slow
def test_a_bfloat16_run_goes_on_with_another_number_of_processes(
    stocked: Path, reference: Path, tmp_path: Path
) -> None:
    """DeepSpeed divides the optimizer's state there, whatever the recipe's ZeRO stage."""
    run(in_bfloat16(job_in(stocked, reference, tmp_path, processes=2, steps=4)))
    result = outcome(run(in_bfloat16(make_job(tmp_path, reference, config()))))
    assert sorted(result["batches"]) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "processes"), [(0, (2, 1)), (1, (1, 2)), (2, (2, 1)), (3, (1, 2))])
def test_a_run_goes_on_with_another_number_of_processes(
    stage: int,
    processes: tuple[int, int],
    stocked: Path,
    reference: Path,
    tmp_path: Path,
    uninterrupted: dict[str, Any],
) -> None:
    before, after = processes
    run(job_in(stocked, reference, tmp_path, zero_stage=stage, processes=before, steps=4))
    job = make_job(tmp_path, reference, config(zero_stage=stage, processes=after))
    job.write(tmp_path / "job.json")
    assert_close(outcome(run(job)), uninterrupted)


def test_another_zero_stage_cannot_continue_a_run(stocked: Path, reference: Path, tmp_path: Path) -> None:
    run(job_in(stocked, reference, tmp_path, steps=2))
    job = make_job(tmp_path, reference, config(zero_stage=2))
    job.write(tmp_path / "job.json")
    process = start(job)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert b"zero_stage 0 -> 2" in out


def test_a_finished_run_started_again_does_nothing_and_leaves_the_same(
    stocked: Path, reference: Path, tmp_path: Path
) -> None:
    job = run(job_in(stocked, reference, tmp_path))
    manifest, result = job.manifest.read_text(encoding="utf-8"), outcome(job)
    run(job)
    assert json.loads(job.manifest.read_text(encoding="utf-8")) | {"snapshot": 0} == json.loads(manifest) | {
        "snapshot": 0
    }
    assert_identical(outcome(job), result)
    with Warehouse.open(job.warehouse) as warehouse:
        rows = warehouse.rows("SELECT kind, step FROM policies ORDER BY step")
    assert [(row["kind"], row["step"]) for row in rows] == [("snapshot", 2), ("snapshot", 4), ("final", 6)]
    assert len(sorted(job.checkpoints.glob("step-*"))) == job.train.keep_checkpoints
    assert list((job.run_dir / "tensorboard").iterdir())


def test_a_source_without_data_is_named(stocked: Path, reference: Path, tmp_path: Path) -> None:
    sources = {"online": {"share": 0.5}, "pivotal_rollouts": {"share": 0.5}}
    process = start(job_in(stocked, reference, tmp_path, sources=sources))
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 1
    assert b"pivotal_rollouts" in out
    assert b"NothingToTrainOn" in out


def test_gradient_checkpointing_changes_nothing(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    assert_identical(outcome(run(job_in(stocked, reference, tmp_path, gradient_checkpointing=True))), uninterrupted)


def test_a_bfloat16_run_stays_close_to_the_float32_run(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path)
    tree = job.config.model_dump() | {"reference": {"dtype": "bfloat16"}}
    job = job.model_copy(update={"config": validate(tree)})
    job.write(tmp_path / "job.json")
    found = outcome(run(job))
    assert found["batches"] == uninterrupted["batches"]
    assert found["figures"][1, "y_T"] == uninterrupted["figures"][1, "y_T"]
    for step in range(1, 7):
        assert found["figures"][step, "loss"] == pytest.approx(uninterrupted["figures"][step, "loss"], rel=0.05)
    assert {tensor.dtype for tensor in found["weights"].values()} == {torch.bfloat16}


def test_a_policy_gradient_mixed_into_a_source_changes_what_is_learnt(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    objectives = [{"kind": "terminal"}, {"kind": "policy_gradient", "weight": 0.5}]
    sources = {"online": {"share": 0.5, "objectives": objectives}, "offline": {"share": 0.5}}
    mixed = outcome(run(job_in(stocked, reference, tmp_path, sources=sources, behaviour=PPO["behaviour"])))
    assert mixed["batches"] == uninterrupted["batches"]
    assert mixed["figures"][1, "y_T"] == uninterrupted["figures"][1, "y_T"]
    assert mixed["figures"][1, "loss"] != uninterrupted["figures"][1, "loss"]
    assert mixed["figures"][6, "y_T"] != pytest.approx(uninterrupted["figures"][6, "y_T"], rel=1e-4)


def test_a_rate_that_decays_goes_on_where_it_was(stocked: Path, reference: Path, tmp_path: Path) -> None:
    optimizer = {"learning_rate": 1e-3, "warmup_steps": 2, "decay_steps": 4}
    job = job_in(stocked, reference, tmp_path, optimizer=optimizer)
    kill_at(job, 4)
    run(job)
    with Warehouse.open(job.warehouse) as warehouse:
        figures = "SELECT value FROM train_steps WHERE run_id = ? AND name = 'learning_rate' ORDER BY step"
        rates = [row["value"] for row in warehouse.rows(figures, (RUN,))]
    assert rates == pytest.approx([0.5e-3, 1e-3, 1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
