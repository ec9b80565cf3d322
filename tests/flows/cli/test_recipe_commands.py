"""`spo recipes`: names, values and meanings, in the form that a recipe is written in."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from flows.settings import RECIPES, recipe_meaning, recipe_names
from tasks import config
from tests.flows.cli.conftest import Spo, code


def test_without_a_name_it_lists_what_ships_and_what_for(spo: Spo) -> None:
    shown = spo("recipes").stdout
    assert [line.split()[0] for line in shown.splitlines() if not line.startswith(" ")] == recipe_names()
    words = " ".join(shown.split())
    assert all(recipe_meaning(name)[:40] in words for name in recipe_names())
    assert all(len(recipe_meaning(name).split()) >= 8 for name in recipe_names())


def test_a_recipe_is_printed_with_every_value_and_can_be_run_from_a_file(tmp_path: Path, spo: Spo) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(spo("recipes", "ppo", "--set", "train.steps=7").stdout, encoding="utf-8")
    assert tomllib.loads(path.read_text(encoding="utf-8"))["train"]["ppo"]["epochs"] == 4
    mine = config.load(str(path), folder=RECIPES)
    assert mine.recipe == "mine"
    assert mine == config.load("ppo", {"train.steps": 7, "recipe": "mine"}, folder=RECIPES)

    steps = config.load("tiny", folder=RECIPES).train.steps
    assert json.loads(spo("recipes", "tiny", "--json").stdout)["train"]["steps"] == steps


def test_fields_are_printed_with_default_and_meaning_and_a_wrong_name_is_answered_with_one_that_is_near(
    spo: Spo,
) -> None:
    shown = spo("recipes", "--fields", "train.optimizer.betas").stdout
    assert "train.optimizer.betas = [0.9, 0.95]" in shown
    assert len(spo("recipes", "--fields").stdout) > len(spo("recipes", "--fields", "train").stdout) > len(shown)
    wrong = spo("recipes", "--fields", "train.optimiser")
    assert code(wrong) == "InvalidConfig"
    assert "train.optimizer" in str(wrong.exception)


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [("UnknownRecipe", ["tinny"]), ("InvalidConfig", ["tiny", "--set", "train.stepz=3"])],
)
def test_a_wrong_recipe_or_field_is_refused(expected: str, arguments: list[str], spo: Spo) -> None:
    assert code(spo("recipes", *arguments)) == expected
