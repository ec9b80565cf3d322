"""Two processes whose group times out after seconds, and a first one that takes longer."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from tasks.train.shared.errors import Interrupted, ProcessDied
from tasks.train.trainer.first_process import FirstProcess
from tests.tasks.train.forked import answers_of

TIMEOUT_S = 2
WORK_S = 2 * TIMEOUT_S + 1


def _take_part(store: str, rank: int, beat_s: float, work_s: float, raises: bool) -> object:
    """What the first process's work gives, or the code of what is raised."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    dist.barrier()  # both have been started, however long that took
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    first = FirstProcess(group, beat_s=beat_s, timeout_s=TIMEOUT_S)

    def work() -> str:
        time.sleep(work_s)
        if raises:
            raise Interrupted("stopped while waiting")
        return "found"

    try:
        return first.does(work)
    except (Interrupted, ProcessDied) as error:
        return error.code
    except RuntimeError:  # the other one has left
        return "alone"


def outcomes(folder: Path, *, beat_s: float, work_s: float, raises: bool = False) -> list[object]:
    """What the first and the second process say in the end."""
    return answers_of(_take_part, *((str(folder / "store"), rank, beat_s, work_s, raises) for rank in (0, 1)))


def test_the_others_wait_longer_than_their_timeout_while_they_hear_from_the_first(tmp_path: Path) -> None:
    assert outcomes(tmp_path, beat_s=0.2, work_s=WORK_S) == ["found", None]


def test_a_first_process_that_says_nothing_is_lost_when_the_timeout_is_over(tmp_path: Path) -> None:
    assert outcomes(tmp_path, beat_s=1000, work_s=WORK_S)[1] == "ProcessDied"


@pytest.mark.parametrize("work_s", [0, 1])
def test_what_the_first_process_raises_is_raised_by_all(tmp_path: Path, work_s: int) -> None:
    assert outcomes(tmp_path, beat_s=0.2, work_s=work_s, raises=True) == ["Interrupted", "Interrupted"]
