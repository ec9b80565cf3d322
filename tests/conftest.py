"""All tests: where they compute, and that those in docs/reference/paper-map.md call the cited functions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import examples, paper_map

ROWS = paper_map.rows()
examples.load_profile()

if "SPO_TEST_GPU" not in os.environ:  # results are compared bit for bit, for which they have to come from the CPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may read, as `tmp_path` is not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    functions = [row.resolve() for row in ROWS if row.cites(item.nodeid)]
    if not functions:
        return (yield)
    with paper_map.calls_to(*functions) as missing:
        result = yield
    if missing:
        raise AssertionError(f"docs/reference/paper-map.md cites this test for {sorted(missing)}, which it never calls")
    return result
