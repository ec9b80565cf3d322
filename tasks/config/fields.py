"""The fields of the configuration as data: path, type, default, bounds, meaning; read from the models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from tasks.config.base import Section


def sections(root: type[Section]) -> list[type[Section]]:
    """`root` and every section reachable from it, each once, in the order of the tree."""
    return list(dict.fromkeys(_reachable(root)))


def _reachable(section: type[Section]) -> Iterator[type[Section]]:
    yield section
    for field in section.model_fields.values():
        for inner in sections_in(field.annotation):
            yield from _reachable(inner)


def sections_in(annotation: Any) -> list[type[Section]]:
    """The sections that a field's type names, however deep: itself, optional, in a list, or by name."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [found for argument in get_args(annotation) for found in sections_in(argument)]
