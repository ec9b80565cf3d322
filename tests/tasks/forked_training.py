"""The processes of a training run forked instead of started, so that a whole run costs seconds, and killed at will."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

from tests.fork_server import preload, process_of
from warehouse.failpoints import failpoint_hooks

preload("tests.tasks.train.preloading", "tasks.train.rollout_worker.worker", "tasks.evaluate.evaluator")

KILL = "SPO_TEST_KILL"
"""Environment variable `MODULE:N:FILE`: a process of that module kills itself at its Nth failpoint, once (FILE)."""


class ForkedProcess:
    """A `RunningProcess` of `[...] python -m MODULE ARGUMENTS`, forked from the fork server."""

    def __init__(
        self, command: Sequence[str], given: int, output: int, errors: IO[bytes], environment: Mapping[str, str]
    ) -> None:
        module = command.index("-m") + 1
        pipes = [DupFd(number) for number in (given, output, errors.fileno())]
        self._process = process_of(_main, command[module], command[module + 1 :], pipes, dict(environment))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Exit status, the negative number of the signal that killed it, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("forked process", timeout or 0.0)
        return self._process.exitcode


def _main(module: str, arguments: list[str], pipes: list[Any], environment: Mapping[str, str]) -> None:
    os.setsid()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe.detach(), number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    os.environ.clear()
    os.environ.update(environment)
    _die_when_told(module)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


def _die_when_told(module: str) -> None:
    wanted, _, rest = os.environ.get(KILL, "").partition(":")
    if not module.endswith(wanted or "no module"):
        return
    number, _, file = rest.partition(":")
    left = int(number)

    def count(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0 and not Path(file).exists():
            Path(file).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    failpoint_hooks.append(count)
