"""What a flow refuses of its parameters before it makes a run, and what a command sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flows import pipeline
from flows.cli.run_commands import submitted
from flows.settings import RECIPES
from tasks import config


def test_overrides_of_a_stage_without_a_run_to_make_are_refused() -> None:
    with pytest.raises(config.InvalidConfig, match="overrides"):
        pipeline.q0.fn(overrides={"q0": {"samples": 3}})


@pytest.mark.parametrize("stage", [pipeline.pivotal, pipeline.train, pipeline.evaluate, pipeline.report])
def test_a_stage_that_reads_what_a_new_run_has_not_is_refused_for_a_new_run(stage: Any) -> None:
    for origin in ({"recipe": "tiny"}, {"like": "tiny-1"}):
        with pytest.raises(config.InvalidConfig):
            stage.fn(**origin)


def test_the_word_none_is_sent_as_what_it_means() -> None:
    settings = ["problems.depth=none", "reference.pretrain.depth=none"]
    made, tree = submitted("regime", settings)
    assert made.problems.depth is None
    assert tree["problems"] == {"depth": None}
    jsonschema.validate(tree, config.overrides_schema())
    assert config.load("regime", tree, folder=RECIPES) == made


def test_a_base_that_comes_back_to_its_recipe_by_another_path_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "toml"
    folder.mkdir()
    (folder / "loop.toml").write_text('base = "../toml/loop.toml"\n', encoding="utf-8")
    with pytest.raises(config.InvalidConfig, match="loop"):
        config.load(str(folder / "loop.toml"), folder=RECIPES)
