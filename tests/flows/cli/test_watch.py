"""Watching a run: patience with a server that is away, and a clear end when it stays away."""

from __future__ import annotations

import contextlib
import io
from uuid import uuid4

import httpx
import pytest
from rich.console import Console

from flows.cli import watch
from flows.cli.run_commands import RunEnded, _explain
from flows.progress import StageRow
from flows.server import liveness
from flows.server.deployments import SILENT


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
