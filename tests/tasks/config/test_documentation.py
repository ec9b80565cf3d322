"""What people read of the configuration is what the models say."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.settings import RECIPES, recipe_names
from tasks import config
from tasks.config import documentation, toml_text
from tests.refusals import refused

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


def test_the_document_is_what_the_models_say() -> None:
    written = DOCUMENT.read_text(encoding="utf-8")
    assert written == documentation.page(), "run `spo recipes --document`"


def row(name: str) -> list[str]:
    """The cells of a field's row in the document."""
    (line,) = [line for line in documentation.page().splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize(
    ("name", "default", "values"),
    [
        ("train.steps", "100000", "integer, >= 1"),
        ("train.algorithm", '"spo"', "`spo`, `ppo`"),
        ("pivotal.confidence", "0.8", "number, > 0, < 1"),
        ("corpus.near_duplicates", "0.8", "number, 0 to 1"),
        ("train.optimizer.betas", "[0.9, 0.95]", "[number, number], >= 0, < 1"),
        ("sandbox.cpu_limit_s", "none", "number or none, 0.01 to 3,600"),
        ("corpus.other_models[].model", "(needed)", "string"),
    ],
)
def test_a_row_says_default_type_and_bounds(name: str, default: str, values: str) -> None:
    assert row(f"`{name}`")[1:3] == [f"`{default}`", values]


@pytest.mark.parametrize(
    ("section", "default"),
    [("evaluate.behaviour", "temperature = [0.4, 0.4]"), ("train.behaviour", "temperature = [0.1, 0.8]")],
)
def test_a_section_in_several_places_names_its_other_defaults(section: str, default: str) -> None:
    meaning = " ".join(row(f"**{section}**"))
    assert "`corpus.behaviour`" in meaning
    assert f"`{default}`" in meaning


@pytest.mark.parametrize(
    ("prefix", "paths"),
    [
        ("q0.prior", ["q0.prior"]),
        ("train.lora", ["train.lora", "train.lora.rank", "train.lora.alpha", "train.lora.modules"]),
        ("train.sources.online.share", ["train.sources.*.share"]),
        ("train.optimizer.w", ["train.optimizer.warmup_steps", "train.optimizer.weight_decay"]),
        ("seed", ["seed"]),
    ],
)
def test_fields_are_found_by_the_beginning_of_their_path(prefix: str, paths: list[str]) -> None:
    assert [path for path, _ in documentation.below(prefix)] == paths


def test_a_trailing_dot_and_nothing_at_all_are_beginnings_too() -> None:
    assert documentation.below("train.optimizer.") == documentation.below("train.optimizer")
    assert {path.split(".")[0] for path, _ in documentation.below("")} == set(config.RunConfig.model_fields)


def test_an_unknown_beginning_names_fields_that_are_near() -> None:
    with refused("InvalidConfig", "train.optimizer.learning_rate"):
        documentation.below("learning_rate")


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_written_out_is_the_same_recipe(name: str, tmp_path: Path) -> None:
    loaded = config.load(name, folder=RECIPES)
    path = tmp_path / "written.toml"
    path.write_text(toml_text.document(loaded.model_dump(mode="json")), encoding="utf-8")
    assert config.load(str(path), folder=RECIPES) == loaded


NAMES = st.text(min_size=1, max_size=6)
SCALARS = st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_written_as_toml_is_read_as_the_same(tree: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text.document(tree)) == tree
