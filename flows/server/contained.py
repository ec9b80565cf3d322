"""`python -m flows.server.contained COMMAND...`: a container's first process, which ends after the last trainer.

A container ends with its first process. Asked to stop, Prefect's worker ends at once, and `prefect flow-run execute`,
as a first process, not at all; either way a trainer's checkpoint is lost. This hands SIGTERM on to everything below it
and stays until no trainer that was started from it has its lock open. A trainer whose flow was killed becomes a child
of this process, also where the container has an init before it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

import psutil

from flows.server.processes import ask_to_end, is_trainer

POLL_S = 0.5
PR_SET_CHILD_SUBREAPER = 36
"""Of Linux' `prctl`."""


def main(command: list[str]) -> int:
    """Run the command to its end and to that of the trainers; its exit status."""
    adopt_orphans()
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: stop_all())
    status = wait(child)
    while trains():
        time.sleep(POLL_S)
    return status if status >= 0 else 128 - status


def adopt_orphans() -> None:
    """Become the parent of every process below that loses its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait(child: subprocess.Popen[bytes]) -> int:
    """The status of the child's end; orphans that end before it are taken note of, or they would stay as zombies."""
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode


def stop_all() -> None:
    """Ask everything that was started from here to stop."""
    ask_to_end(psutil.Process().children(recursive=True))


def trains() -> bool:
    """Whether a trainer that was started from here is at work. Others may be in the same home: containers share one."""
    return any(map(is_trainer, psutil.Process().children(recursive=True)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
