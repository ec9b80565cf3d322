"""Two processes whose group times out after seconds, and a first one that takes longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 5
WORK_S = 2 * TIMEOUT_S + 2
PROCESS = """
import datetime, sys, time
import torch.distributed as dist
from tasks.train.shared.errors import Interrupted, ProcessDied
from tasks.train.trainer.first_process import FirstProcess

store, rank, beat_s, work_s, ends = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
dist.barrier()  # both have been started, however long that took
group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
first = FirstProcess(group, beat_s=beat_s, timeout_s=TIMEOUT_S)

def work():
    time.sleep(work_s)
    if ends == "raises":
        raise Interrupted("stopped while waiting")
    return "found"

try:
    print(first.does(work))
except (Interrupted, ProcessDied) as error:
    print(type(error).__name__, error)
"""


def outcomes(folder: Path, *, beat_s: float, work_s: float, ends: str = "returns") -> list[str]:
    """What the first and the second process say in the end."""
    script = PROCESS.replace("TIMEOUT_S", str(TIMEOUT_S))
    settings = [str(beat_s), str(work_s), ends]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder / "store"), rank, *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    return [process.communicate(timeout=300)[0].strip() for process in processes]


def test_the_others_wait_longer_than_their_timeout_while_they_hear_from_the_first(tmp_path: Path) -> None:
    assert outcomes(tmp_path, beat_s=0.5, work_s=WORK_S) == ["found", "None"]


def test_a_first_process_that_says_nothing_is_named_when_the_timeout_is_over(tmp_path: Path) -> None:
    said = outcomes(tmp_path, beat_s=1000, work_s=WORK_S)[1]
    assert said.startswith(f"ProcessDied the first process of training was not heard of for {TIMEOUT_S} s")
    assert "continues from its last checkpoint" in said


@pytest.mark.parametrize("work_s", [0, 2])
def test_what_the_first_process_raises_is_raised_by_all(tmp_path: Path, work_s: int) -> None:
    said = outcomes(tmp_path, beat_s=0.5, work_s=work_s, ends="raises")
    assert said == ["Interrupted stopped while waiting"] * 2
