"""Starts the longest files first, prints progress with the remaining time, failures at once, and skips by reason.

Files with the same `pytest.mark.xdist_group("NAME")` run in one process, which shares what they need.
Plugin of pytest (`-p tests.progress` in pyproject.toml). The times of files are those of the last run in this folder.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TIMES = "spo/wall_s_of_files"
EVERY_S = 15.0
LONG = ("tests/flows/", "tests/tasks/run/", "tests/tasks/corpus/", "tests/tasks/train/", "tests/sandbox/")
"""Folders that come first where no times are known."""


def file_of(nodeid: str) -> str:
    """Path of the file of a test."""
    return nodeid.partition("::")[0]


@cache
def scope_of(file: str) -> str:
    """The group that the file names, or the file itself: what one process runs as a whole."""
    named = re.search(r'xdist_group\("(\w+)"\)', Path(file).read_text(encoding="utf-8"))
    return named[1] if named else file


class Progress:
    """Follows the tests of a session where their reports arrive."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._reporter: Any = None
        self._cached = hasattr(config, "cache")  # not with -p no:cacheprovider
        self._known: dict[str, float] = config.cache.get(TIMES, {}) if self._cached else {}
        self._spent: dict[str, float] = defaultdict(float)
        self._left: dict[str, int] = {}
        self._began = self._written = time.monotonic()
        self._count = self._failed = 0
        self._skipped: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if "PYTEST_XDIST_WORKER" in os.environ:  # its scheduler keeps the order of the collection
            files = list(dict.fromkeys(file_of(item.nodeid) for item in items))
            place = {file: number for number, file in enumerate(longest_first(files, self._known))}
            items.sort(key=lambda item: place[file_of(item.nodeid)])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._start(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._start(ids)

    def _start(self, nodeids: Iterable[str]) -> None:
        if not self._left:
            self._left = Counter(map(file_of, nodeids))
            self._count = sum(self._left.values())
            self._reporter = self._config.pluginmanager.get_plugin("terminalreporter")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if self._config.get_verbosity() > 0 or hasattr(report, "wasxfail"):
            return None
        if report.skipped or (report.when == "call" and report.outcome in ("passed", "failed")):
            return report.outcome, "", ""  # failures have a line of their own, skips are counted by reason
        return None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spent[file_of(report.nodeid)] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
        if report.failed and self._reporter:
            self._failed += 1
            self._reporter.ensure_newline()
            self._reporter.write_line(f"FAILED {report.nodeid}", red=True)
        if report.when == "teardown":
            self._left[file_of(report.nodeid)] -= 1
            now = time.monotonic()
            if self._reporter and now - self._written > EVERY_S:
                self._written = now
                self._reporter.ensure_newline()
                self._reporter.write_line(self._line(now - self._began))

    def _line(self, passed_s: float) -> str:
        left = sum(self._left.values())
        done = self._count - left
        mean = sum(self._spent.values()) / max(1, done)
        ahead = sum(
            max(self._known[file] - self._spent.get(file, 0.0), 0.0) if file in self._known else mean * count
            for file, count in self._left.items()
            if count
        )
        remaining_s = passed_s * ahead / max(sum(self._spent.values()), 0.1)
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{done} of {self._count} tests{failed}, {duration(passed_s)}, about {duration(remaining_s)} left"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section("skipped")
            for reason, count in self._skipped.most_common():
                terminalreporter.write_line(f"{count:5d}  {reason}")

    def pytest_sessionfinish(self) -> None:
        whole = {file for file, count in self._left.items() if count == 0}
        if self._cached and "PYTEST_XDIST_WORKER" not in os.environ:
            self._config.cache.set(TIMES, self._known | {file: self._spent[file] for file in whole})


def longest_first(files: Sequence[str], known: dict[str, float]) -> list[str]:
    """The files, longest scope first; those without a known time by `LONG`, before what is known to be short."""
    scopes: dict[str, float] = defaultdict(float)
    for file in files:
        scopes[scope_of(file)] += known.get(file, 60.0 if file.startswith(LONG) else 5.0)
    return sorted(files, key=lambda file: (-scopes[scope_of(file)], scope_of(file)))


def duration(seconds: float) -> str:
    """Minutes and seconds in words."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives a process of pytest-xdist one file, or all files of a group, at a time."""
    from xdist.scheduler import LoadFileScheduling  # which vLLM's environment has not

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(file_of(nodeid))

    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Progress(config), "spo-progress")
