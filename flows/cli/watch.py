"""Submitting a run to Prefect and showing its stage table until it ends."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from flows.progress import ARTIFACT_KEY, StageRow, describe
from flows.server.embedded import use_server
from flows.server.liveness import GRACE_S, taken_for_dead
from flows.settings import api_url, home
from tasks.errors import CodedError
from tasks.run.durations import duration, pace

T = TypeVar("T")
CANCEL_ON_TERM = "SPO_CANCEL_ON_TERM"
"""Environment variable: 1 lets SIGTERM cancel the run that is watched."""
POLL_S = 1.0
SLOWEST_POLL_S = 5.0
"""What takes long is looked at less often: each look costs the server 35 ms of a core that a small policy trains on."""
PATIENCE_S = 60.0
LINE_EVERY_S = 60.0
"""Where there is no terminal, a stage that gets on says so at least so often."""
FINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "CRASHED"})
MARKS = {"waiting": "·", "running": "▶", "retrying": "↻", "done": "✓", "skipped": "=", "failed": "✗", "cancelled": "■"}


class NotDeployed(CodedError):
    """The server answers and does not know the flow."""


class NotAccepted(CodedError):
    """The server does not take the parameters of a flow run."""


class ServerGone(CodedError):
    """The Prefect server does not answer any more."""


class Clock(Protocol):
    """Time between two looks; the module `time` fits."""

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Let so much time pass."""
        ...


def submit(deployment: str, parameters: Mapping[str, Any]) -> UUID:
    """Flow run id of `deployment` started with `parameters`.

    Raises NotDeployed when the server does not have it, and NotAccepted for parameters that it refuses.
    """
    use_server()
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    with get_client(sync_client=True) as client:
        try:
            target = client.read_deployment_by_name(deployment)
        except ObjectNotFound as error:
            raise NotDeployed(
                f"the Prefect server at {api_url()} has no deployment {deployment!r}; `spo up` deploys to it"
            ) from error
        try:
            return client.create_flow_run_from_deployment(target.id, parameters=dict(parameters)).id
        except httpx.HTTPStatusError as error:
            if error.response.is_server_error:
                raise
            raise NotAccepted(
                f"the Prefect server at {api_url()} does not take these parameters of {deployment!r}: "
                f"{_said(error.response)}; correct what it names, or deploy again with `spo up` after an update"
            ) from error


def _said(response: Any) -> str:
    """What a server says in its refusal."""
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.text[:500]}"


@dataclass(frozen=True, slots=True)
class Look:
    """A flow run as it is now."""

    state: str
    """Prefect's type: `RUNNING`, `COMPLETED`, `FAILED`, ..."""
    name: str
    message: str
    """The result, or what it failed with."""
    lines: list[StageRow]
    runs: tuple[str, ...] = ()
    """Runs of the pipeline that it works on, as its stage table says."""


def watch(
    flow_run_id: UUID,
    console: Console,
    *,
    connect: Callable[[], AbstractContextManager[Any]] | None = None,
    clock: Clock = time,
) -> Look:
    """The flow run at its end, its table shown meanwhile.

    `connect` makes the client of the server, by default of the one that the environment names.
    Raises ServerGone when the server does not answer for `PATIENCE_S`. An interrupt ends the watching, not the run.
    A SIGTERM cancels the run where SPO_CANCEL_ON_TERM is 1, and is watched to its end.
    """
    shown: dict[str, tuple[str, int, float]] = {}
    asked = _asked_to_stop()
    try:
        with (connect or _connect)() as client, Live(console=console, refresh_per_second=2) as live:
            if not console.is_terminal:
                live.stop()
            crashed_at: float | None = None
            started = clock.monotonic()
            while True:
                if asked.is_set():
                    asked.clear()
                    _patiently(lambda: _cancel(client, flow_run_id), flow_run_id, clock)
                now = _patiently(lambda: _look(client, flow_run_id), flow_run_id, clock)
                if console.is_terminal:
                    live.update(render(now.lines, now.name))
                else:
                    _print_changes(console, now.lines, shown, clock.monotonic())
                crashed_at = (crashed_at or clock.monotonic()) if taken_for_dead(now.state, now.message) else None
                if now.state in FINAL and (crashed_at is None or clock.monotonic() - crashed_at > GRACE_S):
                    if os.environ.get(CANCEL_ON_TERM) == "1" and now.state != "COMPLETED":
                        await_trainers(now.runs, console)
                    return now
                clock.sleep(poll_s(clock.monotonic() - started))
    except KeyboardInterrupt:
        console.print(f"the run goes on: `spo status`; to end it: prefect flow-run cancel {flow_run_id}")
        raise


def _connect() -> AbstractContextManager[Any]:
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def poll_s(watched_s: float) -> float:
    """Seconds until the next look at what has been watched so long: a hundredth of it, within bounds."""
    return min(max(POLL_S, watched_s / 100), SLOWEST_POLL_S)


def await_trainers(runs: Sequence[str], console: Console) -> None:
    """Wait until no trainer of these runs is at work: Prefect calls a run cancelled after 30 s, whatever it writes.

    A batch script that ended then would take the machines from under the checkpoint. A trainer that is still there
    after the time that it gets to end hangs, and is told of instead.
    """
    from tasks.run.stage import run_folder
    from tasks.train.shared import time_limits, trainer_lock
    from tasks.train.shared.errors import TrainerError
    from tasks.train.shared.job import TrainJob

    for run_id in runs:
        run_dir = run_folder(home(), run_id) / "train"
        if not trainer_lock.is_held(run_dir):
            continue
        job = TrainJob.read(run_dir / "job.json")
        try:
            patience_s = time_limits.patience_s(job.reference, job.train)
            trainer_lock.await_end(run_dir, patience_s, lambda message: _say(console, message))
        except TrainerError as error:
            _say(console, str(error))


def _say(console: Console, message: str) -> None:
    console.print(escape(message), highlight=False, soft_wrap=True)


def _asked_to_stop() -> threading.Event:
    """Set by SIGTERM from here on, where scripts/slurm.sh or another launcher has said that it is to cancel the run."""
    asked = threading.Event()
    if os.environ.get(CANCEL_ON_TERM) == "1":
        signal.signal(signal.SIGTERM, lambda *_: asked.set())
    return asked


def _cancel(client: Any, flow_run_id: UUID) -> None:
    """Let the run write a checkpoint and end; one that has ended stays as it is."""
    from prefect.states import Cancelling

    client.set_flow_run_state(flow_run_id, Cancelling(message="the machines are taken back"))


def _look(client: Any, flow_run_id: UUID) -> Look:
    run = client.read_flow_run(flow_run_id)
    state = "PENDING" if run.state is None else str(run.state.type.value)
    message = "" if run.state is None else run.state.message or ""
    title = f"{run.name}: {(run.state_name or state).lower()}"
    table = _table_of(client, flow_run_id)
    lines = _lines(table)
    return Look(state, title, message, lines, runs_of("" if table is None else table.description or "", lines))


def _patiently(look: Callable[[], T], flow_run_id: UUID, clock: Clock) -> T:
    import httpx

    deadline = clock.monotonic() + PATIENCE_S
    while True:
        try:
            return look()
        except httpx.HTTPError as error:
            if clock.monotonic() > deadline:
                raise ServerGone(
                    f"the Prefect server has not answered for {PATIENCE_S:.0f} s ({type(error).__name__}); the run may "
                    f"still go on. `spo up` starts the server again, `spo status` and `spo resume` show and continue "
                    f"the run (flow run {flow_run_id})"
                ) from error
            clock.sleep(POLL_S)


def _lines(table: Any) -> list[StageRow]:
    """The stage table of a flow run, empty before its first stage."""
    return [] if table is None else [StageRow(**line) for line in json.loads(table.data)]


def runs_of(title: str, lines: Sequence[StageRow]) -> tuple[str, ...]:
    """The run that the stage table of this title is of; of a study's the one that it is at."""
    kind, _, name = title.partition(" ")
    at = [line.run for line in lines if line.run and line.state in {"running", "retrying"}]
    return (name, *at) if kind == "run" else tuple(at)


def _table_of(client: Any, flow_run_id: UUID) -> Any:
    """The newest stage table of a flow run: a retried one has one per attempt."""
    from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey

    wanted = ArtifactFilter(
        flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]), key=ArtifactFilterKey(any_=[ARTIFACT_KEY])
    )
    found = client.read_artifacts(artifact_filter=wanted)
    return max(found, key=lambda artifact: str(artifact.created), default=None)


def render(lines: list[StageRow], title: str) -> Table:
    """The stage table for a terminal."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading, side in (("", "left"), ("stage", "left"), ("progress", "right"), ("rate", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    table.add_column("left", justify="right")
    table.add_column("took", justify="right")
    table.add_column("")
    for line in lines:
        table.add_row(
            MARKS[line.state],
            line.stage,
            f"{line.done}/{line.total} {line.unit}" if line.total else "",
            pace(line.rate) if line.rate and line.state == "running" else "",
            "" if line.remaining_s is None else duration(line.remaining_s),
            duration(line.seconds) if line.seconds else "",
            _noted(line),
        )
    return table


def _noted(line: StageRow) -> str:
    """The note; of a stage that is tried again with the time until then."""
    if line.retry_at is None:
        return escape(line.note)
    return escape(f"tried again in {duration(max(0.0, line.retry_at - time.time()))}; {line.note}")


def _print_changes(
    console: Console, lines: list[StageRow], shown: dict[str, tuple[str, int, float]], now: float
) -> None:
    """For pipes and logs: one line whenever a stage changes state, every tenth of its way, and every minute of it."""
    for line in lines:
        tenth = 10 * line.done // line.total if line.total else 0
        mark = f"{line.state}/{tenth}/{line.retry_at or ''}"
        before, done, then = shown.get(line.stage, ("", 0, now))
        moved = line.state == "running" and line.done != done and now - then >= LINE_EVERY_S
        if line.state == "waiting" or (before == mark and not moved):
            continue
        shown[line.stage] = (mark, line.done, now)
        console.print(_told(line), highlight=False, soft_wrap=True)


def _told(line: StageRow) -> str:
    """A stage as one line of a log."""
    if line.state == "running":
        return describe(line) if line.total else f"{line.stage}: started {line.note}".rstrip()
    if line.state == "retrying":
        return f"{line.stage}: {_noted(line)}"
    return f"{line.stage}: {line.state} in {duration(line.seconds)}; {line.note}"
