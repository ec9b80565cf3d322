"""Recipes: TOML files, each written over its base and under the overrides given at submission, read as a RunConfig.

Order of precedence: the defaults of the models < the recipe's base < the recipe < the overrides.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

from pydantic import ValidationError

from tasks.config.base import InvalidConfig, Section, UnknownRecipe
from tasks.config.fields import sections_in
from tasks.config.reuse import forget_learnt
from tasks.config.sampling import NAMED_MODELS
from tasks.config.tree import RunConfig

_ABSENT = object()


def load(recipe: str, overrides: Mapping[str, Any] | None = None, *, folder: Path) -> RunConfig:
    """The resolved configuration of `recipe` (a name in `folder`, or a path to a TOML file).

    A recipe with `base = "other"` starts from that recipe, or from a file beside it, and changes what it names.
    `overrides` is a tree of the same shape, in which dotted names are allowed too: `{"train.steps": 40}`; None takes
    back what the recipe says, so that the default holds.
    Raises UnknownRecipe or InvalidConfig; the message names every offending field.
    """
    path = _path(recipe, folder)
    tree = _read(path, folder)
    tree.setdefault("recipe", path.stem)
    merge(tree, overrides or {})
    changes: dict[str, Any] = {}
    merge(changes, overrides or {})
    _refuse_empty(changes)
    return validate(_without_nulls(tree), origin=f"{path} with what was set" if changes else str(path))


def _path(recipe: str, folder: Path) -> Path:
    path = Path(recipe) if recipe.endswith(".toml") else folder / f"{recipe}.toml"
    if not path.is_file():
        known = ", ".join(sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.toml")))
        close = difflib.get_close_matches(recipe, known.split(", "), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownRecipe(f"no recipe {recipe!r} ({path} does not exist); {hint}Known recipes: {known}")
    return path


def _read(path: Path, folder: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The recipe's tree, written over that of the recipe it names as `base`, if any."""
    if path.resolve() in above:
        raise InvalidConfig(f"{path} is its own base, by way of {', '.join(map(str, above))}")
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: not valid TOML: {error}") from error
    base = tree.pop("base", None)
    if base is None:
        return tree
    beside = str(path.parent / str(base)) if str(base).endswith(".toml") else str(base)
    whole = _read(_path(beside, folder), folder, (*above, path.resolve()))
    merge(whole, tree)
    return whole


def validate(tree: Mapping[str, Any], origin: str = "configuration") -> RunConfig:
    """`tree` as a RunConfig; raises InvalidConfig with one line per offending field."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        lines = [f"  {'.'.join(str(part) for part in e['loc']) or '(whole)'}: {_reason(e)}" for e in error.errors()]
        raise InvalidConfig(f"{origin} has {len(lines)} invalid field(s):\n" + "\n".join(lines)) from None


def _reason(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        *section, name = error["loc"]
        known = _fields(section)
        close = difflib.get_close_matches(str(name), known, n=1, cutoff=0.7)
        return "no such field" + (f"; did you mean {close[0]!r}?" if close else f" (fields: {', '.join(known)})")
    given = "" if isinstance(error["input"], dict) else f", got {error['input']!r}"
    return str(error["msg"]).removeprefix("Value error, ") + ("" if error["type"] == "value_error" else given)


def _fields(location: Sequence[str | int]) -> list[str]:
    """Names of the fields of a section, by its place in the tree, e.g. ("problems", "evaluation_sets", 0)."""
    model: type[Section] = RunConfig
    parts = list(location)
    while parts:
        annotation: Any = model.model_fields[str(parts.pop(0))].annotation
        (model,) = sections_in(annotation)
        if get_origin(annotation) in {tuple, dict}:
            parts.pop(0)
    return sorted(model.model_fields)


def absolute(config: RunConfig, folder: Path) -> RunConfig:
    """The configuration with the paths in it starting at `folder`, so that it means the same wherever it is read."""
    return changed(config, absolute_paths(config, folder))


def changed(config: RunConfig, overrides: Mapping[str, Any]) -> RunConfig:
    """The configuration with `overrides` over it, written as for `load`. Raises InvalidConfig.

    Where `replay` learns as `online` does, it still does when `online`'s objectives are changed.
    """
    tree = config.model_dump(mode="json")
    forget_learnt(tree)
    merge(tree, overrides)
    return validate(_without_nulls(tree))


def absolute_paths(config: RunConfig, folder: Path) -> dict[str, Any]:
    """The overrides that make the paths in `config` absolute, `folder` being where relative ones start.

    A model is a path where such a folder is there, and a name on the hub otherwise. Nothing for what is absolute.
    """
    problems, corpus, packages = config.problems, config.corpus, config.sandbox.packages
    inside = config.sandbox.backend == "docker"  # folders of the image
    found: dict[str, tuple[Any, Any]] = {
        "reference.model": (config.reference.model, _model(config.reference.model, folder)),
        "engine.python": (config.engine.python, _from(folder, config.engine.python)),
        "sandbox.packages": (list(packages), [path if inside else _from(folder, path) for path in packages]),
        "problems.path": (problems.path, _from(folder, problems.path)),
        "problems.evaluation_sets": (
            [_own(one) for one in problems.evaluation_sets],
            [_own(one, path=_from(folder, one.path)) for one in problems.evaluation_sets],
        ),
        "evaluate.transfer": (
            [_own(one) for one in config.evaluate.transfer],
            [_own(one, path=_from(folder, one.path)) for one in config.evaluate.transfer],
        ),
        "corpus.files": (list(corpus.files), [_from(folder, path) for path in corpus.files]),
        "corpus.other_models": (
            [_own(one) for one in corpus.other_models],
            [_own(one, model=one.model if one.endpoint else _model(one.model, folder)) for one in corpus.other_models],
        ),
    }
    return {name: after for name, (before, after) in found.items() if before != after}


def _own(section: Section, **changes: str | None) -> dict[str, Any]:
    """What the section says otherwise than by default, with changes."""
    said = section.model_dump(mode="json", exclude_defaults=True)
    return said | {name: value for name, value in changes.items() if value is not None}


def _from(folder: Path, path: str | None) -> str | None:
    return str((folder / Path(path).expanduser()).absolute()) if path else None


def _model(name: str, folder: Path) -> str | None:
    found = folder / Path(name).expanduser()
    return str(found.absolute()) if name not in NAMED_MODELS and found.is_dir() else name


def merge(tree: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Write `overrides` over `tree`, section by section; a list or a value replaces what was there.

    The word "none" takes back what is there as None does, which TOML cannot write, unless that is a text.
    """
    for dotted, value in overrides.items():
        *parents, leaf = dotted.split(".")
        node = tree
        for parent in parents:
            node = _section(node, parent, dotted)
        if isinstance(value, Mapping):
            merge(_section(node, leaf, dotted), value)
        else:
            taken_back = value == "none" and not isinstance(node.get(leaf, ""), str)
            node[leaf] = None if taken_back else value


def _refuse_empty(overrides: Mapping[str, Any]) -> None:
    """Raise InvalidConfig for sections by name that are overridden with none: merged, they would change nothing."""
    for section, name in (("train", "sources"), ("engine", "vllm")):
        inner = overrides.get(section)
        if isinstance(inner, Mapping) and inner.get(name) == {}:
            raise InvalidConfig(
                f"override {section}.{name} is empty, which changes nothing: sections are merged; null takes back what "
                f"the recipe says"
            )


def _without_nulls(tree: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: _without_nulls(value) if isinstance(value, Mapping) else value for name, value in tree.items()}
    return {name: value for name, value in found.items() if value is not None}


def _section(node: dict[str, Any], name: str, dotted: str) -> dict[str, Any]:
    child = node[name] = {} if node.get(name) is None else node[name]
    if not isinstance(child, dict):
        raise InvalidConfig(f"override {dotted!r}: {name!r} is a value, not a section")
    return child


def differing(trees: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str | None]]]:
    """The settings that are not the same in all: dotted name, and the value in each as text, None where there is none.

    Lists of tables (objectives) are told by their `kind` and the fields that are not the same in all of them.
    """
    flat = [_leaves(tree) for tree in trees]
    names = dict.fromkeys(name for leaves in flat for name in leaves)
    rows = [(name, [leaves.get(name, _ABSENT) for leaves in flat]) for name in names]
    return [
        (name, [None if value is _ABSENT else _text(value) for value in _without_common(values)])
        for name, values in rows
        if any(value != values[0] for value in values)
    ]


def _leaves(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Dotted name -> value of every leaf; lists are leaves."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= _leaves(value, f"{above}{name}.") if isinstance(value, Mapping) else {above + name: value}
    return found


def _without_common(values: Sequence[Any]) -> Sequence[Any]:
    tables = [one for value in values if isinstance(value, list) for one in value]
    if not tables or not all(isinstance(one, Mapping) for one in tables):
        return values
    common = {
        name
        for name in tables[0]
        if name != "kind" and all(one.get(name, _ABSENT) == tables[0][name] for one in tables)
    }
    return [
        [{name: one[name] for name in one if name not in common} for one in value] if isinstance(value, list) else value
        for value in values
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
