"""Processes that a home keeps a record of: told again after a clock was set, a reboot, or a number that was reused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tasks.train.shared import trainer_lock

STOP_TIMEOUT_S = 20.0
CHECKPOINT_TIMEOUT_S = 900.0
"""Time that a trainer has for the step that it is at and for its checkpoint."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PLACE_OF_START = 19
"""Of the clock ticks from boot to a process's start, among the fields of /proc/PID/stat behind its name."""


def record_of(pid: int) -> dict[str, Any]:
    """What tells this process from all others of this machine, now and later."""
    return {"pid": pid, **_start(pid)}


def alive(record: dict[str, Any] | None) -> psutil.Process | None:
    """The process of a record, unless it has ended or its number now belongs to another one."""
    if record is None:
        return None
    try:
        process = psutil.Process(record["pid"])
        if "created" in record:  # by a version that asked the clock
            same = abs(process.create_time() - record["created"]) < 1.0
        else:
            same = all(record.get(name) == value for name, value in _start(process.pid).items())
    except psutil.NoSuchProcess:
        return None
    return process if same and not _ended(process) else None


def stop(
    process: psutil.Process, told: Callable[[str], None] = lambda _: None, timeout_s: float = STOP_TIMEOUT_S
) -> None:
    """End a process and all that it started, by force after `timeout_s`; trainers when their checkpoint is there.

    A worker does not hand a stop on, so all are asked.
    """
    family = [process]
    with suppress(psutil.NoSuchProcess):
        family += process.children(recursive=True)
    trainers = [member for member in family if is_trainer(member)]
    ask_to_end(family)
    if trainers:
        told(f"a training is under way: it ends with its step and a checkpoint, in at most {CHECKPOINT_TIMEOUT_S:g} s")
        _await_end(trainers, CHECKPOINT_TIMEOUT_S)
    left = _await_end(family, timeout_s)
    for survivor in left:
        with suppress(psutil.NoSuchProcess):  # it ended as it was given up
            survivor.kill()
    _await_end(left, 5.0)


def _await_end(family: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Wait until all have ended; returns those that have not. One that its parent has not buried yet has ended."""
    until = time.monotonic() + timeout_s
    while (left := [member for member in family if not _ended(member)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def ask_to_end(family: Iterable[psutil.Process]) -> None:
    """Send SIGTERM to all of them that are still there."""
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.terminate()


def is_trainer(process: psutil.Process) -> bool:
    """Whether the process trains: it has a trainer's lock open."""
    try:
        return any(Path(file.path).name == trainer_lock.LOCK for file in process.open_files())
    except psutil.Error:  # it has ended, or is another user's and no trainer
        return False


def _start(pid: int) -> dict[str, Any]:
    """When it started: on Linux since which boot and how long after it, which no setting of the clock changes."""
    if not _BOOT.exists():
        return {"started": round(psutil.Process(pid).create_time(), 2)}
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        raise psutil.NoSuchProcess(pid) from None
    ticks = int(fields[_PLACE_OF_START]) / os.sysconf("SC_CLK_TCK")
    return {"boot": _BOOT.read_text(encoding="ascii").strip(), "started": ticks}
