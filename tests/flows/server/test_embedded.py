"""Stopping the embedded server and worker, whose processes may end by themselves meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
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


@pytest.mark.parametrize("changed", ["tasks/config/train.py", "flows/pipeline.py", "prefect.yaml"])
def test_what_the_deployments_are_made_of_is_deployed_again_once_it_changes(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prefect.yaml", "flows/pipeline.py", "tasks/config/train.py", "tasks/config/tree.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(embedded, "PROJECT", tmp_path)
    before = embedded._fingerprint()
    assert embedded._fingerprint() == before
    (tmp_path / changed).write_text("something else", encoding="utf-8")
    assert embedded._fingerprint() != before
