"""One trainer of a run at a time: one whose flow was killed goes on until its checkpoint is written.

A second one beside it would train from an older checkpoint, delete the folder that the first is writing, and find its
memory taken.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tasks.train.shared.errors import TrainerError

LOCK = "trainer.lock"
POLL_S = 0.5


@contextmanager
def held(run_dir: Path, wait_s: float, told: Callable[[str], None]) -> Generator[None]:
    """Hold the run's lock, which ends with the process. Raises TrainerError if another keeps it for `wait_s`."""
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / LOCK).open("a") as lock:
        _wait(lambda: _taken(lock), run_dir, wait_s, told)
        yield


def await_end(run_dir: Path, wait_s: float, told: Callable[[str], None]) -> None:
    """Wait until no trainer of the run is at work. Raises TrainerError if one is for `wait_s`."""
    _wait(lambda: not is_held(run_dir), run_dir, wait_s, told)


def _wait(over: Callable[[], bool], run_dir: Path, wait_s: float, told: Callable[[str], None]) -> None:
    if over():
        return
    told(f"a trainer of {run_dir} is still at work; it is given {wait_s:.0f} s to write its checkpoint")
    deadline = time.monotonic() + wait_s
    while not over():
        if time.monotonic() > deadline:
            raise TrainerError(
                f"a trainer of {run_dir} has not ended in {wait_s:.0f} s; end it, which holds {LOCK}, and resume the "
                f"run"
            )
        time.sleep(POLL_S)


def is_held(run_dir: Path) -> bool:
    """Whether a trainer of the run is at work, wherever this machine can see it."""
    try:
        with (run_dir / LOCK).open("r+") as lock:
            return not _taken(lock)
    except FileNotFoundError:
        return False


def _taken(lock: IO[str]) -> bool:
    """Whether this process has the lock now; so it has where the file system knows no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
