"""The processes of a training run, forked from the tests' fork server (tests/fork_server.py), and killed at will."""

from __future__ import annotations

import functools
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import psutil

from tasks.train.shared import fork_server
from tests.fork_server import preload, process_of
from warehouse.commit.failpoints import failpoint_hooks

preload("tests.tasks.train.preloading", "tasks.train.rollout_worker.worker", "tasks.evaluate.evaluator")

KILL = "SPO_TEST_KILL"
"""Environment variable `MODULE:N:FILE`: a process of that module kills itself at its Nth failpoint, once (FILE)."""


class _Server:
    """A server process of trainings, forked with everything imported."""

    def __init__(self, requests: socket.socket) -> None:
        self._process: ForkServerProcess = process_of(_serve, DupFd(requests.fileno()))
        self._process.daemon = True  # the end of this process does not wait for it
        self._process.start()

        self.pid = self._process.pid

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def wait(self) -> int:
        """Its exit status once it has ended."""
        self._process.join()
        return self._process.exitcode or 0


_servers: list[_Server] = []


@functools.cache
def _server() -> fork_server.ForkServer:
    return fork_server.ForkServer(lambda requests: _servers.append(_Server(requests)) or _servers[-1])


@contextmanager
def trainings_forked() -> Iterator[None]:
    """Inside, trainers, workers and evaluators are forked from the tests' fork server."""
    fork_server.keep(_server())
    try:
        yield
    finally:
        fork_server.keep(None)


def kill_trainings() -> None:
    """Kill all that was forked and still runs."""
    for server in _servers:
        for process in psutil.Process(server.pid).children():
            process.kill()


def _serve(requests: Any) -> None:
    reached = 0

    def count(_: str) -> None:
        nonlocal reached
        module, _, rest = os.environ.get(KILL, "").partition(":")
        number, _, file = rest.partition(":")
        reached += 1
        if module and sys.argv[0].endswith(module) and reached == int(number) and not Path(file).exists():
            Path(file).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    failpoint_hooks.append(count)
    fork_server.serve(socket.socket(fileno=requests.detach()))
