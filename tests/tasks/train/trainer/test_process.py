"""The trainer's process before it trains, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tasks.train.trainer.deepspeed_engine import zero_settings
from tests.tasks.train.conftest import config, make_job, save_reference
from tests.tasks.train.shared.test_trainer_lock import holder

PROCESS = """
import sys, torch
from tasks.train.trainer import loop
loop.train = lambda job, report: report({"threads": torch.get_num_threads()})
from tasks.train.trainer.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_trainer_computes_with_as_many_threads_as_the_recipe_says(tmp_path: Path) -> None:
    for threads in (1, 2):
        job = make_job(tmp_path, save_reference(tmp_path / "reference"), config(threads=threads))
        path = tmp_path / "job.json"
        job.write(path)
        done = subprocess.run([sys.executable, "-c", PROCESS, str(path)], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout) == {"threads": threads}


def test_communication_is_overlapped_where_deepspeed_lets_it_be() -> None:
    """With gradients that are not divided DeepSpeed refuses to start (`make test-gpu` has it do so)."""
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [zero_settings(stage, gpu)["overlap_comm"] for stage in range(4)] == [False, False, True, True]
    assert not zero_settings(3, cpu)["overlap_comm"]


STEPS = """
import copy, math, sys
import torch
from tasks.config import TrainConfig
from tasks.train.shared.errors import NonFinite
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
stage, dtype = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0)
module = torch.nn.Linear(4, 1).to(getattr(torch, dtype))
engine = DeepSpeedEngine(module, TrainConfig(zero_stage=stage), dtype=dtype, device=torch.device("cpu"))
data = torch.ones(2, 4, dtype=getattr(torch, dtype))
engine.backward(engine.forward(data).float().sum())
engine.step()
before = copy.deepcopy(engine.consolidated(module, lambda name: True))
engine.backward(engine.forward(data).float().sum() * math.inf)
try:
    engine.step()
except NonFinite as error:
    print(error)
after = engine.consolidated(module, lambda name: True)
print(engine.updates, all(torch.equal(after[name], value) for name, value in before.items()))
"""


@pytest.mark.parametrize(
    ("stage", "dtype"), [(0, "float32"), (1, "float32"), (2, "float32"), (3, "float32"), (1, "bfloat16")]
)
def test_a_gradient_that_is_not_finite_updates_nothing(stage: int, dtype: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", STEPS, str(stage), dtype], capture_output=True, text=True, check=True, timeout=120
    )
    *_, error, state = process.stdout.splitlines()
    assert error.endswith("nothing was updated")
    assert state == "1 True"


BESIDE = PROCESS.replace('"threads": torch.get_num_threads()', '"beside": (job.run_dir / "writing").exists()')


def test_a_second_trainer_of_a_run_does_not_train_beside_the_first(tmp_path: Path) -> None:
    job = make_job(tmp_path, save_reference(tmp_path / "reference"), config())
    path = job.write(tmp_path / "job.json")
    job.run_dir.mkdir(parents=True, exist_ok=True)
    (job.run_dir / "writing").touch()
    command = [sys.executable, "-c", BESIDE, str(path)]
    with (
        holder(job.run_dir, 0.0) as first,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert second.stderr is not None
        told = next((line for line in second.stderr if "is still at work" in line), None)  # None: it has ended
        (job.run_dir / "writing").unlink()
        first.communicate()
        assert json.loads(second.communicate(timeout=60)[0]) == {"beside": False}
    assert told is not None


ENGINE = """
import torch
from tasks.config import TrainConfig
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
engine = DeepSpeedEngine(torch.nn.Linear(2, 1), TrainConfig(), dtype="float32", device=torch.device("cpu"))
engine.barrier()
engine.close()
"""


def test_a_process_alone_leaves_nothing_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ENGINE], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("spo-*"))
