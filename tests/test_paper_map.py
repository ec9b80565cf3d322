"""docs/reference/paper-map.md matches the code. tests/conftest.py checks that cited tests call their functions."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from tests import paper_map

ROOT = Path(__file__).parents[1]
ROWS = paper_map.rows()


@pytest.mark.parametrize("row", ROWS, ids=[row.paper for row in ROWS])
def test_the_function_of_every_row_exists_and_its_test_is_in_the_ordinary_run(row: paper_map.Row) -> None:
    assert callable(row.resolve())
    marks = [getattr(one, "pytestmark", []) for one in row.resolve_test()]
    assert "slow" not in {mark.name for mark in chain.from_iterable(m if isinstance(m, list) else [m] for m in marks)}


def test_a_cited_test_that_does_not_call_its_function_is_found() -> None:
    def called() -> None: ...

    def not_called() -> None: ...

    with paper_map.calls_to(called, not_called, paper_map.Row) as missing:
        called()
    assert missing == {"not_called", "Row"}


def test_a_row_cites_a_test_with_all_of_its_cases_or_one_of_them() -> None:
    every, one = paper_map.Row("", "", "a.py::test_b"), paper_map.Row("", "", "a.py::test_b[c d]")
    assert [every.cites(f"a.py::test_b{case}") for case in ("", "[c d]", "[e]", "_f")] == [True, True, True, False]
    assert [one.cites(f"a.py::test_b{case}") for case in ("", "[c d]", "[e]")] == [False, True, False]


def test_every_equation_and_theorem_is_listed() -> None:
    listed = {row.paper for row in ROWS}
    assert {f"Eq. {number}" for number in range(1, 14)} <= listed
    assert {f"Theorem 2.{number}" for number in range(1, 5)} <= listed


def test_every_section_on_methods_and_experiments_is_listed() -> None:
    listed = {row.paper.split()[0] for row in ROWS}
    assert {"3.1.1", "3.1.2", "3.1.3", "3.1.4", "3.2", "5", "5.1", "6"} <= listed


@pytest.mark.parametrize("module", ["losses", "spo", "ppo"])
def test_every_public_objective_is_mapped(module: str) -> None:
    """Losses, regressions and what PPO is made of; not the steps inside them."""
    inner = {"log1mexp", "cross_entropy_of_probability", "reduce_tokens", "prefix_sums"}
    mapped = {row.function for row in ROWS}
    source = (ROOT / "tasks" / "objectives" / f"{module}.py").read_text(encoding="utf-8")
    public = set(re.findall(r"^def ([a-z]\w*)\(", source, re.MULTILINE)) - inner
    assert public
    assert {f"tasks.objectives.{module}.{name}" for name in public} <= mapped
