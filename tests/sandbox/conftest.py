"""Judges of every backend that works here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from sandbox import Judge, Limits, SandboxUnavailable, Suite, TestCase

BACKENDS = [
    pytest.param(("embedded", {"outer": "bubblewrap"}), id="bubblewrap"),
    pytest.param(("embedded", {"outer": "none"}), id="bare"),
    pytest.param(("docker", {}), id="docker", marks=pytest.mark.docker),
]


def open_judge(backend: tuple[str, dict[str, Any]], **options: Any) -> Judge:
    """A judge, or a skipped test where this backend cannot work."""
    try:
        return Judge(backend[0], backend_options=backend[1], **options)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@contextmanager
def watched(**options: Any) -> Iterator[tuple[Judge, Callable[[], list[int]]]]:
    """A judge whose runners are children of this process, and what gives their process ids."""
    me = psutil.Process()
    before = {child.pid for child in me.children()}
    with Judge(backend_options={"outer": "none"}, **options) as judge:
        yield judge, lambda: [child.pid for child in me.children() if child.pid not in before]


@pytest.fixture(scope="module", params=BACKENDS)
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    """One worker of each backend, tests run one by one."""
    with open_judge(request.param, workers=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def local() -> Iterator[Judge]:
    """Two workers of the embedded backend."""
    with Judge(workers=2) as opened:
        yield opened


def sums(count: int = 3, limits: Limits | None = None) -> Suite:
    """Add two numbers."""
    tests = tuple(TestCase(f"{k} {k * k}\n", f"{k + k * k}\n") for k in range(count))
    return Suite(f"sums-{count}-{limits}", tests, limits=limits or Limits(cpu_s=1))
