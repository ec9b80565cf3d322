"""A second trainer of a run waits for the first, which writes its checkpoint."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.train.shared import trainer_lock
from tasks.train.shared.errors import TrainerError

HOLDER = """
import sys, time
from pathlib import Path
from tasks.train.shared import trainer_lock
with trainer_lock.held(Path(sys.argv[1]), 0, print):
    print("held", flush=True)
    sys.stdin.read()
    time.sleep(float(sys.argv[2]))
"""


def holder(run_dir: Path, seconds: float) -> subprocess.Popen[str]:
    """A process that holds the lock until its standard input ends, and for so many seconds more."""
    command = [sys.executable, "-c", HOLDER, str(run_dir), str(seconds)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_trainer_waits_for_the_one_that_is_ending_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    assert not trainer_lock.is_held(tmp_path)
    with holder(tmp_path, 1.0) as child:
        assert trainer_lock.is_held(tmp_path)
        assert child.stdin is not None
        child.stdin.close()
        with trainer_lock.held(tmp_path, 30, told.append):
            child.wait(5)
            assert trainer_lock.is_held(tmp_path)
    assert not trainer_lock.is_held(tmp_path)
    assert "it is given 30 s to write its checkpoint" in told[0]


def test_a_lock_that_is_kept_is_an_error_by_name_and_ends_with_a_kill(tmp_path: Path) -> None:
    with holder(tmp_path, 0.0) as child:
        with pytest.raises(TrainerError, match=r"has not ended in 1 s; end it, which holds trainer\.lock"):
            with trainer_lock.held(tmp_path, 1, lambda _: None):
                pass
        with pytest.raises(TrainerError, match=r"has not ended in 1 s; end it, which holds trainer\.lock"):
            trainer_lock.await_end(tmp_path, 1, lambda _: None)
        child.kill()
        child.wait(5)
    began = time.monotonic()
    with trainer_lock.held(tmp_path, 30, lambda _: None):
        assert time.monotonic() - began < 5
