"""The shipped recipes: each loads, and those of a comparison differ from their base in nothing but what they name."""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any

import pytest

from flows.settings import RECIPES, recipe_names
from tasks import config

FIGURE_2 = ["squared", "advantage", "reverse-q-squared", "reverse-q-cross-entropy", "monte-carlo", "pivotal-rollouts"]
STUDIED = ["spo-online", "spo-half-online", "ppo", *(f"ablations/{name}" for name in FIGURE_2)]


def leaves(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every value of a tree of sections by its path."""
    if not isinstance(tree, dict):
        return {path: tree}
    found: dict[tuple[str, ...], Any] = {}
    for name, value in tree.items():
        found |= leaves(value, (*path, name))
    return found


def resolved(name: str) -> dict[tuple[str, ...], Any]:
    return leaves(config.load(name, folder=RECIPES).model_dump(mode="json"))


def own_text(name: str) -> dict[str, Any]:
    return tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [name for name in recipe_names() if "base" in own_text(name)])
def test_a_recipe_differs_from_its_base_only_in_what_it_names(name: str) -> None:
    own = own_text(name)
    base, mine = resolved(str(own.pop("base"))), resolved(name)
    named = set(leaves(own))
    changed = {path for path, value in mine.items() if base.get(path) != value} - {("recipe",)}
    assert changed
    assert all(any(path[: len(one)] == one for one in named) for path in changed), changed


@pytest.mark.parametrize("name", STUDIED)
def test_compared_recipes_share_problems_reference_evaluation_and_number_of_sequences(name: str) -> None:
    base = config.load("spo-half-online", folder=RECIPES)
    mine = config.load(name, folder=RECIPES)
    for section in ("problems", "reference", "sandbox", "engine", "q0", "corpus", "evaluate"):
        assert getattr(mine, section) == getattr(base, section), section
    assert mine.train.steps * mine.train.batch_size == base.train.steps * base.train.batch_size
    assert mine.train.beta == base.train.beta


@pytest.mark.parametrize("name", [f"ablations/{name}" for name in FIGURE_2])
def test_the_ablations_of_figure_2_are_half_online(name: str) -> None:
    assert config.load(name, folder=RECIPES).train.sources["online"].share == 0.5


def test_ppo_samples_the_policy_itself_after_every_batch() -> None:
    train = config.load("ppo", folder=RECIPES).train
    assert train.algorithm == "ppo"
    assert (train.model_update_interval, train.max_batches_ahead) == (1, 0)
    assert (train.behaviour.temperature, train.behaviour.top_p) == ((1.0, 1.0), 1.0)


def test_the_papers_recipe_has_the_papers_values_and_says_where_each_stands() -> None:
    paper = config.load("paper", folder=RECIPES)
    train = paper.train
    assert train.beta == pytest.approx(1 / math.log(100_000), rel=1e-15)
    assert (train.steps, train.batch_size, train.model_update_interval) == (100_000, 128, 10)
    assert (train.optimizer.learning_rate, train.optimizer.warmup_steps) == (6e-8, 200)
    assert (train.behaviour.temperature, train.behaviour.top_p) == ((0.1, 0.8), 0.95)
    assert paper.q0.samples == 800
    assert (paper.evaluate.samples, paper.evaluate.behaviour.temperature[0]) == (20, 0.4)
    lines = (RECIPES / "paper.toml").read_text(encoding="utf-8").splitlines()
    values = [line for line in lines if re.match(r"\w+ = ", line) and not line.startswith("path")]
    assert [line for line in values if not re.search(r"# (\d|not given|no influence)", line)] == []


def test_settings_that_differ_are_found_at_any_depth_and_of_objectives_what_differs() -> None:
    terminal = {"kind": "terminal", "loss": "cross_entropy", "weight": 1.0}
    first = {"seed": 0, "train": {"steps": 4, "x": {"y": 1}, "objectives": [terminal]}}
    second = {
        "seed": 1,
        "train": {"steps": 4, "objectives": [terminal | {"weight": 0.5}, {**terminal, "kind": "rloo"}]},
    }
    assert config.differing([first, second]) == [
        ("seed", ["0", "1"]),
        ("train.x.y", ["1", None]),
        (
            "train.objectives",
            [
                '[{"kind": "terminal", "weight": 1.0}]',
                '[{"kind": "terminal", "weight": 0.5}, {"kind": "rloo", "weight": 1.0}]',
            ],
        ),
    ]
    assert config.differing([first, first]) == []


@pytest.mark.parametrize("own", [[], [{"kind": "terminal", "loss": "squared"}]])
def test_replay_follows_other_objectives_of_online_unless_it_has_its_own(own: list[dict[str, str]]) -> None:
    replay = {"share": 0.75, "objectives": own} if own else {"share": 0.75}
    overrides = {"train": {"sources": {"online": {"share": 0.25}, "replay": replay}}}
    first = config.load("spo-online", overrides, folder=RECIPES)
    found = config.changed(first, {"train.sources.online.objectives": [{"kind": "advantage", "loss": "sigmoid"}]})
    followed = found.train.sources["online" if not own else "replay"].objectives
    assert found.train.sources["replay"].objectives == followed
    assert (found.train.sources["replay"] == first.train.sources["replay"]) == bool(own)
