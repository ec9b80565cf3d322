"""Timeouts and grace grow with the model."""

from __future__ import annotations

from pathlib import Path

from tasks.train.shared import time_limits
from tasks.train.supervisor import trainer_command
from tests.tasks.train.conftest import config, make_job


def sized(folder: Path, size: int) -> Path:
    """A checkpoint folder whose weights take `size` bytes, of which the disk holds none."""
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as stream:
        stream.truncate(size)
    return folder


def test_a_small_model_gets_the_least_and_8b_what_its_weights_and_checkpoint_take(tmp_path: Path) -> None:
    train = config().train
    small, large = sized(tmp_path / "small", 1 << 20), sized(tmp_path / "large", 16 * 10**9)
    assert time_limits.grace_s(small, train) == 61
    assert time_limits.checkpoint_s(large, train) == 1120, "112 GB at 100 MB/s"
    assert time_limits.grace_s(large, train) == 60 + 1120 + 320, "and 32 GB of what is being published"
    assert time_limits.group_timeout_s(large, train) == 1800 + 2240
    fast = train.model_copy(update={"disk_mb_s": 2000.0})
    assert time_limits.grace_s(large, fast) == 60 + 56 + 16
    ppo = train.model_copy(update={"algorithm": "ppo"})
    assert time_limits.checkpoint_s(large, ppo) == 2240, "and as much for its value model"


def test_torchrun_waits_as_long_as_its_starter_for_the_checkpoint(tmp_path: Path, reference: Path) -> None:
    job = make_job(tmp_path, reference, config(processes=2)).model_copy(
        update={"reference": sized(tmp_path / "large", 16 * 10**9)}
    )
    command = trainer_command(job, tmp_path / "job.json")
    assert command[command.index("--shutdown-timeout") + 1] == "1500"
