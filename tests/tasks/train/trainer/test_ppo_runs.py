"""Whole runs of PPO: continuation after a kill with the value model, ZeRO stages and numbers of processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tasks.train.conftest import config, make_job
from tests.tasks.train.trainer.test_runs import (
    PPO,
    PPO_FIGURES,
    assert_close,
    assert_identical,
    job_in,
    kill_at,
    outcome,
    run,
)


@pytest.fixture(scope="module")
def uninterrupted_ppo(stocked: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(run(job_in(stocked, reference, tmp_path_factory.mktemp("ppo"), **PPO)))


def test_ppo_trains_with_its_figures_and_keeps_the_value_model_out_of_the_published_weights(
    uninterrupted_ppo: dict[str, Any],
) -> None:
    names = {name for _, name in uninterrupted_ppo["figures"]}
    assert set(PPO_FIGURES) <= names
    assert not any("value" in name for name in uninterrupted_ppo["weights"])
    losses = [uninterrupted_ppo["figures"][step, "value_loss"] for step in range(1, 7)]
    assert len(set(losses)) == 6


def test_a_killed_ppo_run_continues_exactly_with_its_value_model(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted_ppo: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path, **PPO)
    kill_at(job, 3)
    assert_identical(outcome(run(job)), uninterrupted_ppo)


SLOW_PPO = [pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 1), (2, 1), (3, 1), (3, 2))]


@pytest.mark.parametrize(("stage", "processes"), [(0, 2), *SLOW_PPO])
def test_zero_stage_and_processes_change_no_result_of_ppo(
    stage: int, processes: int, stocked: Path, reference: Path, tmp_path: Path, uninterrupted_ppo: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path, **PPO, zero_stage=stage, processes=processes)
    assert_close(outcome(run(job)), uninterrupted_ppo)


@pytest.mark.parametrize("stage", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_ppo_run_goes_on_with_another_number_of_processes(
    stage: int, stocked: Path, reference: Path, tmp_path: Path, uninterrupted_ppo: dict[str, Any]
) -> None:
    """Policy and value model have rates of their own, and each its count of AdamW's steps."""
    run(job_in(stocked, reference, tmp_path, **PPO, zero_stage=stage, steps=4))
    job = make_job(tmp_path, reference, config(**PPO, zero_stage=stage, processes=2))
    job.write(tmp_path / "job.json")
    assert_close(outcome(run(job)), uninterrupted_ppo)
