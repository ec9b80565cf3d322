"""The fields of a run's configuration as text: docs/reference/settings.md, and lists of fields below a name."""

from __future__ import annotations

import difflib
import re

from tasks.config.base import InvalidConfig
from tasks.config.fields import FieldText, SectionText, described
from tasks.config.tree import RunConfig

INTRODUCTION = """\
# Settings

Every field of a recipe. `spo recipes --document > docs/reference/settings.md` writes this page from `tasks/config`.
`spo recipes --fields train.optimizer` prints the fields below a name. `spo recipes tiny` prints a whole recipe.

**Order.** Later values win: defaults, the recipe's `base`, the recipe (TOML), overrides.
An override is `spo run tiny --set train.steps=40`. Values and lists are replaced, sections are merged.
The override `null` (in TOML `"none"`) restores the default.
A wrong name or value is refused at submission, with the field's name.

**Paths.** Relative paths start at the folder of `spo run`, `spo plan` or `spo study`.
`prefect deployment run` does not know that folder, so use absolute paths there.

**Notation.** The default `none` means that the line is absent.
`train.optimizer.learning_rate` is the field `learning_rate` of the section `[train.optimizer]`.
`name[]` is a list of sections (`[[name]]`), `NAME` a name of your choice.
Numbers in brackets are sections of the paper (Cohen et al. 2025).
"""
HEADING = ("field", "default", "values", "meaning")
UNBOUNDED = 1_000_000_000
"""Upper bounds from here on are left out."""


def page() -> str:
    """The text of docs/reference/settings.md."""
    parts: dict[str, list[str]] = {}
    told: dict[tuple[str, ...], tuple[str, str]] = {}
    for section in described(RunConfig):
        parts.setdefault(section.path.partition(".")[0].removesuffix("[]"), []).extend(_rows(section, told))
    return "\n".join([INTRODUCTION, *(_part(name, rows) for name, rows in parts.items())])


def _part(name: str, rows: list[str]) -> str:
    table = [f"| {' | '.join(HEADING)} |", f"|{'---|' * len(HEADING)}", *rows, ""]
    return "\n".join([f"## {name or 'The whole'}", "", *table])


def _linked(text: str) -> str:
    """`text` with the pages that it names as links."""
    return re.sub(r"docs/((?:guides|reference|decisions)/([\w-]+)\.md\S*?)(?=[).,:;]|$)", r"[\2](../\1)", text)


def _rows(section: SectionText, told: dict[tuple[str, ...], tuple[str, str]]) -> list[str]:
    """A section's rows. `told` maps fields to the section that has described them, and the default there; updated."""
    rows: list[str] = []
    other: list[str] = []
    first = ""
    for field in _escaped(section):
        key = (field.name, field.type, field.bounds, field.meaning)
        if key in told:
            first, default = told[key]
            other += [f"`{field.name} = {field.default}`"] if field.default != default else []
            continue
        told[key] = (section.path, field.default)
        name = _name(f"{section.path}.{field.name}".removeprefix("."))
        rows.append(f"| `{name}` | `{field.default}` | {_values(field)} | {_linked(field.meaning)} |")
    defaults = f"; other defaults: {', '.join(other)}" if other else ""
    same = f" Fields of `{_name(first)}`{defaults}." if first else ""
    name = _name(section.path) or "a recipe"
    return [f"| **{name}** | | | {_linked(section.meaning)}{same} |", *rows]


def _values(field: FieldText) -> str:
    bounds = re.sub(rf"^(\S+) to {UNBOUNDED:,}$", r">= \1", field.bounds)
    return ", ".join(part for part in (field.type, bounds) if part)


def _name(path: str) -> str:
    return path.replace(".*", ".NAME")


def _escaped(section: SectionText) -> list[FieldText]:
    """The fields with bars that do not end a cell."""
    return [FieldText(*(text.replace("|", "\\|") for text in _texts(field))) for field in section.fields]


def _texts(field: FieldText) -> tuple[str, ...]:
    return field.name, field.type, field.default, field.bounds, field.meaning


def below(prefix: str) -> list[tuple[str, FieldText]]:
    """The fields whose dotted path starts with `prefix`, with their paths; all for an empty one.

    A section's own name stands for `*`: `train.sources.online.share` finds `train.sources.*.share`. Raises
    InvalidConfig when there is none.
    """
    every = [
        (".".join(part for part in (section.path, field.name) if part), field)
        for section in described(RunConfig)
        for field in section.fields
    ]
    found = [(path, field) for path, field in every if _starts(path.split("."), prefix.split("."))]
    if not found:
        paths = [path for path, _ in every]
        close = difflib.get_close_matches(prefix, paths, n=3) or [p for p in paths if prefix.split(".")[-1] in p][:3]
        hint = f"; did you mean {' or '.join(close)}?" if close else "; `spo recipes --fields` prints all of them"
        raise InvalidConfig(f"no field starts with {prefix!r}{hint}")
    return found


def _starts(path: list[str], prefix: list[str]) -> bool:
    *sections, last = prefix
    if len(prefix) > len(path):
        return False
    same = all(part in (name, "*", f"{name}[]") for part, name in zip(path, sections, strict=False))
    return same and (path[len(sections)] == "*" or path[len(sections)].startswith(last))
