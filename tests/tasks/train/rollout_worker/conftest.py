"""What tests of rollout workers share: a reference, a warehouse with problems, a job."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.train.shared.job import TrainJob
from tests.tasks.train.conftest import fill, save_reference
from tests.tasks.train.rollout_worker.workers import job_in


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_reference(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    folder = tmp_path_factory.mktemp("stocked")
    fill(folder / "warehouse", reference, online=0)
    return folder


@pytest.fixture
def job(stocked: Path, reference: Path, tmp_path: Path) -> TrainJob:
    """Optimizer batches of 8 online trajectories, rollout batches of 8, at most two batches ahead."""
    return job_in(stocked, reference, tmp_path)
