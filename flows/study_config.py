"""What a study compares: arms (a recipe each, with overrides) and groups of arms to show together, read from TOML.

A search is a study with a grid: lists of values by dotted name, at the top for every arm or with an arm for that one.
Each combination is an arm of its own, named after its values. `base = "methods"` takes another study's arms and groups,
`base_arms` some of its arms. An arm that is `like` another has that one's recipe and overrides, under its own.

It imports nothing of Prefect, whose settings are fixed by its first import: commands read studies before they choose a
server.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from flows.settings import RECIPES
from tasks import config as configuration
from tasks.config import InvalidConfig, PositiveInt, Section, UnknownRecipe

STUDIES = Path(__file__).parent / "studies"


class Arm(Section):
    """One way of training that is compared with others."""

    recipe: str
    label: str
    overrides: dict[str, Any] = Field(default_factory=dict[str, Any])
    after: tuple[str, ...] = ()
    """Arms before this one whose runs of the same seed are the earlier runs that it draws from, and no others."""


class ArmGroup(Section):
    """Arms that one table and one picture show together."""

    title: str
    arms: tuple[str, ...]
    text: str = ""


class Study(Section):
    """Arms, each run once per seed, and the groups in which they are compared."""

    title: str
    seeds: PositiveInt = 3
    first_seed: int = Field(default=0, ge=0)
    """A search for settings takes other seeds than the comparison that uses what it found."""
    overrides: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Fields of every arm's recipe to change; an arm's own overrides win over these."""
    arms: dict[str, Arm] = Field(min_length=1)
    groups: tuple[ArmGroup, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _groups_name_arms(self) -> Study:
        for group in self.groups:
            for name in group.arms:
                if name not in self.arms:
                    raise ValueError(f"group {group.title!r} names the arm {name!r}; there are {', '.join(self.arms)}")
        return self

    @model_validator(mode="after")
    def _earlier_arms_come_before(self) -> Study:
        before: list[str] = []
        for name, arm in self.arms.items():
            if unknown := [one for one in arm.after if one not in before]:
                raise ValueError(f"arm {name!r} comes after {unknown[0]!r}, which is no arm above it")
            before.append(name)
        return self

    def chosen(self, arms: Sequence[str] | None) -> list[str]:
        """The arms asked for and those that they come after, by default all.

        Raises InvalidConfig when there is no such arm.
        """
        if unknown := [arm for arm in arms or () if arm not in self.arms]:
            raise InvalidConfig(f"the study has no arm {unknown[0]!r}; it has {', '.join(self.arms)}")
        wanted = set(arms or self.arms)
        for name in reversed(self.arms):
            wanted |= set(self.arms[name].after) if name in wanted else set()
        return [name for name in self.arms if name in wanted]

    def seed_numbers(self, seeds: int | None, first: int | None = None) -> range:
        """The seeds of every arm: `seeds` of them, from `first` on, instead of the study's own."""
        first = self.first_seed if first is None else first
        return range(first, first + (seeds or self.seeds))

    def work(self, arms: Sequence[str], seeds: int | None, first: int | None = None) -> list[tuple[str, int]]:
        """The runs, arm and seed, in the order in which they are made."""
        return [(arm, seed) for seed in self.seed_numbers(seeds, first) for arm in arms]

    def compared(self) -> list[list[str]]:
        """The arms that stand beside each other, by group."""
        return [list(group.arms) for group in self.groups]

    def after(self) -> dict[str, tuple[str, ...]]:
        """By arm, those whose trajectories it draws on."""
        return {name: arm.after for name, arm in self.arms.items()}

    @model_validator(mode="after")
    def _seeds_are_the_studys(self) -> Study:
        for place, overrides in (
            ("", self.overrides),
            *((f"arm {name!r}: ", arm.overrides) for name, arm in self.arms.items()),
        ):
            if "seed" in overrides:
                raise ValueError(
                    f"{place}seed is overridden or in a grid, and would be ignored: every arm is run with the study's "
                    f"seeds; leave it out and set `seeds` and `first_seed`"
                )
        return self

    def config(self, arm: str, seed: int) -> configuration.RunConfig:
        """The configuration of one run, as its recipe's files are now."""
        tree: dict[str, Any] = {}
        for overrides in (self.overrides, self.arms[arm].overrides, {"seed": seed}):
            configuration.merge(tree, overrides)
        return configuration.load(self.arms[arm].recipe, tree, folder=RECIPES)

    def settings(self) -> dict[str, str]:
        """A digest of each arm's configuration, its seed and whatever is at its default left out."""
        return {name: _digest(self.config(name, 0).model_dump_json(exclude_defaults=True)) for name in self.arms}

    def drawing_on(
        self, earlier: Mapping[str, str], arm: str, config: configuration.RunConfig
    ) -> configuration.RunConfig:
        """The configuration with the runs that the arm comes after, out of `earlier`: those of its seed by arm."""
        if not self.arms[arm].after:
            return config
        return configuration.changed(
            config, {"train.earlier.run_ids": [earlier[name] for name in self.arms[arm].after]}
        )


def load(name: str) -> Study:
    """The study `name` (in flows/studies, or the path of a TOML file). Raises UnknownRecipe or InvalidConfig."""
    path = Path(name) if name.endswith(".toml") else STUDIES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in STUDIES.glob("*.toml")))
        raise UnknownRecipe(f"no study {name!r} ({path} does not exist); known studies: {known}")
    try:
        found = Study.model_validate(_expanded(_read(path)))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise InvalidConfig(f"{path}: {error}") from error
    found = found.model_copy(update={"arms": {name: _beside(path, arm) for name, arm in found.arms.items()}})
    for arm in found.arms:
        if found.config(arm, 0).problems.evaluation_problems() == (0, False):
            raise InvalidConfig(f"{path}: arm {arm!r} has problems.evaluation = 0, and a study compares evaluations")
    return found


def _read(path: Path) -> dict[str, Any]:
    """The file's tree, over the overrides and groups of the shipped study that it names as `base`, and over its arms or
    those that `base_arms` names.
    """
    tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    _check_shape(path, tree)
    if "base" not in tree:
        return _alike(tree, path)
    under = STUDIES / f"{tree.pop('base')}.toml"
    if not under.is_file():
        raise InvalidConfig(f"{path}: its base {under.stem!r} is no study that ships")
    whole = _alike(tomllib.loads(under.read_text(encoding="utf-8")), under)
    _keep(whole, tree.pop("base_arms", list(whole["arms"])), path)
    grid = tree.pop("grid", whole.pop("grid", {}))
    # A grid's dotted names are names, not sections to be merged.
    grids = {name: arm.pop("grid") for name, arm in tree.get("arms", {}).items() if "grid" in arm}
    configuration.merge(whole, tree)
    for name, of_arm in grids.items():
        whole.setdefault("arms", {}).setdefault(name, {})["grid"] = of_arm
    return _alike(whole | {"grid": grid}, path)


def _alike(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """The tree in which every arm that is `like` one above it has that one's recipe, overrides and `after` by default.

    Label and grid are an arm's own. Raises InvalidConfig for an unknown arm.
    """
    arms: dict[str, dict[str, Any]] = {}
    for name, arm in tree.get("arms", {}).items():
        arms[name] = {key: value for key, value in arm.items() if key != "like"}
        if "like" not in arm:
            continue
        model = arms.get(str(arm["like"]))
        if model is None or arm["like"] == name:
            raise InvalidConfig(f"{path}: arm {name!r} is like {arm['like']!r}, which is no arm above it")
        overrides = copy.deepcopy(model.get("overrides", {}))
        configuration.merge(overrides, arm.get("overrides", {}))
        taken = {key: value for key, value in model.items() if key in ("recipe", "after")}
        arms[name] = taken | arms[name] | {"overrides": overrides}
    return tree | {"arms": arms} if arms else tree


def _keep(study: dict[str, Any], arms: Sequence[str], path: Path) -> None:
    """Leave the study these arms, and of its groups what they show of them. Raises InvalidConfig for an unknown one."""
    if unknown := [name for name in arms if name not in study["arms"]]:
        raise InvalidConfig(f"{path}: base_arms names {unknown[0]!r}; the base has {', '.join(study['arms'])}")
    study["arms"] = {name: arm for name, arm in study["arms"].items() if name in arms}
    shown = [group | {"arms": [name for name in group["arms"] if name in arms]} for group in study.get("groups", [])]
    study["groups"] = [group for group in shown if group["arms"]]


def _check_shape(path: Path, tree: Mapping[str, Any]) -> None:
    """Raise InvalidConfig unless arms are tables by name, groups a list of tables, and grids lists by dotted name.

    `base_arms` are a list of names.
    """
    arms, groups, kept = tree.get("arms", {}), tree.get("groups", []), tree.get("base_arms", [])
    if not isinstance(arms, Mapping) or not all(isinstance(arm, Mapping) for arm in arms.values()):
        raise InvalidConfig(f"{path}: each arm is a table of its own: write [arms.NAME], not [[arms]] and not a value")
    if wrong := [name for name, arm in arms.items() if not isinstance(arm.get("overrides", {}), Mapping)]:
        raise InvalidConfig(
            f"{path}: the overrides of arm {wrong[0]!r} are no table: overrides = {{ train = {{ steps = 9 }} }}"
        )
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise InvalidConfig(f"{path}: groups are a list of tables: write [[groups]] before each, with two brackets")
    if wrong := [group for group in groups if not isinstance(group.get("arms", []), list)]:
        raise InvalidConfig(f'{path}: the arms of group {wrong[0].get("title")!r} are no list: arms = ["ppo"]')
    if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
        raise InvalidConfig(f'{path}: base_arms is a list of names of arms: base_arms = ["ppo"]')
    for owner, grid in (
        ("", tree.get("grid", {})),
        *((f" of arm {name!r}", arm.get("grid", {})) for name, arm in arms.items()),
    ):
        if not isinstance(grid, Mapping) or not all(isinstance(values, list) and values for values in grid.values()):
            raise InvalidConfig(
                f'{path}: the grid{owner} is a list of values for each dotted name: "train.steps" = [40, 80]'
            )


def _expanded(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree with an arm for every combination of the settings in an arm's grid, or else the study's."""
    made: dict[str, dict[str, Any]] = {}
    arms: dict[str, Any] = {}
    for name, arm in tree.get("arms", {}).items():
        made[name] = dict(_searched(name, arm, arm.get("grid", tree.get("grid", {}))))
        arms |= made[name]
    groups = [
        group | {"arms": [one for name in group.get("arms", []) for one in made.get(name, [name])]}
        for group in tree.get("groups", [])
    ]
    return {name: value for name, value in tree.items() if name != "grid"} | {"arms": arms, "groups": groups}


def _searched(name: str, arm: Mapping[str, Any], grid: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    """Names and definitions of the arms that the grid makes of one."""
    for values in itertools.product(*grid.values()):
        texts = [short_text(value) for value in values]
        overrides = copy.deepcopy(arm.get("overrides", {}))
        configuration.merge(overrides, dict(zip(grid, values, strict=True)))
        label = ", ".join([arm.get("label", name), *texts])
        made = {key: value for key, value in arm.items() if key != "grid"} | {"label": label, "overrides": overrides}
        yield "-".join([name, *texts]), made


def short_text(value: Any) -> str:
    """A value in an arm's name: small numbers as 3e-5."""
    if not isinstance(value, float) or not 0 < abs(value) < 0.01:
        return str(value)
    factor, exponent = f"{value:e}".split("e")
    return f"{float(factor):g}e{int(exponent)}"


def _beside(study: Path, arm: Arm) -> Arm:
    """The arm with a recipe given as a file looked for beside the study."""
    return arm.model_copy(update={"recipe": str(study.parent / arm.recipe)}) if arm.recipe.endswith(".toml") else arm


def origin(name: str, arm: str, config: configuration.RunConfig) -> str:
    """What the run of an arm and seed is known by: another configuration is another run."""
    return f"study/{Path(name).stem}/{arm}/{config.seed}/{_digest(config.model_dump_json())}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
