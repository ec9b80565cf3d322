"""`spo recipes`: names, values and meanings, in the form that a recipe is written in."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from flows.cli.main import app
from flows.settings import RECIPES, recipe_meaning, recipe_names
from tasks import config
from tasks.config import InvalidConfig


def recipes(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["recipes", *arguments], env={"COLUMNS": "100"})


def test_without_a_name_it_lists_what_ships_and_what_for() -> None:
    shown = recipes().stdout
    assert [line.split()[0] for line in shown.splitlines() if not line.startswith(" ")] == recipe_names()
    words = " ".join(shown.split())
    assert "The whole pipeline on the built-in miniature task" in words
    assert "The settings of Cohen et al. (2025), SPO half online" in words
    assert all(len(recipe_meaning(name).split()) >= 8 for name in recipe_names())


def test_a_recipe_is_printed_with_every_value_and_can_be_run_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(recipes("ppo", "--set", "train.steps=7").stdout, encoding="utf-8")
    assert tomllib.loads(path.read_text(encoding="utf-8"))["train"]["ppo"]["epochs"] == 4
    mine = config.load(str(path), folder=RECIPES)
    assert mine.recipe == "mine"
    assert mine == config.load("ppo", {"train.steps": 7, "recipe": "mine"}, folder=RECIPES)


def test_a_recipe_is_printed_as_json_too() -> None:
    assert json.loads(recipes("tiny", "--json").stdout)["train"]["steps"] == 60


def test_fields_are_printed_with_default_bounds_and_meaning() -> None:
    shown = recipes("--fields", "train.optimizer.betas").stdout
    assert "train.optimizer.betas = [0.9, 0.95]" in shown
    assert "decay rates" in shown
    assert len(recipes("--fields").stdout) > len(recipes("--fields", "train").stdout) > len(shown)


def test_a_wrong_beginning_is_answered_with_fields_that_are_near() -> None:
    result = recipes("--fields", "train.optimiser")
    assert isinstance(result.exception, InvalidConfig)
    assert "train.optimizer" in str(result.exception)


@pytest.mark.parametrize("arguments", [["tinny"], ["tiny", "--set", "train.stepz=3"]])
def test_a_wrong_recipe_or_field_is_refused(arguments: list[str]) -> None:
    assert isinstance(recipes(*arguments).exception, config.ConfigError)
