"""The stage table of a run: what each stage is doing, how fast, and how long it will take.

It lives in the Prefect run as a table artifact that is updated in place, so that the terminal, the web page and
another machine see the same.
"""

from __future__ import annotations

import contextvars
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from tasks.run.durations import duration, pace

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

PUBLISH_EVERY_S = 2.0
LOG_EVERY_S = 15.0
RATE_WINDOW_S = 60.0
"""A rate is of at least so much time, once that has passed: of longer where reports are further apart."""
RATE_SHARE = 0.02
"""And of at least such a share of the whole, so that the pause between two bursts of reports is not taken for it."""
ARTIFACT_KEY = "spo-stages"


@dataclass(slots=True)
class StageRow:
    """One stage's line."""

    stage: str
    state: str = "waiting"
    done: int = 0
    total: int = 0
    unit: str = ""
    rate: float = 0.0
    remaining_s: float | None = None
    seconds: float = 0.0
    note: str = ""
    retry_at: float | None = None
    """When it is tried again after a failure, in seconds since 1970; the note says why."""
    run: str = ""
    """Of a line that stands for a whole run of a study: that run."""
    run_stage: str = ""
    """The stage of `run` that is under way."""


class Clock(Protocol):
    """Tells the time; the module `time` is one."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    def time(self) -> float:
        """Seconds since 1970."""
        ...


Rows = list[dict[str, Any]]


class ProgressTable:
    """The lines of a run or study; publishing is throttled, and a server that does not answer never stops a stage."""

    def __init__(
        self,
        stages: Sequence[str],
        publish: Callable[[Rows], object],
        log: Callable[[str], object],
        clock: Clock = time,
    ) -> None:
        self.lines = {stage: StageRow(stage) for stage in stages}
        self._publish, self.log, self._clock = publish, log, clock
        self._published = self._logged = 0.0
        self._started: dict[str, float] = {}
        self._marks: deque[tuple[float, int]] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        """Nothing: Prefect pickles the arguments of the task around a part that travels, and a board stays here."""
        return type(None), ()

    def start(self, stage: str) -> None:
        """`stage` begins."""
        self._started[stage] = self._clock.monotonic()
        self._marks.clear()
        self.lines[stage].state = "running"
        self._push(force=True)

    def start_part(self, line: str, run_id: str, stage: str) -> None:
        """`stage` of `run_id` begins, for which `line` stands; what it finds done, its first report says."""
        self._marks.clear()
        shown = self.lines[line]
        shown.state, shown.retry_at = "running", None
        shown.run, shown.run_stage, shown.note = run_id, stage, f"{run_id}, {stage}"
        shown.done, shown.total, shown.unit, shown.rate, shown.remaining_s = 0, 0, "", 0.0, None
        self._push(force=False)

    def progress(self, stage: str, done: int, total: int, unit: str, note: str) -> None:
        """`stage` has done `done` of `total` units."""
        now = self._clock.monotonic()
        if self._marks and done < self._marks[-1][1]:
            self._marks.clear()
        marks = self._marks
        marks.append((now, done))
        while len(marks) > 1 and now - marks[1][0] >= RATE_WINDOW_S and done - marks[1][1] >= RATE_SHARE * total:
            marks.popleft()
        line = self.lines[stage]
        line.state, line.retry_at = "running", None
        new_shard = shard(note) is not None and shard(note) != shard(line.note)
        line.done, line.total, line.unit, line.note = done, total, unit, note
        (then, before), elapsed = marks[0], now - marks[0][0]
        line.rate = (done - before) / elapsed if elapsed > 0 else 0.0
        line.remaining_s = (total - done) / line.rate if line.rate > 0 else None
        line.seconds = now - self._started.get(stage, then)
        if new_shard or now - self._logged >= LOG_EVERY_S:
            self._logged = now
            self.log(describe(line))
        self._push(force=False)

    def retry(self, stage: str, wait_s: float, cause: str) -> None:
        """`stage` failed, and is tried again after `wait_s`."""
        line, at = self.lines[stage], self._clock.time() + wait_s
        line.state, line.note, line.remaining_s, line.retry_at = "retrying", cause, None, at
        self.log(f"{stage}: tried again in {duration(wait_s)}; {cause}")
        self._push(force=True)

    @contextmanager
    def running(self, stage: str) -> Generator[None]:
        """`stage` runs within the block; what it raises becomes its note and is raised on."""
        self.start(stage)
        try:
            yield
        except BaseException as error:
            self.end(stage, ended(error), cause(error))
            raise

    def end(self, stage: str, state: str, note: str) -> None:
        """`stage` ended as `state` (done, skipped, failed, cancelled)."""
        line = self.lines[stage]
        line.state, line.note, line.remaining_s, line.retry_at = state, note, None, None
        now = self._clock.monotonic()
        line.seconds = now - self._started.get(stage, now)
        line.rate = line.done / line.seconds if line.seconds > 0 else 0.0
        self.log(f"{stage}: {state} in {duration(line.seconds)}; {note}")
        self._push(force=True)

    def _push(self, *, force: bool) -> None:
        now = self._clock.monotonic()
        if force or now - self._published >= PUBLISH_EVERY_S:
            self._published = now
            self._publish([_row(line) for line in self.lines.values()])


def _row(line: StageRow) -> dict[str, Any]:
    """The line as a row of the table, with figures that a person can read."""
    return asdict(line) | {
        "rate": float(f"{line.rate:.3g}"),
        "seconds": round(line.seconds, 1),
        "remaining_s": None if line.remaining_s is None else round(line.remaining_s, 1),
    }


class NestedProgress:
    """The board of a whole run as a single line of another board: shows the run and its stage that is under way."""

    def __init__(self, board: ProgressTable, line: str, run_id: str) -> None:
        self._board, self._line, self._run_id = board, line, run_id

    def start(self, stage: str) -> None:
        """`stage` begins."""
        self._board.start_part(self._line, self._run_id, stage)

    def progress(self, stage: str, done: int, total: int, unit: str, note: str) -> None:
        """`stage` has done `done` of `total` units."""
        shown = self._board.lines[self._line]
        shown.run, shown.run_stage = self._run_id, stage
        self._board.progress(self._line, done, total, unit, f"{self._run_id}, {stage} {note}".strip())

    def retry(self, stage: str, wait_s: float, cause: str) -> None:
        """`stage` failed, and is tried again after `wait_s`."""
        self._board.retry(self._line, wait_s, f"{self._run_id}, {stage}: {cause}")

    def end(self, stage: str, state: str, note: str) -> None:
        """`stage` ended; only the log hears of it."""
        self._board.log(f"{self._line}, {stage}: {state}; {note}")


class Publisher:
    """Writes the board into the current Prefect run: one table that is updated in place.

    Mere progress is sent by a thread, so that a slow server does not slow a stage down; of tables that wait only the
    newest is sent. When a stage begins or ends, the call returns after the server has answered.
    """

    def __init__(self, flow_run_id: UUID, title: str, send: Callable[[Rows], object] | None = None) -> None:
        """`send`: takes a table to the server; by default Prefect's client does."""
        self._flow_run_id, self._title, self._send = flow_run_id, title, send or self._send_by_client
        self._states: list[str] = []
        self._waiting: Rows | None = None
        self._sending = threading.Lock()
        self._thread: threading.Thread | None = None
        self._artifact: UUID | None = None

    def __call__(self, lines: Rows) -> None:
        states = [line["state"] for line in lines]
        self._waiting = lines
        if states != self._states:
            self._states = states
            self._send_waiting()
        elif self._thread is None or not self._thread.is_alive():
            run = contextvars.copy_context().run
            self._thread = threading.Thread(target=run, args=(self._send_waiting,), daemon=True)
            self._thread.start()

    def _send_waiting(self) -> None:
        with self._sending:
            lines, self._waiting = self._waiting, None
            if lines is not None:
                self._send(lines)

    def _send_by_client(self, lines: Rows) -> None:
        import httpx
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            try:
                self._put(client, json.dumps(lines))
            except httpx.HTTPError:
                return  # the next push carries everything again

    def _put(self, client: SyncPrefectClient, data: str) -> None:
        """Make or update the table; by the API alone, since the client's own methods send an event each time."""
        if self._artifact is not None:
            client.request("PATCH", "/artifacts/{id}", path_params={"id": self._artifact}, json={"data": data})
            return
        described = {"key": ARTIFACT_KEY, "type": "table", "data": data, "description": self._title}
        answer = client.request("POST", "/artifacts/", json=described | {"flow_run_id": str(self._flow_run_id)})
        self._artifact = UUID(answer.json()["id"])


class Log:
    """Prefect's run logger as a function."""

    def __call__(self, message: str) -> None:
        from prefect import get_run_logger

        get_run_logger().info(message)


def ended(error: BaseException) -> str:
    """How a stage ended that raised `error`: cancelled or failed."""
    from prefect.exceptions import CancelledRun, CrashedRun

    stopped = isinstance(error, (CancelledRun, CrashedRun)) or not isinstance(error, Exception)
    return "cancelled" if stopped else "failed"


def cause(error: BaseException) -> str:
    """What a line says of `error`."""
    return f"{type(error).__name__}: {error}"[:500]


def shard(note: str) -> str | None:
    """The note when it names a unit of work: `shard 3 of 6`, `wave 2, 640 rollouts`, `step 20`."""
    return note if re.match(r"(shard|wave|step) \d+", note) else None


def describe(line: StageRow) -> str:
    """One log line: `q0: 800/6400 samples, 53.1/s, 1 min 45 s left`."""
    rate = f", {pace(line.rate)}" if line.rate else ""
    left = "" if line.remaining_s is None else f", {duration(line.remaining_s)} left"
    note = f" ({line.note})" if line.note else ""
    return f"{line.stage}: {line.done}/{line.total} {line.unit}{rate}{left}{note}"
