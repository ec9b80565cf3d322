"""A second trainer of a run waits for the first, which writes its checkpoint."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from tasks.train.shared import trainer_lock
from tests.fork_server import process_of
from tests.refusals import refused
from tests.tasks.train import forked

assert forked  # what it preloads


class Holder:
    """A process that holds the lock until it is released, and for so many seconds more."""

    def __init__(self, run_dir: Path, seconds: float) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = process_of(_hold, str(run_dir), seconds, theirs)
        self._process.start()
        theirs.close()
        assert self._ours.recv() == "held"

    def release(self) -> None:
        """Let it end."""
        self._ours.close()

    def end(self) -> None:
        """Kill it, if it has not ended."""
        self._process.kill()
        self._process.join()


def _hold(run_dir: str, seconds: float, connection: Connection) -> None:
    with trainer_lock.held(Path(run_dir), 0, print):
        connection.send("held")
        connection.poll(None)
        time.sleep(seconds)


@contextmanager
def holder(run_dir: Path, seconds: float = 0.0) -> Iterator[Holder]:
    held = Holder(run_dir, seconds)
    try:
        yield held
    finally:
        held.end()


def test_a_trainer_waits_for_the_one_that_is_ending_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    assert not trainer_lock.is_held(tmp_path)
    with holder(tmp_path, 1.0) as other:
        assert trainer_lock.is_held(tmp_path)
        other.release()
        with trainer_lock.held(tmp_path, 30, told.append):
            assert trainer_lock.is_held(tmp_path)
    assert not trainer_lock.is_held(tmp_path)
    assert str(tmp_path) in told[0]


def test_a_lock_that_is_kept_is_an_error_by_name_and_ends_with_a_kill(tmp_path: Path) -> None:
    with holder(tmp_path) as other:
        with refused("TrainerError", "trainer.lock"), trainer_lock.held(tmp_path, 1, lambda _: None):
            pass
        with refused("TrainerError", "trainer.lock"):
            trainer_lock.await_end(tmp_path, 1, lambda _: None)
        other.end()
        began = time.monotonic()
        with trainer_lock.held(tmp_path, 30, lambda _: None):
            assert time.monotonic() - began < 5
