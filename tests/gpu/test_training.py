"""A run on a GPU is near the same run on the CPU, and the same bits twice. Skipped where torch sees no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tasks.train.conftest import config, make_job, reference, stocked
from tests.tasks.train.trainer.test_runs import PPO, assert_identical, copied, outcome

__all__ = ["reference", "stocked"]
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU (make test-gpu)")
HIDDEN = {"CUDA_VISIBLE_DEVICES": ""}
LORA = {"rank": 4, "alpha": 8}
WAYS: dict[str, dict[str, Any]] = {
    "shared": {},
    "packed": {"packing": "packed"},
    "padded": {"packing": "padded"},
    "checkpointing": {"gradient_checkpointing": True},
    "zero 1": {"zero_stage": 1},
    "zero 2": {"zero_stage": 2},
    "zero 3": {"zero_stage": 3},
    "lora": {"lora": LORA},
    "ppo": PPO,
}


def trained(
    folder: Path, stocked: Path, reference: Path, train: dict[str, Any], *, dtype: str = "float32", **environment: str
) -> dict[str, Any]:
    """What a trainer process leaves of the stocked job."""
    run = config(**train)
    run = run.model_copy(update={"reference": run.reference.model_copy(update={"dtype": dtype})})
    job = make_job(copied(stocked, folder), reference, run)
    job.write(folder / "job.json")
    command = [sys.executable, "-m", "tasks.train.trainer", str(folder / "job.json")]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return outcome(job)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_the_same_bits_twice(way: str, stocked: Path, reference: Path, tmp_path: Path) -> None:
    first, second = (trained(tmp_path / name, stocked, reference, WAYS[way]) for name in ("first", "second"))
    assert_identical(first, second)


@pytest.mark.parametrize("way", ["shared", "lora", "ppo"])
def test_a_run_is_near_the_cpus(way: str, stocked: Path, reference: Path, tmp_path: Path) -> None:
    here = trained(tmp_path / "gpu", stocked, reference, WAYS[way])
    there = trained(tmp_path / "cpu", stocked, reference, WAYS[way], **HIDDEN)
    assert here["batches"] == there["batches"]
    assert here["figures"].keys() == there["figures"].keys()
    for key, value in there["figures"].items():
        assert here["figures"][key] == pytest.approx(value, rel=0.02, abs=1e-4), key
    for name, weights in there["weights"].items():
        assert torch.allclose(here["weights"][name], weights, atol=1e-3), name


@pytest.mark.parametrize("way", ["shared", "packed", "zero 2", "zero 3", "ppo"])
def test_bfloat16_runs_are_the_same_bits_twice(way: str, stocked: Path, reference: Path, tmp_path: Path) -> None:
    first, second = (
        trained(tmp_path / name, stocked, reference, WAYS[way], dtype="bfloat16") for name in ("first", "second")
    )
    assert_identical(first, second)
