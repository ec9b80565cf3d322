"""The fields of a run's configuration for people: docs/configuration.md, and lists of fields below a name."""

from __future__ import annotations

import difflib

from tasks.config.base import InvalidConfig
from tasks.config.fields import FieldText, SectionText, described
from tasks.config.tree import RunConfig

INTRODUCTION = """\
# Configuration

Every field of a recipe, written from the models in `tasks/config` by `spo recipes --document > docs/configuration.md`.
`spo recipes --fields train.optimizer` prints those below a name, `spo recipes tiny` a recipe with all its values.

What is given later wins: the defaults below, the recipe's `base`, the recipe (TOML), the overrides at submission
(`spo run tiny --set train.steps=40`, or `-p overrides='{"train": {"steps": 40}}'`). Lists and values replace what was
there, sections are merged; an override of `null`, in TOML `"none"` over anything but a text, takes back what the recipe
says, so that the default holds. Unknown names, impossible values and settings that would be ignored are refused at
submission, with the field's name. Numbers in brackets are sections of the paper (Cohen et al. 2025).

Relative paths, those of a recipe file included, start at the folder in which `spo run`, `spo plan` or `spo study` is
given; what reaches a worker is absolute. `prefect deployment run` cannot know that folder: give it absolute paths, for
relative ones start where `spo up` was given.

A default of `none` means that the line is left out. `[[name]]` is a list of sections. `NAME` stands for a name of the
section's own: `[train.sources.online]`.
"""
HEADING = ("field", "type", "default", "bounds", "meaning")


def page() -> str:
    """The text of docs/configuration.md."""
    return "\n".join([INTRODUCTION, *(_section(section) for section in described(RunConfig))])


def _section(section: SectionText) -> str:
    rows = [" | ".join((f"`{f.name}`", f.type, f"`{f.default}`", f.bounds, f.meaning)) for f in _escaped(section)]
    table = [f"| {row} |" for row in (" | ".join(HEADING), " | ".join(["---"] * len(HEADING)), *rows)]
    return "\n".join([f"## {_heading(section.path)}", "", section.meaning, "", *(table if rows else []), ""])


def _heading(path: str) -> str:
    if not path:
        return "The whole"
    name = path.replace(".*", ".NAME").removesuffix("[]").replace("[]", "")
    return f"`[[{name}]]`" if path.endswith("[]") else f"`[{name}]`"


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
