"""Byte streams to a runner, with a deadline on every read and write: a runner may always turn hostile or silent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Protocol

from sandbox.errors import RunnerLost
from sandbox.runner import LIMITS_REFUSED

CHUNK = 1 << 16


class Channel(Protocol):
    """Both directions to one runner."""

    def send(self, data: bytes, deadline: float) -> None:
        """Write everything before `deadline` (monotonic seconds) or raise RunnerLost."""
        ...

    def receive(self, count: int, deadline: float) -> bytes:
        """Exactly `count` bytes before `deadline` or raise RunnerLost."""
        ...

    def close(self) -> None:
        """End the runner and everything below it."""
        ...


class ProcessChannel:
    """A runner that is a child process, spoken to through two pipes; it leads a process group of its own.

    `ended` is called when the runner is gone.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], ended: Callable[[], object] = lambda: None
    ) -> None:
        self._ended = ended
        given, self._inlet = os.pipe()
        self._outlet, output = os.pipe()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=given,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(given)
            os.close(output)
        self._streams = (os.fdopen(self._inlet, "wb", 0), os.fdopen(self._outlet, "rb", 0))
        os.set_blocking(self._inlet, False)
        self._writable, self._readable = select.poll(), select.poll()
        self._writable.register(self._inlet, select.POLLOUT)
        self._readable.register(self._outlet, select.POLLIN)
        self._buffer = bytearray()

    def send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._inlet, view) :]
            except BlockingIOError:
                wait(self._writable, deadline, "does not read")
            except BrokenPipeError as error:
                raise RunnerLost(f"the runner is gone ({self._last_words()})") from error

    def receive(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            wait(self._readable, deadline, "does not answer")
            part = os.read(self._outlet, max(CHUNK, count - len(self._buffer)))
            if not part:
                raise RunnerLost(f"the runner is gone ({self._last_words()})")
            self._buffer += part
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def close(self) -> None:
        process = self._process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in self._streams:
            stream.close()
        self._ended()

    def _last_words(self) -> str:
        try:
            status = self._process.wait(2)
            above = ": limits of the suite are above those in force here, see `ulimit -H -a`"
            return f"exit status {status}" + above * (status == LIMITS_REFUSED)
        except subprocess.TimeoutExpired:
            return "its pipe is closed"


def wait(poller: select.poll, deadline: float, complaint: str) -> None:
    """Wait until the poller reports something; RunnerLost at the deadline."""
    left = deadline - time.monotonic()
    if left <= 0 or not poller.poll(left * 1000):
        raise RunnerLost(f"the runner {complaint} in time")
