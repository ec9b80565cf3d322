"""The trainer's process before it trains, and what it leaves behind."""

from __future__ import annotations

import copy
import math
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from tasks.config import TrainConfig
from tasks.train.shared import trainer_lock
from tasks.train.shared.errors import NonFinite
from tasks.train.trainer import loop
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine, zero_settings
from tests.fork_server import process_of
from tests.tasks.train.conftest import config, make_job
from tests.tasks.train.forked import answer_of, answers_of

CPU = torch.device("cpu")


def _with_threads(job_file: str) -> int:
    """Threads that the trainer of a job trains with."""
    from tasks.train.trainer.__main__ import main

    found: list[int] = []
    loop.train = lambda _job, _report: found.append(torch.get_num_threads())  # type: ignore[assignment]
    assert main([job_file]) == 0
    return found[0]


def test_the_trainer_computes_with_as_many_threads_as_the_recipe_says(tmp_path: Path, reference: Path) -> None:
    files = []
    for threads in (1, 2):
        job = make_job(tmp_path, reference, config(threads=threads), name=f"run {threads}")
        files.append((str(job.write(tmp_path / f"{threads}.json")),))
    assert answers_of(_with_threads, *files) == [1, 2]


def test_buffers_are_no_larger_than_the_model() -> None:
    found = [zero_settings(1, CPU, size)["reduce_bucket_size"] for size in (0, 7, 10**12)]
    assert found == [1, 7, 500_000_000]


def test_communication_is_overlapped_where_deepspeed_lets_it_be() -> None:
    """With gradients that are not divided DeepSpeed refuses to start (`make test-gpu` has it do so)."""
    gpu = torch.device("cuda")
    assert [zero_settings(stage, gpu, 10**9)["overlap_comm"] for stage in range(4)] == [False, False, True, True]
    assert not zero_settings(3, CPU, 10**9)["overlap_comm"]


def _steps(stage: int, dtype: str) -> tuple[bool, int, bool]:
    """Whether a step with an infinite gradient is refused, the updates made, and whether the weights stayed."""
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 1).to(getattr(torch, dtype))
    engine = DeepSpeedEngine(module, TrainConfig(zero_stage=stage), dtype=dtype, device=CPU)
    data = torch.ones(2, 4, dtype=getattr(torch, dtype))
    engine.backward(engine.forward(data).float().sum())
    engine.step()
    before = copy.deepcopy(engine.consolidated(module, lambda _: True))
    engine.backward(engine.forward(data).float().sum() * math.inf)
    refused = False
    try:
        engine.step()
    except NonFinite:
        refused = True
    after = engine.consolidated(module, lambda _: True)
    return refused, engine.updates, all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize(
    ("stage", "dtype"), [(0, "float32"), (1, "float32"), (2, "float32"), (3, "float32"), (1, "bfloat16")]
)
def test_a_gradient_that_is_not_finite_updates_nothing(stage: int, dtype: str) -> None:
    assert answer_of(_steps, stage, dtype) == (True, 1, True)


def _second(job_file: str, errors: str) -> None:
    from tasks.train.trainer.__main__ import main

    with open(errors, "wb") as log:
        os.dup2(log.fileno(), 2)
    loop.train = lambda job, _report: (job.run_dir / "trained").touch()  # type: ignore[assignment]
    sys.exit(main([job_file]))


def test_a_second_trainer_of_a_run_does_not_train_beside_the_first(tmp_path: Path, reference: Path) -> None:
    job = make_job(tmp_path, reference, config())
    errors, trained = tmp_path / "errors", job.run_dir / "trained"
    second = process_of(_second, str(job.write(tmp_path / "job.json")), str(errors))
    with trainer_lock.held(job.run_dir, 0, print):
        second.start()
        deadline = time.monotonic() + 60
        while not (errors.exists() and str(job.run_dir) in errors.read_text()):  # it has said that it waits
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not trained.exists()
    second.join(60)
    assert (second.exitcode, trained.exists()) == (0, True)


def _alone(temporary: str) -> list[str]:
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    engine = DeepSpeedEngine(torch.nn.Linear(2, 1), TrainConfig(), dtype="float32", device=CPU)
    engine.barrier()
    engine.close()
    return [path.name for path in Path(temporary).glob("spo-*")]


def test_a_process_alone_leaves_nothing_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    assert answer_of(_alone, str(tmp_path)) == []
