"""A process of a training run: what it says is read, it can be started again, and nothing of it stays open."""

from __future__ import annotations

import gc
import os
import queue
import sys
import time
from pathlib import Path

import psutil

from tasks.train.shared.child import Child, ChildCommand, Line

SAYS = """
import json, sys
print("an error", file=sys.stderr, flush=True)
print("no JSON", flush=True)
print(json.dumps({"pid": 1}), flush=True)
sys.stdin.read()
"""


def started(folder: Path, lines: queue.Queue[tuple[str, Line]]) -> Child:
    return Child(ChildCommand("worker-0", [sys.executable, "-c", SAYS], folder / "logs" / "worker-0.log"), lines)


def test_its_lines_are_read_its_errors_logged_and_what_it_opened_is_closed_when_it_ends(tmp_path: Path) -> None:
    lines: queue.Queue[tuple[str, Line]] = queue.Queue()
    before = len(os.listdir("/proc/self/fd"))
    child = started(tmp_path, lines)
    assert lines.get(timeout=30) == ("worker-0", {"pid": 1})
    first = child.process.pid
    child.start()
    assert lines.get(timeout=30) == ("worker-0", {"pid": 1})
    assert not psutil.pid_exists(first)
    assert child.status() is None
    child.end(grace_s=30)
    assert child.status() is not None
    assert child.what.tail() == "an error\nan error\n"
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert len(os.listdir("/proc/self/fd")) == before
