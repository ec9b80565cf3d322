"""`python -m flows.server.contained COMMAND...`: a container's first process, which ends after the last trainer.

A container ends with its first process. Asked to stop, Prefect's worker ends at once, and `prefect flow-run execute`,
as a first process, not at all; either way a trainer's checkpoint is lost. This hands SIGTERM on to everything below it
and stays until no trainer that was started from it holds its lock.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

from flows.settings import home
from tasks.train.shared import trainer_lock

POLL_S = 0.5


def main(command: list[str]) -> int:
    """Run the command to its end and to that of the trainers; its exit status."""
    child = subprocess.Popen(command)
    started: list[psutil.Process] = []
    signal.signal(signal.SIGTERM, lambda *_: started.extend(stop_all()))
    status = child.wait()
    while trainers(started):
        time.sleep(POLL_S)
    return status if status >= 0 else 128 - status


def stop_all() -> list[psutil.Process]:
    """Ask everything that was started from here to stop; what that is."""
    below = psutil.Process().children(recursive=True)
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    return below


def trainers(started: list[psutil.Process]) -> bool:
    """Whether a trainer is at work and anything lives that was started from here: homes are shared by containers."""
    below = [*started, *psutil.Process().children(recursive=True)]
    return any(map(_lives, below)) and trainer_lock.at_work(home())


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
