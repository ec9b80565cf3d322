"""The children of a runner's server: waiting for one, ending it at a limit, what it used and how it ended."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NamedTuple

ENDED_ITSELF, ENDED_CPU, ENDED_WALL, ENDED_ASLEEP = 0, 1, 2, 3


class End(NamedTuple):
    """How a child ended: by which wait status or limit, what it used, how often it waited."""

    status: int
    ended: int
    cpu_us: int
    wall_us: int
    peak_kib: int
    waits: int


NOTHING = End(0, 0, 0, 0, 0, 0)


def well(end: End) -> bool:
    """Whether a child ended by itself with status 0."""
    return end.status == 0 and end.ended == ENDED_ITSELF


def attend(pid: int, cpu_ms: int, wall_ms: int, asleep_ms: int) -> End:
    """Wait for a child and reap it; end it after so much CPU time or real time, or so long without any CPU time."""
    cpu_s, wall_s = cpu_ms / 1000, wall_ms / 1000
    started = time.monotonic()
    pidfd = os.pidfd_open(pid)
    waiter = select.poll()
    waiter.register(pidfd, select.POLLIN)
    clock = (~pid << 3) | 2  # the process's CPU clock: MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
    ended, used, moved_at, pause = ENDED_ITSELF, 0.0, started, min(cpu_s, 0.5) + 0.01
    while not waiter.poll(max(1, int(pause * 1000))):
        now, cpu = time.monotonic(), time.clock_gettime(clock)
        if cpu > used:
            used, moved_at = cpu, now
        if cpu > cpu_s:
            ended = ENDED_CPU
        elif now - started > wall_s:
            ended = ENDED_WALL
        elif now - moved_at > asleep_ms / 1000:
            ended = ENDED_ASLEEP
        if ended:
            os.kill(pid, signal.SIGKILL)
            break
        pause = min(max(cpu_s - cpu, 0.002), 0.25) + 0.002
    os.close(pidfd)
    _, status, usage = os.wait4(pid, 0)
    cpu_us, wall_us = int((usage.ru_utime + usage.ru_stime) * 1e6), int((time.monotonic() - started) * 1e6)
    return End(status, ended, cpu_us, wall_us, usage.ru_maxrss, usage.ru_nvcsw)


def expect_no_children() -> None:
    """Nothing may outlive its test; if something did, this worker is not to be trusted any more."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return
    os._exit(5)
