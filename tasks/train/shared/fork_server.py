"""Processes of a training run forked from one that has imported what they need.

Trainer, rollout worker and evaluator import the same libraries, ten seconds of CPU time for each; a fork takes a few
milliseconds. The server imports them once, while the stages before training run, and then waits for requests on a
socket: a line of JSON with the three standard streams. It answers with the process's number, and says how each ended.
It goes when whoever started it does; the processes notice that themselves (their standard input closes).

Nothing that is imported may touch a GPU or start a thread, which a fork does not survive. DuckDB and Arrow start one
each, so a process imports them itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import queue
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

PRELOADED = (
    "torch.utils.tensorboard",
    "deepspeed",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",  # most of it is what every model needs
)


class ForkedProcess:
    """A process that the server forked; what is used of a `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = threading.Event()
        self._status = 0

    def poll(self) -> int | None:
        """Exit status, the negative number of the signal that killed it, None while it runs."""
        return self._status if self._ended.is_set() else None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status once it has ended. Raises subprocess.TimeoutExpired."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return self._status

    def end(self, status: int) -> None:
        """It has ended."""
        self._status = status
        self._ended.set()


class RunningServer(Protocol):
    """The part of a `subprocess.Popen` that is used of a server's process."""

    def kill(self) -> None:
        """Kill it."""
        ...

    def wait(self) -> int:
        """Its exit status once it has ended."""
        ...


def start_server(requests: socket.socket) -> RunningServer:
    """A new interpreter that imports, and then serves the socket."""
    command = [sys.executable, "-m", "tasks.train.shared.fork_server", str(requests.fileno())]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[requests.fileno()], start_new_session=True, env=environment
    )


class ForkServer:
    """A server that imports, and then forks on request. `start`: its process, which calls `serve` with the socket."""

    def __init__(self, start: Callable[[socket.socket], RunningServer] = start_server) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._server = start(theirs)
        self._asking = threading.Lock()
        self._answers: queue.Queue[ForkedProcess | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, request: Mapping[str, Any], streams: Sequence[int]) -> ForkedProcess | None:
        """The process asked for; None when the server is gone."""
        with self._asking, contextlib.suppress(OSError):
            line = json.dumps(request).encode() + b"\n"
            socket.send_fds(self._socket, [line[:1]], list(streams))
            self._socket.sendall(line[1:])
            return self._answers.get()
        return None

    def stop(self) -> None:
        """End the server; what it has forked goes on, but nobody learns any more how it ends."""
        self._server.kill()
        self._server.wait()
        self._socket.close()

    def _listen(self) -> None:
        running: dict[int, ForkedProcess] = {}
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for raw in lines:
                line = json.loads(raw)
                if "status" in line:
                    running.pop(line["pid"]).end(line["status"])
                else:
                    process = running[line["pid"]] = ForkedProcess(line["pid"])
                    self._answers.put(process)
        self._answers.put(None)
        for process in running.values():
            process.end(-signal.SIGKILL)


_started: list[ForkServer] = []
_kept: list[ForkServer] = []
_starting = threading.Lock()


def start() -> None:
    """Let the server import in the background, unless there is one already."""
    with _starting:
        if not (_kept or _started):
            _started.append(ForkServer())


def stop() -> None:
    """End the server, and free its memory."""
    with _starting:
        while _started:
            _started.pop().stop()


def keep(server: ForkServer | None) -> None:
    """Fork from this server in every training of this process, until another or none is kept; `stop` leaves it."""
    with _starting:
        _kept[:] = [server] if server else []


def forked(command: Sequence[str], streams: Sequence[int], environment: Mapping[str, str]) -> ForkedProcess | None:
    """The process of `[nice -n N] python -m tasks.MODULE ARGUMENTS`, leader of a session of its own.

    The module has a `main`, which takes the arguments and returns the exit status. `streams`: file descriptors for its
    standard input, output and error. None where it cannot be forked: no server, or a command of another form.
    """
    niceness = 0
    if list(command[:2]) == ["nice", "-n"]:
        niceness, command = int(command[2]), command[3:]
    servers = _kept or _started
    if not servers or list(command[:2]) != [sys.executable, "-m"] or not command[2].startswith("tasks."):
        return None
    request = {"module": command[2], "arguments": command[3:], "niceness": niceness, "environment": dict(environment)}
    return servers[0].start(request, streams)


def serve(requests: socket.socket) -> None:
    """Fork what is asked for until the other side is gone."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector, requests, woken, wake:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _report_ended(requests)
                elif not _answer(requests):
                    return


def _answer(requests: socket.socket) -> bool:
    """Whether there was a request; forks what it asks for."""
    received, streams, _, _ = socket.recv_fds(requests, 1, 3)
    if not received:
        return False
    with requests.makefile("rb") as rest:
        request = json.loads(received + rest.readline())
    if (pid := os.fork()) == 0:
        signal.set_wakeup_fd(-1)
        requests.close()
        _run(request, streams)
    for number in streams:
        os.close(number)
    requests.sendall(json.dumps({"pid": pid}).encode() + b"\n")
    return True


def _report_ended(requests: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError, BrokenPipeError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            line = {"pid": ended[0], "status": os.waitstatus_to_exitcode(ended[1])}
            requests.sendall(json.dumps(line).encode() + b"\n")


def _run(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    """Be the process that was asked for. As everywhere after a fork, the interpreter is left and not taken down."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.setsid()
    os.nice(request["niceness"])
    _be_called(f"spo-{request['module'].rpartition('.')[2]}")
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = [request["module"], *request["arguments"]]
    status = 1
    try:
        status = _main_of(request["module"])(request["arguments"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _be_called(name: str) -> None:
    """Show the name in `top` and `ps -e` (Linux), in place of the server's; the first 15 characters."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(name)


def _main_of(module: str) -> Callable[[Sequence[str]], int]:
    """What `python -m module` runs."""
    spec = importlib.util.find_spec(module)
    package = spec is not None and spec.submodule_search_locations is not None
    return importlib.import_module(f"{module}.__main__" if package else module).main


def main(argv: Sequence[str]) -> int:
    """Import, then serve the socket whose file descriptor is `argv[0]` until its other side closes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # whose server ends takes its children for dead, and kills them
        signal.signal(number, signal.SIG_IGN)
    os.dup2(2, 1)  # libraries print while they are imported
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # what is there stays shared with the forks, and costs them nothing when they end
    serve(socket.socket(fileno=int(argv[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
