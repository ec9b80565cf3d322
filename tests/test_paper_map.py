"""docs/paper-map.md says the truth."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("|") and "::" in line
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_function_and_the_test_of_every_row_exist(row: list[str]) -> None:
    module, name = row[2].strip("`").rsplit(".", 1)
    assert callable(getattr(importlib.import_module(module), name))
    file, test = row[3].strip("`").split("::")
    assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_equation_and_theorem_is_listed() -> None:
    listed = {row[0] for row in ROWS}
    assert {f"Eq. {number}" for number in range(1, 14)} <= listed
    assert {f"Theorem 2.{number}" for number in range(1, 5)} <= listed


def test_every_section_on_methods_and_experiments_is_listed() -> None:
    listed = {row[0].split()[0] for row in ROWS}
    assert {"3.1.1", "3.1.2", "3.1.3", "3.1.4", "3.2", "5", "5.1", "6"} <= listed


@pytest.mark.parametrize("module", ["losses", "spo", "ppo"])
def test_every_public_objective_is_mapped(module: str) -> None:
    """Losses, regressions and what PPO is made of; not the steps inside them."""
    inner = {"log1mexp", "cross_entropy_of_probability", "reduce_tokens", "prefix_sums"}
    mapped = {row[2].strip("`") for row in ROWS}
    source = (ROOT / "tasks" / "objectives" / f"{module}.py").read_text(encoding="utf-8")
    public = set(re.findall(r"^def ([a-z]\w*)\(", source, re.MULTILINE)) - inner
    assert public
    assert {f"tasks.objectives.{module}.{name}" for name in public} <= mapped
