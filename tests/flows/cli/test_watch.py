"""Watching a run: patience with a server that is away, and a clear end when it stays away."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State
from rich.console import Console

from flows.cli import watch
from flows.cli.run_commands import RunEnded, _explain
from flows.progress import StageRow
from flows.server import liveness
from flows.server.deployments import SILENT
from tasks.train.shared import time_limits, trainer_lock
from tasks.train.shared.job import TrainJob
from tests.tasks.train.conftest import config, make_job, save_reference


def failing(times: int) -> object:
    left = [times]

    def look() -> watch.Look:
        if left[0]:
            left[0] -= 1
            raise httpx.ConnectError("refused")
        return watch.Look("RUNNING", "tiny-1: running", "", [])

    return look


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    assert watch._patiently(failing(30), uuid4()).state == "RUNNING"  # type: ignore[arg-type]


def test_a_server_that_stays_away_ends_the_watching_with_the_way_on(clock: list[float]) -> None:
    with pytest.raises(watch.ServerGone, match="spo resume"):
        watch._patiently(failing(10**6), uuid4())  # type: ignore[arg-type]
    assert clock[0] == pytest.approx(watch.PATIENCE_S, abs=2)


def test_what_takes_hours_is_looked_at_every_few_seconds_and_what_takes_minutes_every_second(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def look(_client: object, _flow_run: object) -> watch.Look:
        looks.append(clock[0])
        return watch.Look("RUNNING" if clock[0] < 7200 else "COMPLETED", "long", "", [])

    monkeypatch.setattr(watch, "_look", look)
    watch.watch(uuid4(), Console(file=io.StringIO()))
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert gaps[:90] == [1.0] * 90
    assert gaps[-1] == watch.SLOWEST_POLL_S
    assert len(looks) < 7200 / watch.SLOWEST_POLL_S * 1.3


def test_a_flow_run_that_ended_before_it_had_made_a_run_is_explained_with_its_cause_and_its_log() -> None:
    flow_run = uuid4()
    ended = watch.Look("FAILED", "tiny: failed", "Flow run encountered an exception: NotWritable: read-only", [])
    with pytest.raises(RunEnded) as told:
        _explain(ended, None, flow_run)
    assert "NotWritable: read-only" in str(told.value)
    assert f"prefect flow-run logs {flow_run}" in str(told.value)


def test_a_cancelled_run_is_called_cancelled_and_a_failed_one_names_the_stage_and_its_cause() -> None:
    stopped = watch.Look("CANCELLED", "tiny-1: cancelled", "", [StageRow("q0", "cancelled", note="TerminationSignal")])
    with pytest.raises(RunEnded, match="run tiny-1 was cancelled\nresume with: spo resume tiny-1"):
        _explain(stopped, "tiny-1", uuid4())
    failed = watch.Look("FAILED", "tiny-1: failed", "", [StageRow("q0", "failed", note="MissingModel: no end token")])
    with pytest.raises(RunEnded, match="run tiny-1 ended as FAILED: q0: MissingModel: no end token"):
        _explain(failed, "tiny-1", uuid4())


def test_a_run_taken_for_dead_is_watched_until_it_is_put_back_or_the_grace_is_over(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    assert liveness.taken_for_dead("CRASHED", SILENT)
    revived = [("CRASHED", SILENT)] * 5 + [("RUNNING", ""), ("COMPLETED", "")]
    looks = [watch.Look(state, "tiny-1", message, []) for state, message in revived]
    monkeypatch.setattr(watch, "_look", lambda *_: looks.pop(0) if len(looks) > 1 else looks[0])
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: contextlib.nullcontext())
    quiet = Console(file=io.StringIO())
    assert watch.watch(uuid4(), quiet).state == "COMPLETED"
    looks[:] = [watch.Look("CRASHED", "tiny-1", SILENT, [])]
    begun = clock[0]
    assert watch.watch(uuid4(), quiet).state == "CRASHED"
    assert clock[0] - begun == pytest.approx(liveness.GRACE_S, abs=3)


def test_a_log_hears_of_a_long_stage_every_tenth_and_every_minute_of_its_way(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    def look(*_: object) -> watch.Look:
        now = int(clock[0])
        state = "COMPLETED" if now >= 700 else "RUNNING"
        stage = StageRow("train", "running", done=now // 10 if now < 400 else 40, total=400, unit="steps")
        return watch.Look(state, "smollm-1", "", [stage])

    monkeypatch.setattr(watch, "_look", look)
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: contextlib.nullcontext())
    written = io.StringIO()
    watch.watch(uuid4(), Console(file=written))
    done = [int(line.split()[1].split("/")[0]) for line in written.getvalue().splitlines()]
    assert done == [0, 6, 12, 18, 24, 30, 36, 40]


class Client:
    """A client of a server that has one deployment and refuses parameters; it keeps the states that are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing."""

    def read_deployment_by_name(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(id=uuid4())

    def create_flow_run_from_deployment(self, *_: object, **__: object) -> None:
        request = httpx.Request("POST", "http://127.0.0.1:9/api")
        answer = httpx.Response(409, json={"detail": "overrides.seed: '007' is not of type 'integer'"}, request=request)
        answer.raise_for_status()

    def set_flow_run_state(self, _: object, state: State[Any]) -> None:
        self.asked.append(str(state.type.value))


def test_parameters_that_the_server_refuses_are_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: Client())
    monkeypatch.setattr(watch, "use_server", lambda: None)
    with pytest.raises(watch.NotAccepted, match=r"'spo/train': overrides\.seed: '007' is not of type 'integer'"):
        watch.submit("spo/train", {})


@pytest.mark.parametrize("wanted", [True, False])
def test_sigterm_cancels_the_run_and_is_watched_to_its_end_where_a_launcher_asks_for_that(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, before = Client(), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: client)
    monkeypatch.setenv(watch.CANCEL_ON_TERM, "1" if wanted else "")
    terms: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    looks = 0

    def look(*_: object) -> watch.Look:
        nonlocal looks
        looks += 1
        if looks == 2:
            signal.raise_signal(signal.SIGTERM)
        state = "CANCELLED" if client.asked and looks > 5 else "COMPLETED" if looks > 9 else "RUNNING"
        return watch.Look(state, "tiny-1", "", [])

    monkeypatch.setattr(watch, "_look", look)
    try:
        ended = watch.watch(uuid4(), Console(file=io.StringIO()))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (ended.state, client.asked) == (("CANCELLED", ["CANCELLING"]) if wanted else ("COMPLETED", []))
    assert len(terms) == (0 if wanted else 1)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of run tiny-1's training, which a command watches that SIGTERM lets cancel the run."""
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.setenv(watch.CANCEL_ON_TERM, "1")
    monkeypatch.setattr(watch.signal, "signal", lambda *_: None)
    monkeypatch.setattr("prefect.client.orchestration.get_client", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(trainer_lock, "POLL_S", 1.0)
    job = make_job(
        tmp_path, save_reference(tmp_path / "reference"), config(), run_id="tiny-1", name="runs/tiny-1/train"
    )
    job.write(job.run_dir / "job.json")
    return job.run_dir


def seen(state: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said when a flow run that works on tiny-1 ends as `state`."""
    monkeypatch.setattr(watch, "_look", lambda *_: watch.Look(state, "tiny-1", "", [], ("tiny-1",)))
    written = io.StringIO()
    watch.watch(uuid4(), Console(file=written))
    return written.getvalue()


def test_a_cancelled_runs_trainer_is_waited_for_while_another_runs_trains_on(
    trained: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    with trainer_lock.held(trained.parents[1] / "tiny-2" / "train", 0, print), contextlib.ExitStack() as stack:
        stack.enter_context(trainer_lock.held(trained, 0, print))

        def sleep(seconds: float) -> None:
            clock[0] += seconds
            if clock[0] > 40:
                stack.close()

        monkeypatch.setattr(watch.time, "sleep", sleep)
        assert f"a trainer of {trained} is still at work" in seen("CANCELLED", monkeypatch)
        assert clock[0] == pytest.approx(40, abs=2)
        assert seen("CANCELLED", monkeypatch) == ""
        assert clock[0] == pytest.approx(40, abs=2)


def test_a_hung_trainer_is_waited_for_as_long_as_it_gets_to_end_and_then_told_of(
    trained: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    job = TrainJob.read(trained / "job.json")
    with trainer_lock.held(trained, 0, print):
        assert f"a trainer of {trained} has not ended in" in seen("FAILED", monkeypatch)
        assert clock[0] == pytest.approx(time_limits.patience_s(job.reference, job.train), abs=2)


def test_no_trainer_is_waited_for_after_a_run_that_completed(
    trained: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    with trainer_lock.held(trained, 0, print):
        assert seen("COMPLETED", monkeypatch) == ""
    assert clock[0] == 0


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
        (None, [], ()),
    ],
)
def test_the_runs_that_a_flow_run_works_on_are_those_of_its_stage_table(
    title: str | None, lines: list[StageRow], expected: tuple[str, ...]
) -> None:
    data = json.dumps([{"stage": line.stage, "state": line.state, "run": line.run} for line in lines])
    tables = [] if title is None else [SimpleNamespace(data=data, description=title, created="1")]
    run = SimpleNamespace(state=None, state_name=None, name="a-run")
    client = SimpleNamespace(read_flow_run=lambda _: run, read_artifacts=lambda **_: tables)
    assert watch._look(client, uuid4()).runs == expected
