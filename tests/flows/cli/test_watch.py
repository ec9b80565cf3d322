"""Watching a run: patience with a server that is away, a clear end when it stays away, and cancelling from outside."""

from __future__ import annotations

import io
import itertools
import json
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Crashed, Failed, Running
from rich.console import Console

from flows.cli import watch
from flows.cli.run_commands import RunEnded, explain
from flows.progress import StageRow
from flows.server import liveness
from flows.server.deployments import SILENT
from tasks.train.shared import trainer_lock
from tests.tasks.train.conftest import config, make_job, save_reference


class Clock:
    """Time that passes when it is waited for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Client:
    """A server's client: states of a flow run by the number of the look, and the newest table; keeps what is asked."""

    def __init__(self, state: Callable[[int], State[Any]], table: Callable[[], Sequence[StageRow]] = list) -> None:
        self.looks, self.asked = 0, list[str]()
        self._state, self._table = state, table

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def read_flow_run(self, _: object) -> SimpleNamespace:
        self.looks += 1
        state = self._state(self.looks)
        return SimpleNamespace(name="tiny-1", state=state, state_name=state.name)

    def read_artifacts(self, **_: object) -> list[SimpleNamespace]:
        data = json.dumps([asdict(line) for line in self._table()])
        return [SimpleNamespace(data=data, description="run tiny-1", created="1")]

    def set_flow_run_state(self, _: object, state: State[Any]) -> None:
        self.asked.append(str(state.type.value))


def watched(client: Client, clock: Clock) -> tuple[watch.Look, str]:
    """The flow run at its end, and what was written meanwhile."""
    written = io.StringIO()
    return watch.watch(
        uuid4(), Console(file=written, width=200), connect=lambda: client, clock=clock
    ), written.getvalue()


def test_a_server_that_is_away_for_a_while_is_waited_for_and_given_up_when_it_stays_away() -> None:
    def back_after(looks: float) -> Client:
        def state(look: int) -> State[Any]:
            if look <= looks:
                raise httpx.ConnectError("refused")
            return Completed()

        return Client(state)

    clock = Clock()
    assert watched(back_after(30), clock)[0].state == "COMPLETED"
    waited = clock.now
    with pytest.raises(watch.ServerGone):
        watched(back_after(float("inf")), clock)
    assert clock.now - waited == pytest.approx(watch.PATIENCE_S, abs=2)


def test_what_takes_hours_is_looked_at_every_few_seconds_and_what_takes_minutes_every_second() -> None:
    clock, looks = Clock(), list[float]()

    def state(_: int) -> State[Any]:
        looks.append(clock.now)
        return Running() if clock.now < 7200 else Completed()

    watched(Client(state), clock)
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert gaps[:90] == [1.0] * 90
    assert gaps[-1] == watch.SLOWEST_POLL_S
    assert len(looks) < 7200 / watch.SLOWEST_POLL_S * 1.3


def test_a_run_taken_for_dead_is_watched_until_it_is_put_back_or_the_grace_is_over() -> None:
    revived = [*[Crashed(message=SILENT)] * 5, Running(), Completed()]
    assert watched(Client(lambda look: revived[look - 1]), Clock())[0].state == "COMPLETED"
    clock = Clock()
    assert watched(Client(lambda _: Crashed(message=SILENT)), clock)[0].state == "CRASHED"
    assert clock.now == pytest.approx(liveness.GRACE_S, abs=3)


def test_a_log_hears_of_a_long_stage_every_tenth_and_every_minute_of_its_way() -> None:
    clock = Clock()

    def table() -> list[StageRow]:
        now = int(clock.now)
        return [StageRow("train", "running", done=now // 10 if now < 400 else 40, total=400, unit="steps")]

    _, written = watched(Client(lambda _: Completed() if clock.now >= 700 else Running(), table), clock)
    done = [int(line.split()[1].split("/")[0]) for line in written.splitlines()]
    assert done == [0, 6, 12, 18, 24, 30, 36, 40]


@pytest.mark.parametrize("wanted", [True, False])
def test_sigterm_cancels_the_run_and_is_watched_to_its_end_where_a_launcher_asks_for_that(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(watch.CANCEL_ON_TERM, "1" if wanted else "")
    terms: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))

    def state(look: int) -> State[Any]:
        if look == 2:
            signal.raise_signal(signal.SIGTERM)
        return Cancelled() if client.asked and look > 5 else Completed() if look > 9 else Running()

    client = Client(state)
    try:
        ended, _ = watched(client, Clock())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended.state, client.asked) == (("CANCELLED", ["CANCELLING"]) if wanted else ("COMPLETED", []))
    assert len(terms) == (0 if wanted else 1)


@pytest.mark.parametrize(("state", "waits"), [(Cancelled(), True), (Failed(), True), (Completed(), False)])
def test_the_trainer_of_a_run_that_ended_before_its_time_is_waited_for_and_no_other(
    state: State[Any], waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.setenv(watch.CANCEL_ON_TERM, "1")
    reference = save_reference(tmp_path / "reference")
    job = make_job(tmp_path, reference, config(), run_id="tiny-1", name="runs/tiny-1/train")
    job.write(job.run_dir / "job.json")
    there, over = threading.Event(), threading.Event()

    def train() -> None:
        with trainer_lock.held(job.run_dir, 0, print):
            there.set()
            over.wait(60)

    trainer = threading.Thread(target=train)
    trainer.start()
    assert there.wait(10)
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.3, over.set).start()
    try:
        with trainer_lock.held(tmp_path / "runs" / "tiny-2" / "train", 0, print):
            _, written = watched(Client(lambda _: state), Clock())
        assert over.is_set() is waits
    finally:
        signal.signal(signal.SIGTERM, before)
        over.set()
        trainer.join()
    assert (str(job.run_dir) in written.replace("\n", "")) is waits


@pytest.mark.parametrize(
    ("title", "lines", "expected"),
    [
        ("run tiny-1", [StageRow("train", "cancelled")], ("tiny-1",)),
        (
            "study quick",
            [StageRow("a 0", "done", run="tiny-1"), StageRow("a 1", "running", run="tiny-2"), StageRow("a 2")],
            ("tiny-2",),
        ),
        ("audit", [StageRow("audit", "running")], ()),
        ("", [], ()),
    ],
)
def test_the_runs_that_a_flow_run_works_on_are_those_of_its_stage_table(
    title: str, lines: list[StageRow], expected: tuple[str, ...]
) -> None:
    assert watch.runs_of(title, lines) == expected


@pytest.mark.parametrize(
    ("state", "run", "line", "code", "named"),
    [
        ("FAILED", None, None, "NoRunMade", "NotWritable: read-only"),
        (
            "CANCELLED",
            "tiny-1",
            StageRow("q0", "cancelled", note="TerminationSignal"),
            "RunCancelled",
            "spo resume tiny-1",
        ),
        (
            "FAILED",
            "tiny-1",
            StageRow("q0", "failed", note="MissingModel: no end"),
            "RunFailed",
            "q0: MissingModel: no end",
        ),
    ],
)
def test_an_end_is_told_with_its_cause_or_the_way_on(
    state: str, run: str | None, line: StageRow | None, code: str, named: str
) -> None:
    flow_run = uuid4()
    ended = watch.Look(state, "tiny", "NotWritable: read-only", [line] if line else [])
    with pytest.raises(RunEnded) as told:
        explain(ended, run, flow_run)
    assert told.value.code == code
    assert named in str(told.value)
    assert f"prefect flow-run logs {flow_run}" in str(told.value)
