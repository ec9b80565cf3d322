"""One engine in a child process, as whoever started it sees it (the other side: tasks/engines/serve.py).

It leads a session of its own. Its socket closes when its starter dies, and then it ends; when it dies, every open call
of it is told. What it prints goes to this process's standard error, and the last lines into the error's message.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.checkpoints.errors import EngineError
from tasks.engines import protocol, wire
from tasks.engines.engine_start import start_by, start_here

CLOSING_S = 20.0
"""Time that an engine has to shut down before it is killed."""
LAST_LINES = 12
"""Lines of the process's messages that an error shows."""

Message = tuple["EngineProcess", dict[str, Any], list[wire.Array]]
"""Who says what; where the process has died, a header {"is": "error"} like any other."""
Inbox = queue.SimpleQueue[Message]


class EngineProcess:
    """A child process that holds one engine; `open` it before anything else."""

    def __init__(self, python: str | None, environment: Mapping[str, str], *, launcher: Sequence[str] = ()) -> None:
        """`python`: its interpreter; None: this one. `environment` is set beside what there is. `launcher`: the command
        that starts it elsewhere; nothing: it starts here. Raises EngineError.
        """
        self.command = shlex.join([*launcher, python or sys.executable])
        self._numbers = itertools.count(1)
        self._sending = threading.Lock()
        self._inboxes: dict[int, tuple[Inbox, str]] = {}
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._death: tuple[str, str] | None = None
        """How it ended, and its last messages."""
        self._dismissed = False
        self._sources = tempfile.TemporaryDirectory(prefix="spo-engine-")
        self._connection, theirs = socket.socketpair()
        with contextlib.ExitStack() as failed, theirs:
            failed.callback(self._sources.cleanup)
            failed.callback(self._connection.close)
            if launcher:
                self._process = start_by(launcher, python, environment, theirs)
            else:
                self._process = start_here(python, environment, theirs, Path(self._sources.name))
            failed.pop_all()
        self._relay = threading.Thread(target=self._relay_messages, daemon=True)
        self._relay.start()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def begin(self, asked: str, inbox: Inbox, header: Mapping[str, Any], arrays: Sequence[wire.Array] = ()) -> int:
        """Ask for something; what is said to it arrives in `inbox`. The number of the call."""
        call = next(self._numbers)
        with self._sending:
            self._inboxes[call] = inbox, asked
            if self._death is not None:
                self._tell_death(inbox, asked, *self._death)
                return call
        self.add(call, asked, header, arrays)
        return call

    def add(self, call: int, asked: str, header: Mapping[str, Any], arrays: Sequence[wire.Array] = ()) -> None:
        """Say more of a call that has begun. Where the process is dead, the call's inbox is told, or has been."""
        with self._sending, contextlib.suppress(OSError):
            wire.send(self._connection, {**header, "call": call, "do": asked}, arrays)

    def forget(self, call: int) -> None:
        """Take nothing more of a call."""
        with self._sending:
            self._inboxes.pop(call, None)

    def ask(self, asked: str, header: Mapping[str, Any], arrays: Sequence[wire.Array] = ()) -> Pending:
        """Ask for something that has one answer."""
        inbox: Inbox = queue.SimpleQueue()
        return Pending(self, self.begin(asked, inbox, header, arrays), inbox)

    def dismiss(self) -> None:
        """Let the engine shut down; `close` waits for it."""
        self._dismissed = not self._inboxes
        if self._dismissed:
            self.add(0, "close", {})

    def close(self) -> None:
        """End the process, which is killed unless it was dismissed; nothing of it is left afterwards."""
        if self._dismissed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSING_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._relay.join(1.0)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._sources.cleanup()

    def _relay_messages(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip()
                self._last.append(line)
                with contextlib.suppress(ValueError, OSError):  # whoever reads may be gone first
                    print(line, file=sys.stderr)

    def _listen(self) -> None:
        try:
            while (frame := wire.receive(self._connection)) is not None:
                header, arrays = frame
                if header["is"] == "closed":  # what a launcher runs beside the engine may read to the end of its input
                    self._connection.shutdown(socket.SHUT_WR)
                    continue
                with self._sending:
                    found = self._inboxes.get(header["call"])
                if found is not None:
                    found[0].put((self, header, arrays))
        except (OSError, EngineError, ValueError) as error:
            self._last.append(f"{type(error).__name__}: {error}")
        self._bury()

    def _bury(self) -> None:
        """Tell every open call that the process is dead."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self._relay.join(1.0)
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        said = "".join(f"\n  {line}" for line in self._last)
        last = f"its last messages:{said}" if said else "it left no message (out of memory?)"
        with self._sending:
            self._death = how, last
            for inbox, asked in self._inboxes.values():
                self._tell_death(inbox, asked, how, last)

    def _tell_death(self, inbox: Inbox, asked: str, how: str, last: str) -> None:
        message = f"the engine process {self.pid} ({self.command}) {how} while asked to {asked}; {last}"
        inbox.put((self, {"is": "error", "kind": "EngineDied", "message": message}, []))


class Pending:
    """An answer on its way."""

    def __init__(self, process: EngineProcess, call: int, inbox: Inbox) -> None:
        self._process, self._call, self._inbox = process, call, inbox

    def answer(self) -> wire.Frame:
        """Header and arrays of the answer, once it is there. Raises EngineError as the engine did, or EngineDied."""
        _, header, arrays = self._inbox.get()
        self._process.forget(self._call)
        raise_error(header)
        return header, arrays


def raise_error(header: Mapping[str, Any]) -> None:
    """Raise what the message reports, as the class that it names; nothing where it is no error."""
    if header["is"] == "error":
        kind = getattr(protocol, str(header["kind"]), EngineError)
        raise (kind if issubclass(kind, EngineError) else EngineError)(header["message"], code=header.get("code", ""))
