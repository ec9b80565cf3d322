"""Watching a run: patience with a server that is away, and a clear end when it stays away."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

from flows.cli import watch


def failing(times: int) -> object:
    left = [times]

    def look() -> tuple[str, str, list[watch.Line]]:
        if left[0]:
            left[0] -= 1
            raise httpx.ConnectError("refused")
        return "RUNNING", "Running", []

    return look


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    assert watch._patiently(failing(30), uuid4())[0] == "RUNNING"  # type: ignore[arg-type]


def test_a_server_that_stays_away_ends_the_watching_with_the_way_on(clock: list[float]) -> None:
    with pytest.raises(watch.ServerGone, match="spo resume"):
        watch._patiently(failing(10**6), uuid4())  # type: ignore[arg-type]
    assert clock[0] == pytest.approx(watch.PATIENCE_S, abs=2)
