"""Stopping the embedded server and worker, whose processes may end by themselves meanwhile."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psutil
import pytest

from flows.server import embedded


def ended() -> psutil.Process:
    """A process that is gone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    child.communicate(b"\n")
    return process


def test_a_process_that_has_ended_is_stopped() -> None:
    embedded._stop(ended())


def test_a_survivor_that_ends_just_before_it_is_killed_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ended()

    def wait(*_: Any, **__: Any) -> tuple[list[Any], list[psutil.Process]]:
        return [], [gone]

    monkeypatch.setattr(psutil, "wait_procs", wait)
    embedded._stop(gone)
