"""The fields of the configuration as data: name, type, default, bounds, meaning; read from the models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic_core import PydanticUndefined

from tasks.config import toml_text
from tasks.config.base import Section

TYPES = {"integer": "integer", "number": "number", "string": "string", "boolean": "boolean", "null": "none"}
LISTS = {"integer": "integers", "number": "numbers", "string": "strings"}
REQUIRED = "(needed)"


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field in words, e.g. ("steps", "integer", "100000", "> 0", "Optimizer steps of the run.")."""

    name: str
    type: str
    default: str
    """As TOML writes it; "none" where the line is left out, "(needed)" where there is none."""
    bounds: str
    """What its numbers may be, e.g. "0 to 1" or "> 0"; empty where it holds no number."""
    meaning: str


@dataclass(frozen=True, slots=True)
class SectionText:
    """A section in words."""

    path: str
    """E.g. `train.optimizer`; `problems.evaluation_sets[]` is each of a list, `train.sources.*` each by its name."""
    meaning: str
    fields: tuple[FieldText, ...]


def sections(root: type[Section]) -> list[type[Section]]:
    """`root` and every section reachable from it, each once, in the order of the tree."""
    inner = [one for field in root.model_fields.values() for one in sections_in(field.annotation)]
    return list(dict.fromkeys([root, *(found for one in inner for found in sections(one))]))


def sections_in(annotation: Any) -> list[type[Section]]:
    """The sections that a field's type names, however deep: itself, optional, in a list, or by name."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [found for argument in get_args(annotation) for found in sections_in(argument)]


def described(root: type[Section]) -> list[SectionText]:
    """Every section of the tree below `root`, at each place where it stands, with the defaults it has there."""
    return list(_described(root, root(), "", ""))


def _described(section: type[Section], defaults: Section | None, path: str, meaning: str) -> Iterator[SectionText]:
    """`section` and those below it; `meaning` is that of the field that holds it and has no row of its own."""
    schema = section.model_json_schema()
    rows: list[FieldText] = []
    below: list[SectionText] = []
    for name, field in section.model_fields.items():
        default = field.get_default(call_default_factory=True) if defaults is None else getattr(defaults, name)
        annotation: Any = field.annotation
        inner = sections_in(annotation)
        if annotation not in inner:
            node = schema["properties"][name]
            rows.append(FieldText(name, _type(node), _default(default), _bounds(node), _line(field.description)))
        for one in inner:
            own = default if isinstance(default, Section) else None
            place = ".".join(part for part in (path, name) if part) + _ending(annotation)
            below += _described(one, own, place, _line(field.description) if annotation is one else "")
    text = f"{_line(inspect.getdoc(section))} {meaning}".strip()
    yield SectionText(path, text, tuple(rows))
    yield from below


def _ending(annotation: Any) -> str:
    endings: dict[Any, str] = {tuple: "[]", dict: ".*"}
    return endings.get(get_origin(annotation), "")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _default(found: Any) -> str:
    if found is PydanticUndefined:
        return REQUIRED
    return "none" if found is None else toml_text.value(_plain(found))


def _plain(found: Any) -> Any:
    """The value without models; of a section only what differs from its own defaults."""
    if isinstance(found, Section):
        return found.model_dump(mode="json", exclude_defaults=True)
    if isinstance(found, Mapping):
        return {name: _plain(value) for name, value in found.items()}
    return [_plain(item) for item in found] if isinstance(found, tuple) else found


def _type(node: Mapping[str, Any]) -> str:
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_type(option) for option in node["anyOf"]))
    if "enum" in node or "const" in node:
        return ", ".join(f"`{name}`" for name in node.get("enum", [node.get("const")]))
    if "prefixItems" in node:
        return f"[{', '.join(_type(item) for item in node['prefixItems'])}]"
    if node.get("type") == "array":
        items = node["items"]
        return f"list of {LISTS.get(items.get('type')) or ('sections' if '$ref' in items else _type(items))}"
    if isinstance(node.get("additionalProperties"), dict):
        return "sections by name"
    return "section" if "$ref" in node else TYPES.get(node.get("type", ""), "table")


def _bounds(node: Mapping[str, Any]) -> str:
    """The bounds of the numbers in a field, each once."""
    return " and ".join(dict.fromkeys(_ranges(node)))


def _ranges(node: Mapping[str, Any]) -> Iterator[str]:
    for option in (*node.get("anyOf", ()), *node.get("prefixItems", ()), *([node["items"]] if "items" in node else ())):
        yield from _ranges(option)
    if {"minimum", "maximum"} <= set(node):
        yield f"{_figure(node['minimum'])} to {_figure(node['maximum'])}"
        return
    words = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
    found = [f"{sign} {_figure(node[word])}" for word, sign in words.items() if word in node]
    if found:
        yield ", ".join(found)


def _figure(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
