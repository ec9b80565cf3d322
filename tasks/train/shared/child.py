"""A process of a training run as whoever started it sees it.

It leads a session of its own. Its standard input is a pipe that closes when its starter dies, so that nothing is left
behind whatever happens there. What it prints on standard output are JSON lines (tasks/train/shared/process.py), what
it prints on standard error goes to a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from tasks.train.shared import fork_server

Line = dict[str, Any]


class RunningProcess(Protocol):
    """What is used of a `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its number, and that of its session."""
        ...

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status once it has ended. Raises subprocess.TimeoutExpired."""
        ...


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """What to start, and where its errors go."""

    name: str
    """`trainer`, `worker-0`."""
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Set beside what this process has."""

    def tail(self, most: int = 2000) -> str:
        """The last bytes of its log, at most so many."""
        return self.log.read_bytes()[-most:].decode(errors="replace") if self.log.is_file() else ""


class Child:
    """A process of the run; it is started at once, and `start` starts it again."""

    def __init__(self, what: ChildCommand, lines: queue.Queue[tuple[str, Line]]) -> None:
        self.what = what
        self.name = what.name
        self.crashes = 0
        """In a row, without progress between them."""
        self.furthest = 0
        """The last step that it told of, over all starts."""
        self.last_error = ""
        self.last_kind = ""
        """Class of the last error."""
        self.gone = False
        """Whether it was given up."""
        self._lines = lines
        self._start()

    def start(self) -> None:
        """Start it again, once nothing is left of the last time."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._input)
        self._start()

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and all its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, grace_s: float) -> None:
        """Ask it to stop, wait, then kill whatever is left of its session."""
        if self.status() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        self.signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._input)

    def _start(self) -> None:
        self.what.log.parent.mkdir(parents=True, exist_ok=True)
        given, self._input = os.pipe()
        printed, output = os.pipe()
        environment = {"OMP_NUM_THREADS": "1", **os.environ, **self.what.environment}
        with self.what.log.open("ab") as log:
            self.process = start_process(self.what.command, given, output, log, environment)
        os.close(given)
        os.close(output)
        threading.Thread(target=self._read, args=(printed,), daemon=True).start()

    def _read(self, printed: int) -> None:
        with os.fdopen(printed, "rb") as stream:
            for raw in stream:
                try:
                    line = json.loads(raw)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    self._lines.put((self.name, line))


def start_process(
    command: Sequence[str], given: int, output: int, errors: IO[bytes], environment: Mapping[str, str]
) -> RunningProcess:
    """A process in a session of its own, with these file descriptors as standard input, output and error.

    Forked where a fork server runs, since that saves its imports.
    """
    if process := fork_server.forked(command, [given, output, errors.fileno()], environment):
        return process
    return subprocess.Popen(command, stdin=given, stdout=output, stderr=errors, start_new_session=True, env=environment)
