"""Whether a limit of time was really passed, and whether it was the program that ended.

CPU time is not the program's alone: neighbours on the same core, memory that the host must fetch first, or a stalled
machine can make it several times longer, and a process that is not let near a processor looks asleep. So no test is
over time because of one run:

1. the usual run, beside whatever else this judge does;
2. after too much CPU time: again with twice the limit. What is still not done then is over time, whatever the
   neighbours did; what ended within the limit is not. In between: again while this judge runs nothing else;
3. after a limit of real time: the kernel counted how often the program waited of its own accord. One that did runs
   again beside the others, with more patience towards sleep; one that computed, and was not let near a processor, runs
   again with more of both, while this judge runs nothing else. That run decides.

A program cannot send itself SIGKILL (`confine.child_filter`), so whoever died of it below its limits was ended from
outside, most likely for want of memory: it is run again alone, and in the end the sandbox has failed, not the program.

Nobody holds the others up for long: neither waiting for them to end nor keeping them off takes longer than a program
within its limits could need.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from sandbox.children import ENDED_ASLEEP, ENDED_CPU, ENDED_ITSELF, ENDED_WALL
from sandbox.errors import RunnerLost
from sandbox.records import Limits
from sandbox.worker import RunReport

GENEROSITY = 2.0
"""Times the CPU limit that the second run may use: neighbours on one core slow a program down by less."""
PATIENCE = 4.0
"""Times the limits of real time that the last run may use."""
RUNS_AFTER_A_KILL = 2
"""How often a killed test is run again on one runner."""
FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that people and the kernel end processes with. Others are a program's own faults."""

Run = Callable[[Limits], RunReport]


class RunGate:
    """Where the cells of one judge run: beside one another, or for a while one alone."""

    def __init__(self, workers: int) -> None:
        self.parallel = workers > 1
        self._changed = threading.Condition()
        self._running = 0
        self._waiting = 0
        self._holder: object = None
        self._held_until = 0.0

    @property
    def wanted(self) -> bool:
        """Whether somebody waits to be alone; whoever has several runs ahead should pause between them."""
        return self._waiting > 0

    @contextmanager
    def shared(self) -> Generator[None]:
        """Run beside others; waits while somebody is alone or wants to be."""
        with self._changed:
            while self._waiting or self._held_until > time.monotonic():
                self._changed.wait(None if self._waiting else self._held_until - time.monotonic())
            self._running += 1
        try:
            yield
        finally:
            self._leave(None)

    @contextmanager
    def exclusive(self, most_s: float) -> Generator[None]:
        """Run while nobody else does, as far as `most_s` seconds of waiting and then of keeping them off allow."""
        me = object()
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._running == 0, most_s)
            self._waiting -= 1
            self._running += 1
            self._holder, self._held_until = me, time.monotonic() + most_s
            self._changed.notify_all()
        try:
            yield
        finally:
            self._leave(me)

    def _leave(self, holder: object) -> None:
        with self._changed:
            self._running -= 1
            if holder is not None and self._holder is holder:
                self._holder, self._held_until = None, 0.0
            self._changed.notify_all()


def over_time(report: RunReport, limits: Limits) -> bool:
    """Whether this run passed a limit of time."""
    return report.ended in (ENDED_CPU, ENDED_WALL, ENDED_ASLEEP) or report.cpu_s > limits.cpu_s


def killed(report: RunReport, limits: Limits) -> bool:
    """Whether somebody else may have ended this run, which was within its limits."""
    within = not over_time(report, limits) and report.memory_bytes <= limits.memory_bytes
    return report.ended == ENDED_ITSELF and report.signal in FROM_OUTSIDE and within


def confirm(gate: RunGate, run: Run, report: RunReport, limits: Limits) -> RunReport:
    """The report that counts: the given one if nothing can be to blame but the program, else that of a further run.

    `run` runs the test once more under the limits it is given. RunnerLost if the test is killed every time.
    """
    if killed(report, limits):
        report = run_again_after_kill(gate, run, report, limits)
    if not over_time(report, limits):
        return report
    if report.ended in (ENDED_WALL, ENDED_ASLEEP):
        return run_again_after_real_time(gate, run, report, limits)
    if gate.parallel:
        with gate.shared():
            report = run(replace(limits, cpu_s=GENEROSITY * limits.cpu_s))
        if report.ended == ENDED_CPU or not over_time(report, limits):
            return report
    with gate.exclusive(longest_hold_s(limits)):
        return run(patient(limits))


def run_again_after_kill(gate: RunGate, run: Run, report: RunReport, limits: Limits) -> RunReport:
    """The report of a run that nobody else ended, or of a program that ends itself by a signal each time."""
    for _ in range(RUNS_AFTER_A_KILL):
        with gate.exclusive(longest_hold_s(limits)):
            report = run(limits)
        if not killed(report, limits):
            return report
    if report.signal == signal.SIGKILL:
        raise RunnerLost(
            f"a test was killed from outside {1 + RUNS_AFTER_A_KILL} times at {report.memory_bytes >> 20} MiB; most "
            "likely memory ran out: fewer sandbox workers or lower memory limits need less"
        )
    return report


def run_again_after_real_time(gate: RunGate, run: Run, report: RunReport, limits: Limits) -> RunReport:
    """The report of a run with more patience, alone if the program had not been waiting for anything before."""
    if waited(report, limits):
        with gate.shared():
            return run(replace(limits, asleep_s=PATIENCE * limits.asleep_s))
    with gate.exclusive(longest_hold_s(limits)):
        return run(patient(limits))


def waited(report: RunReport, limits: Limits) -> bool:
    """Whether the program waited as often as one must that mostly sleeps and does not count as asleep."""
    return report.waits >= max(1, int(report.wall_s / limits.asleep_s) - 1)


def patient(limits: Limits) -> Limits:
    """The limits with longer ones of real time."""
    return replace(limits, wall_s=PATIENCE * limits.wall_cap_s, asleep_s=PATIENCE * limits.asleep_s)


def longest_hold_s(limits: Limits) -> float:
    """Seconds in which a program within its limits of CPU time ends on a processor of its own."""
    return GENEROSITY * limits.cpu_s + 1.0
