"""The configuration tree refuses what is unknown or impossible, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.schema_tools.validation import ValidationError, validate

from flows.pipeline import full_pipeline
from flows.settings import RECIPES, recipe_names
from sandbox import Judge
from tasks import config
from tasks.config import SandboxConfig
from tests.refusals import refused


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_is_valid(name: str) -> None:
    assert config.load(name, folder=RECIPES).recipe == Path(name).name


def test_overrides_win_over_the_recipe_and_the_recipe_over_the_defaults() -> None:
    loaded = config.load("tiny", {"train.steps": 7, "evaluate": {"samples": 12}}, folder=RECIPES)
    assert loaded.train.steps == 7
    assert loaded.evaluate.samples == 12
    assert (
        loaded.train.batch_size
        == config.load("tiny", folder=RECIPES).train.batch_size
        != config.TrainConfig().batch_size
    )


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"train": {"stepz": 3}}, ["train.stepz", "no such field", "did you mean 'steps'?"]),
        ({"train": {"colour": 3}}, ["train.colour", "no such field", "batch_size, behaviour"]),
        ({"train.algorithm": "spoo"}, ["train.algorithm", "'spo' or 'ppo'", "got 'spoo'"]),
        ({"train": {"lora": {"rankk": 3}}}, ["train.lora.rankk", "did you mean 'rank'?"]),
        ({"train": {"sources": {"online": {"sharee": 1}}}}, ["train.sources.online.sharee", "did you mean 'share'?"]),
        ({"corpus.other_models": [{"nam": "x"}]}, ["corpus.other_models.0.nam", "did you mean 'name'?"]),
        ({"nonsense": 1}, ["nonsense", "no such field"]),
        ({"train.batch_size": 63}, ["train", "63", "cannot be divided"]),
        ({"evaluate": {"samples": 5}}, ["evaluate", "pass@10", "5 samples"]),
        ({"train.optimizer.learning_rate": "fast"}, ["train.optimizer.learning_rate", "number"]),
        ({"problems": {"source": "jsonl"}}, ["problems", "path"]),
        ({"train.steps.more": 1}, ["train.steps.more", "a value, not a section"]),
        ({"train.sources": {}}, ["train.sources", "changes nothing", "null"]),
        ({"engine": {"vllm": {}}}, ["engine.vllm", "changes nothing", "null"]),
        ({"train.sources.online.share": 0.75}, ["train", "add up to 1"]),
    ],
)
def test_a_bad_field_is_refused_by_name(overrides: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(config.InvalidConfig) as refused:
        config.load("tiny", overrides, folder=RECIPES)
    for word in words:
        assert word in str(refused.value)


def test_an_unknown_recipe_names_the_known_ones() -> None:
    with refused("UnknownRecipe", "tiny"):
        config.load("huge", folder=RECIPES)


def test_a_broken_recipe_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("train = [", encoding="utf-8")
    with refused("InvalidConfig", "mine.toml"):
        config.load(str(path), folder=RECIPES)


def test_a_recipe_starts_from_its_base_and_changes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text("seed = 5\n[train]\nsteps = 7\nbatch_size = 64\n", encoding="utf-8")
    (tmp_path / "second.toml").write_text('base = "first"\n[train]\nsteps = 9\n', encoding="utf-8")
    loaded = config.load("second", folder=tmp_path)
    assert (loaded.recipe, loaded.seed, loaded.train.steps, loaded.train.batch_size) == ("second", 5, 9, 64)


def test_a_base_given_as_a_file_lies_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "first.toml").write_text("seed = 5\n", encoding="utf-8")
    (tmp_path / "second.toml").write_text('base = "first.toml"\n', encoding="utf-8")
    monkeypatch.chdir("/")
    assert config.load(str(tmp_path / "second.toml"), folder=RECIPES).seed == 5


def test_a_base_that_leads_back_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('base = "b"', encoding="utf-8")
    (tmp_path / "b.toml").write_text('base = "a"', encoding="utf-8")
    with refused("InvalidConfig", "base"):
        config.load("a", folder=tmp_path)


def test_the_stored_form_gives_the_same_configuration_again() -> None:
    loaded = config.load("tiny", {"seed": 3}, folder=RECIPES)
    assert config.RunConfig.model_validate_json(loaded.model_dump_json()) == loaded


def test_the_submission_schema_names_every_section_and_requires_none() -> None:
    schema = config.overrides_schema()
    assert set(schema["properties"]) == set(config.RunConfig.model_fields)
    assert "required" not in schema
    assert "$ref" not in str(schema)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"overrides": {"train": {"stepz": 3}}}, ["overrides.train", "'stepz'", "'steps'"]),
        ({"overrides": {"trane": {}}}, ["overrides", "'trane'", "'train'"]),
        ({"overrides": {"train": {"algorithm": "spoo"}}}, ["overrides.train.algorithm", "'spoo'", "['spo', 'ppo']"]),
        ({"overrides": {"train": {"steps": "many"}}}, ["overrides.train.steps", "'many'", "'integer'"]),
        ({"overrides": {"train": {"steps": 0}}}, ["overrides.train.steps", "minimum of 1"]),
        ({"overrides": {"sandbox": {"cpu_limit_s": "long"}}}, ["overrides.sandbox.cpu_limit_s", "'long'", "'number'"]),
        ({"overrides": {"train": {"sources": {"online": {"s": 1}}}}}, ["train.sources.online", "'s'", "'share'"]),
        ({"overrides": {"train": {"lora": {"rankk": 3}}}}, ["overrides.train.lora", "'rankk'", "'rank'"]),
        ({"overrides": {"corpus": {"sources": ["humans"]}}}, ["overrides.corpus.sources[0]", "'humans'", "'human'"]),
        ({"force": ["trian"]}, ["force[0]", "'trian'", "'train'"]),
        ({"recipe": "huge"}, ["recipe", "'huge'", "tiny"]),
        ({"pin": "newest"}, ["pin", "'newest'"]),
    ],
)
def test_prefect_refuses_wrong_parameters_with_their_name_and_what_is_allowed(
    parameters: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ValidationError) as refused:
        validate(parameters, full_pipeline.parameters.model_dump(), raise_on_error=True)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"recipe": "mine/other.toml", "overrides": {"q0": {"samples": 10}, "sandbox": {"cpu_limit_s": None}}},
        {"overrides": {"train": {"sources": {"online": {"share": 1.0}}, "behaviour": {"temperature": [1, 1]}}}},
        {"force": ["train", "report"], "pin": 12, "run": "tiny-3"},
        {"overrides": {"engine": {"vllm": None}, "train": {"steps": None, "sources": {"pivotal": None}, "lora": None}}},
        {"overrides": {"engine": {"vllm": {"max_model_len": 2048}}, "problems": None, "q0": {"adaptive": None}}},
    ],
)
def test_prefect_takes_what_the_configuration_takes(parameters: dict[str, Any]) -> None:
    assert validate(parameters, full_pipeline.parameters.model_dump()) == []


def test_what_is_for_containers_needs_containers() -> None:
    with refused("ValidationError", "sandbox.runtime"):
        SandboxConfig(runtime="runsc")
    with refused("ValidationError", "sandbox.container_memory_mb"):
        SandboxConfig(backend="embedded", container_memory_mb=4096)
    with refused("ValidationError", "sandbox.image"):
        SandboxConfig(image="spo-sandbox")
    with refused("ValidationError", "sandbox.image"):
        SandboxConfig(backend="docker", packages=("/packages",))


@pytest.mark.child
def test_a_judge_is_given_all_the_sandbox_section_says() -> None:
    containers: dict[str, Any] = {"backend": "docker", "runtime": "runsc", "container_memory_mb": 512, "image": "mine"}
    section = SandboxConfig(packages=("/p",), preimports=("numpy",), **containers)
    assert section.judge_arguments() == {
        "backend": "docker",
        "workers": 2,
        "mode": "test",
        "preimports": ("numpy",),
        "backend_options": {"packages": ("/p",), "image": "mine", "runtime": "runsc", "memory_bytes": 512 << 20},
    }
    with Judge(**SandboxConfig(workers=1).judge_arguments()) as judge:
        assert "seccomp" in judge.walls
