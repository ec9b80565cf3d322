"""Relative paths start at the folder of whoever submits, wherever the configuration is read afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.cli.run_commands import submitted
from flows.settings import RECIPES
from tasks import config


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, with a checkpoint and a recipe in it."""
    here = tmp_path / "user"
    (here / "models" / "mine").mkdir(parents=True)
    (here / "mine.toml").write_text('base = "real"\n[problems]\npath = "data/train-*.jsonl"\n', encoding="utf-8")
    monkeypatch.chdir(here)
    return here


def read_elsewhere(
    recipe: str, overrides: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> config.RunConfig:
    """What a worker that was started in another folder makes of a submission."""
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path / "worker")
    return config.absolute(config.load(recipe, overrides, folder=RECIPES), Path())


def test_a_recipe_file_and_its_paths_start_where_the_command_is_given(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tree = submitted("mine.toml", ["reference.model=models/mine", 'corpus.files=["more.jsonl"]'])
    read = read_elsewhere(str(folder / "mine.toml"), tree, tmp_path, monkeypatch)
    assert read.problems.path == str(folder / "data" / "train-*.jsonl")
    assert read.reference.model == str(folder / "models" / "mine")
    assert read.corpus.files == (str(folder / "more.jsonl"),)


def test_the_paths_of_a_shipped_recipe_and_of_lists_of_sections_start_there_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = '[{"source": "jsonl", "path": "test.jsonl", "most": 5}]'
    other = '[{"name": "big", "model": "models/mine", "samples": 2}]'
    _, tree = submitted(
        "real", [f"problems.evaluation_sets={sets}", "problems.evaluation=null", f"corpus.other_models={other}"]
    )
    read = read_elsewhere("real", tree, tmp_path, monkeypatch)
    assert read.problems.path == str(folder / "problems.jsonl.gz")
    assert [(one.source, one.path, one.most) for one in read.problems.evaluation_sets] == [
        ("jsonl", str(folder / "test.jsonl"), 5)
    ]
    assert [(one.model, one.samples) for one in read.corpus.other_models] == [(str(folder / "models" / "mine"), 2)]


def test_names_on_the_hub_absolute_paths_and_home_stay_what_they_are(folder: Path) -> None:
    _, tree = submitted("real", ["problems.path=~/p.jsonl", f'corpus.files=["{folder / "a.jsonl"}"]'])
    assert tree["problems"]["path"] == str(Path("~/p.jsonl").expanduser())
    assert tree["corpus"]["files"] == [str(folder / "a.jsonl")]
    assert "reference" not in tree


def test_the_miniature_is_no_folder_even_where_one_has_its_name(folder: Path) -> None:
    (folder / "miniature").mkdir()
    assert submitted("tiny", [])[1] == {}


def test_what_is_absolute_stays_the_same_configuration(folder: Path) -> None:
    loaded = config.load("tiny", folder=RECIPES)
    assert config.absolute(loaded, folder) == loaded
    once = config.absolute(config.load("mine.toml", folder=RECIPES), folder)
    assert config.absolute(once, Path("/elsewhere")) == once


def test_packages_for_programs_start_where_the_command_is_given_unless_they_are_of_an_image(folder: Path) -> None:
    _, tree = submitted("tiny", ['sandbox.packages=["pk"]'])
    assert tree["sandbox"]["packages"] == [str(folder / "pk")]
    _, tree = submitted("tiny", ['sandbox.packages=["pk"]', "sandbox.backend=docker", "sandbox.image=mine"])
    assert tree["sandbox"]["packages"] == ["pk"]
