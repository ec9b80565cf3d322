"""`--quick`: the tests that start no process, in folders where these are the rule; one that starts a process fails.

Plugin of pytest (`-p tests.quick` in pyproject.toml) for `make test-quick`. A test or file that needs an engine, a
server or a child of the sandbox carries the mark `child`; its mark is all that keeps it out.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FOLDERS = (
    "tests/tasks/config",
    "tests/tasks/estimators",
    "tests/tasks/objectives",
    "tests/tasks/problems",
    "tests/tasks/scoring",
    "tests/warehouse/test_queries.py",
    "tests/warehouse/test_rows.py",
    "tests/warehouse/test_views.py",
)
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec"}
"""Audit events of CPython for a process that starts."""
_started: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that start no process, for the inner loop")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "child: starts a process; left out by --quick")
    if config.getoption("quick"):
        if [Path(one).name for one in config.args] == config.getini("testpaths"):
            config.args = list(FOLDERS)
        sys.addaudithook(lambda event, _: _started.append(event) if event in STARTS else None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        left_out = [item for item in items if item.get_closest_marker("child")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("child")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    _started.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    if item.config.getoption("quick") and _started:
        pytest.fail(f"this test starts a process ({_started[0]}): mark it with `child`", pytrace=False)
    return result
