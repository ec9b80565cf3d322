"""docs/reference/methods.md names every method's objective, where it is, and nothing that is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

from tasks.config.objectives import IN_GROUPS, OTHER_METHODS, ObjectiveKind
from tasks.objectives.dispatch import GROUP_VALUES, LOSSES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
FUNCTIONS = sorted(set(re.findall(r"`(tasks\.objectives\.\w+\.\w+)`", PAGE)))


def test_every_method_has_a_row() -> None:
    rows = {line.split("|")[2] for line in PAGE.splitlines() if line.startswith("|") and line.count("|") == 7}
    named = {word for row in rows for word in re.findall(r"\w+", row)}
    assert set(get_args(ObjectiveKind)) >= OTHER_METHODS
    assert {*OTHER_METHODS, "likelihood", "terminal", "ppo"} <= named


def test_every_kind_of_objective_has_a_loss_and_every_group_something_to_say() -> None:
    assert set(LOSSES) == set(get_args(ObjectiveKind))
    assert set(GROUP_VALUES) == IN_GROUPS | {"dpo"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_the_page_names_is_there(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("module", ["groups", "policy_gradient", "regression"])
def test_every_function_of_a_method_is_on_the_page(module: str) -> None:
    source = (ROOT / "tasks" / "objectives" / f"{module}.py").read_text(encoding="utf-8")
    public = {f"tasks.objectives.{module}.{name}" for name in re.findall(r"^def ([a-z]\w*)\(", source, re.MULTILINE)}
    assert public
    assert public <= set(FUNCTIONS)


def test_each_table_gives_every_method_an_end() -> None:
    ends = PAGE.partition("## What each would end with")[2].partition("## Whole groups")[0]
    for name in (
        "SPO",
        "PPO",
        "A\\*-PO",
        "TBA",
        "RLOO",
        "OAPL",
        "DPO",
        "GRPO",
        "MaxRL",
        "pass@k",
        "AsymRE",
        "rejection",
    ):
        assert re.search(rf"^\| [^|]*{re.escape(name)}", ends, re.MULTILINE), name
