"""`python -m tasks.engines.serve FD`: one engine in a process of its own, driven over the socket FD (wire.py).

FD may be `-`: standard input and output, which ssh and srun bring to another machine.

It knows engines and their configuration, and nothing of Prefect, the warehouse or training, so that it can run under an
interpreter that has only what its engine needs. It ends when whoever started it does, whatever it is doing: a thread
notices that the socket has closed. While samples are drawn it answers other questions between two completions.

From its starter: `open` (first), `sample`, `more`, `end`, `score`, `refresh`, `close`, each with the
number of its call. To it: `completion`, `answer`, `error`, with the number of the call they belong to, and `closed`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.checkpoints.errors import EngineError
from tasks.config import EngineConfig
from tasks.engines import open_here, wire
from tasks.engines.protocol import Request, SamplingEngine


class Closed(Exception):
    """The starter wants nothing more."""


class EngineServer:
    """One engine and the connection over which it is driven."""

    def __init__(self, connection: wire.Connection) -> None:
        self._connection = connection
        self._frames: queue.SimpleQueue[wire.Frame] = queue.SimpleQueue()
        self._engine: SamplingEngine | None = None
        self._sampling: _Call | None = None
        self._closed = False
        threading.Thread(target=self._listen, name="frames", daemon=True).start()

    def run(self) -> None:
        """Answer until asked to close."""
        try:
            while True:
                self._handle(*self._frames.get())
        except Closed:
            if self._engine is not None:
                self._engine.close()
            self._closed = True
            with contextlib.suppress(OSError):  # the starter may be gone
                wire.send(self._connection, {"call": 0, "is": "closed"})

    def _listen(self) -> None:
        """Take frames in while the engine works; when the starter is gone, so is everything of this process."""
        while (frame := wire.receive(self._connection)) is not None:
            self._frames.put(frame)
        if self._closed:
            return
        if os.getpgid(0) == os.getpid():  # as it was started; what the engine has started is of the same group
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    def _handle(self, header: dict[str, Any], arrays: Sequence[wire.Array]) -> None:
        call, asked = header["call"], header["do"]
        if asked == "close":
            raise Closed
        if asked in ("more", "end"):
            if self._sampling is not None and call == self._sampling.number:
                self._sampling.take(asked, header, arrays)
            return  # else of a call that has failed meanwhile
        try:
            if asked == "sample":
                self._sample(_Call(call))
            else:
                wire.send(self._connection, *self._answer(asked, call, header, arrays))
        except EngineError as error:
            self._report(call, type(error).__name__, str(error), error.code)
        except Closed:
            raise
        except Exception as error:  # what failed is unknown, and so is the engine's state
            self._report(call, "EngineDied", f"the engine failed: {type(error).__name__}: {error}")
            traceback.print_exc()
            raise

    def _answer(
        self, asked: str, call: int, header: dict[str, Any], arrays: Sequence[wire.Array]
    ) -> tuple[dict[str, Any], list[wire.Array]]:
        """Header and arrays of the answer."""
        answer: dict[str, Any] = {"call": call, "is": "answer"}
        if asked == "open":
            return answer | self._open(header), []
        engine = self._opened()
        if asked == "score":
            return answer, wire.lists_out(engine.score(wire.sequences_in(arrays)))
        if asked == "refresh":
            if self._sampling is not None:
                raise EngineError(
                    "weights cannot change while samples are drawn; finish or close every `sample` first",
                    code="StillSampling",
                )
            engine.refresh(Path(header["checkpoint"]))
            return answer | {"policy_id": engine.policy_id}, []
        raise wire.Garbled(f"no engine process can {asked!r}")

    def _open(self, header: dict[str, Any]) -> dict[str, Any]:
        if header["version"] != wire.VERSION:
            raise wire.Garbled(f"frames of version {header['version']}, this process speaks version {wire.VERSION}")
        config = EngineConfig.model_validate(header["engine"])
        kind = {"dtype": header["dtype"], "adapter_rank": header["adapter_rank"]}
        engine = self._engine = open_here(config, Path(header["checkpoint"]), **kind)
        said = {name: getattr(engine, name) for name in ("name", "logprob_kind", "rolling", "policy_id")}
        return said | {"version": wire.VERSION}

    def _opened(self) -> SamplingEngine:
        if self._engine is None:
            raise EngineError("the engine of this process could not be opened")
        return self._engine

    def _sample(self, call: _Call) -> None:
        """Draw what comes for the call until its end is told."""
        if self._sampling is not None:
            raise EngineError(
                "this process draws samples already; finish or close one `sample` before the next", code="StillSampling"
            )
        engine, self._sampling = self._opened(), call
        try:
            while not call.ended:
                if not call.waiting:
                    self._handle(*self._frames.get())
                numbers: list[int] = []
                for completion in engine.sample(self._requests(call, numbers)):
                    header, arrays = wire.completion_out(completion, numbers[completion.request])
                    wire.send(self._connection, header | {"call": call.number}, arrays)
                    self._look()
                    if call.ended:
                        break
        finally:
            self._sampling = None

    def _requests(self, call: _Call, numbers: list[int]) -> Iterator[Request | None]:
        """The call's requests as they come, what came at once between two Nones; writes down their numbers."""
        while True:
            self._look()
            if call.waiting and not call.ended:
                first, requests = call.waiting.popleft()
                numbers.extend(range(first, first + len(requests)))
                yield from requests
            yield None

    def _look(self) -> None:
        """Answer what has been asked meanwhile, up to the end of the samples: what comes after it waits for that."""
        while self._sampling is not None and not self._sampling.ended and not self._frames.empty():
            self._handle(*self._frames.get())

    def _report(self, call: int, kind: str, message: str, code: str = "") -> None:
        wire.send(self._connection, {"call": call, "is": "error", "kind": kind, "message": message, "code": code})


class _Call:
    """An open call of `sample`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = False
        self.waiting: deque[tuple[int, list[Request]]] = deque()
        """Requests that the engine has not read yet, with the number of the first."""

    def take(self, asked: str, header: dict[str, Any], arrays: Sequence[wire.Array]) -> None:
        """More requests, or the end."""
        if asked == "end":
            self.ended = True
        else:
            self.waiting.append((header["first"], wire.requests_in(header["requests"], arrays)))


def main(argv: Sequence[str]) -> int:
    """Serve what `argv[0]` names. What libraries print goes to standard error."""
    connection = _streams() if argv[0] == wire.STREAMS else socket.socket(fileno=int(argv[0]))
    os.dup2(2, 1)
    EngineServer(connection).run()
    return 0


def _streams() -> wire.Streams:
    """Standard input and output, which nothing else in this process can then read or write."""
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    streams = wire.Streams(os.dup(0), os.dup(1))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return streams


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)  # taking the interpreter down would only cost time
