"""Whether a limit of time was really passed.

CPU time is not the program's alone: neighbours on the same core, memory that the host must fetch first, or a stalled
machine can make it several times longer, and a process that is not let near a processor looks asleep. So no test is
over time because of one run:

1. the usual run, beside whatever else this judge does;
2. after too much CPU time: again with twice the limit. What is still not done then is over time, whatever the
   neighbours did; what ended within the limit is not;
3. in between, or after a limit of real time: again while this judge runs nothing else. That run decides.

The second step spares the third to endless loops, for which all workers would otherwise stand still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from sandbox.records import Limits
from sandbox.runner import ENDED_ASLEEP, ENDED_CPU, ENDED_WALL
from sandbox.worker import RunReport

GENEROSITY = 2.0
"""Times the CPU limit that the second run may use: neighbours on one core slow a program down by less."""
PATIENCE = 4.0
"""Times the limits of real time that the last run may use."""
PROGRESS = 0.02
"""Share of real time spent computing above which a program is slow rather than waiting for something."""

Run = Callable[[Limits], RunReport]


class RunGate:
    """Where the cells of one judge run: beside one another, or one alone."""

    def __init__(self, workers: int) -> None:
        self.parallel = workers > 1
        self._changed = threading.Condition()
        self._running = 0
        self._waiting_exclusive = 0

    @contextmanager
    def shared(self) -> Generator[None]:
        """Run beside others; waits while somebody is alone or wants to be."""
        with self._changed:
            self._changed.wait_for(lambda: self._running >= 0 and not self._waiting_exclusive)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Run while nobody else does."""
        with self._changed:
            self._waiting_exclusive += 1
            self._changed.wait_for(lambda: self._running == 0)
            self._waiting_exclusive -= 1
            self._running = -1
        try:
            yield
        finally:
            with self._changed:
                self._running = 0
                self._changed.notify_all()


def over_time(report: RunReport, limits: Limits) -> bool:
    """Whether this run passed a limit of time."""
    return report.ended in (ENDED_CPU, ENDED_WALL, ENDED_ASLEEP) or report.cpu_s > limits.cpu_s


def confirm(gate: RunGate, run: Run, report: RunReport, limits: Limits) -> RunReport:
    """The report that counts: the given one if within the limits of time, else that of a further run.

    `run` runs the test once more under the limits it is given.
    """
    if not over_time(report, limits):
        return report
    if gate.parallel and report.ended not in (ENDED_WALL, ENDED_ASLEEP):
        with gate.shared():
            report = run(replace(limits, cpu_s=GENEROSITY * limits.cpu_s))
        if report.ended == ENDED_CPU or not over_time(report, limits):
            return report
    with gate.exclusive():
        return run(patient(limits, report))


def patient(limits: Limits, report: RunReport) -> Limits:
    """The limits with longer ones of real time, for a program that was ended by these although it was computing."""
    computing = report.ended != ENDED_WALL or report.cpu_s > PROGRESS * report.wall_s
    wall_s = limits.wall_cap_s * (PATIENCE if computing else 1)
    return replace(limits, wall_s=wall_s, asleep_s=PATIENCE * limits.asleep_s)
