"""Records the CPU and wall time of every test and file, prints the dearest, and enforces a budget.

A test pays for its children, for children that still run, and for every fixture that it is the first to need. What all
tests share is charged to a line of its own (`apart`): imports, the finished run, the server of the session.
Plugin of pytest (`-p tests.budget` in pyproject.toml). Processes that leave the process tree, such as a daemon, are
found only in the line "the machine was busy".
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.examples import MANY

TEST_CPU_S = 15.0
FILE_CPU_S = 40.0
SHOWN = 20
COLLECTION = "collection"
TICKS = os.sysconf("SC_CLK_TCK")
REFERENCE_LOOP_S = 0.025
"""CPU time of `_loop` on the machine that the budget was written for."""


def tree_cpu_s() -> float:
    """CPU seconds of this process, its ended children and its living descendants.

    A process that ends while it is read is missed once, so two readings are taken.
    """
    return max(_of_tree(os.getpid()) for _ in range(2))


def _of_tree(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:  # it has ended, or this system has no /proc
        return sum(os.times()[:4]) if pid == os.getpid() else 0.0
    own = sum(int(field) for field in text.rpartition(") ")[2].split()[11:15]) / TICKS
    return own + sum(map(_of_tree, _children(pid)))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended
            found += map(int, path.read_text(encoding="utf-8").split())
    return found


def machine_cpu_s() -> float | None:
    """CPU seconds that all processes of the machine have used since it started; None without /proc."""
    try:
        user, nice, system = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:4]
    except OSError:
        return None
    return (int(user) + int(nice) + int(system)) / TICKS


_apart: dict[str, float] = {}
_inside: list[str] = []


@contextmanager
def apart(name: str) -> Iterator[None]:
    """Charge what happens inside to `name` instead of the test that runs; an inner one charges the outer's name."""
    if _inside:
        yield
        return
    before = tree_cpu_s()
    _inside.append(name)
    try:
        yield
    finally:
        _inside.clear()
        _apart[name] = _apart.get(name, 0.0) + tree_cpu_s() - before


def slowness() -> float:
    """Speed of the reference machine over the speed of this one, at least 1."""
    best = min(_loop() for _ in range(5))
    return max(1.0, best / REFERENCE_LOOP_S)


def _loop() -> float:
    start = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number & 7
    return time.process_time() - start


class Budget:
    """Adds the times to the reports of a process, and gathers them where the reports arrive."""

    def __init__(self) -> None:
        self._cpu = tree_cpu_s()
        self._wall = time.monotonic()
        self._began = time.monotonic()
        self._machine = machine_cpu_s()
        self._tests: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._slow: set[str] = set()
        self._over: list[str] = []
        self._shared: dict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        cpu = tree_cpu_s()
        _apart[COLLECTION] = cpu - self._cpu  # goes out with the first report
        self._cpu, self._wall = cpu, time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        cpu, wall = tree_cpu_s(), time.monotonic()
        shared = sum(seconds for name, seconds in _apart.items() if name != COLLECTION)
        own = max(0.0, cpu - self._cpu - shared)
        report.spent = (own, wall - self._wall, item.get_closest_marker("slow") is not None)
        report.apart = dict(_apart)
        _apart.clear()
        self._cpu, self._wall = cpu, wall
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cpu, wall, slow = getattr(report, "spent", (0.0, 0.0, False))
        spent = self._tests[report.nodeid]
        spent[0] += cpu
        spent[1] += wall
        if slow:
            self._slow.add(report.nodeid)
        for name, seconds in getattr(report, "apart", {}).items():
            self._shared[name] += seconds

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if "PYTEST_XDIST_WORKER" in os.environ:
            return
        factor = slowness()
        tests = {name: cpu for name, (cpu, _) in self._tests.items() if name not in self._slow}
        self._over = [] if MANY else over_budget(tests, factor)
        if self._over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        write = terminalreporter.write_line
        terminalreporter.section("time")
        dearest = sorted(self._tests.items(), key=lambda item: -item[1][0])[:SHOWN]
        write("  CPU s  wall s  test")
        for name, (cpu, wall) in dearest:
            write(f"{cpu:7.1f} {wall:7.1f}  {name}")
        cpu = sum(spent[0] for spent in self._tests.values())
        wall = time.monotonic() - self._began
        shared = ", ".join(f"{name} {seconds:.0f}" for name, seconds in sorted(self._shared.items()))
        total = cpu + sum(self._shared.values())
        write(f"{len(self._tests)} tests: {total:.0f} CPU s ({shared}), {wall:.0f} s on the clock")
        if self._machine is not None and (now := machine_cpu_s()) is not None:
            write(f"the machine was busy {now - self._machine:.0f} CPU s")
        for line in self._over:
            write(f"over budget: {line}", red=True)
        if file := os.environ.get("SPO_TEST_TIMES"):
            rows = (f"{name}\t{cpu:.3f}\t{wall:.3f}\n" for name, (cpu, wall) in self._tests.items())
            Path(file).write_text("".join(rows), encoding="utf-8")


def over_budget(tests: dict[str, float], factor: float) -> list[str]:
    """Lines for tests and files above their budget; `factor`: see `slowness`."""
    files: dict[str, float] = defaultdict(float)
    for name, cpu in tests.items():
        files[name.partition("::")[0]] += cpu
    limits = [(tests, TEST_CPU_S * factor), (files, FILE_CPU_S * factor)]
    return [
        f"{name} took {cpu:.1f} CPU s of {limit:.0f}"
        for spent, limit in limits
        for name, cpu in sorted(spent.items(), key=lambda item: -item[1])
        if cpu > limit
    ]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Budget(), "spo-budget")
