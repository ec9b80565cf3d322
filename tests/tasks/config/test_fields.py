"""Every field of the configuration says what it means, and every number has its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from tasks.config import ProblemFiles, RunConfig, Section
from tasks.config.fields import sections

FIELDS = [(section, name, field) for section in sections(RunConfig) for name, field in section.model_fields.items()]


def test_every_section_of_the_package_is_found_from_the_root() -> None:
    found = {section for section in subclasses(Section) if section.__module__.startswith("tasks.config")}
    assert set(sections(RunConfig)) == found - {ProblemFiles}, "ProblemFiles is what two sections share"


def subclasses(model: type[Section]) -> list[type[Section]]:
    return [found for direct in model.__subclasses__() for found in (direct, *subclasses(direct))]


@pytest.mark.parametrize(
    ("section", "name", "field"), FIELDS, ids=[f"{section.__name__}.{name}" for section, name, _ in FIELDS]
)
def test_every_field_is_described(section: type[Section], name: str, field: FieldInfo) -> None:
    text = field.description or ""
    assert len(text.split()) >= 3, f"{section.__name__}.{name} has no docstring that says what it means"
    assert text.endswith("."), f"{section.__name__}.{name}: a description is a sentence"


@pytest.mark.parametrize("section", sections(RunConfig), ids=lambda section: section.__name__)
def test_every_section_is_described(section: type[Section]) -> None:
    assert "__doc__" in vars(section)
    assert (section.__doc__ or "").strip().endswith((".", ")"))


def numbers(schema: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Callable[[Any], Any]]]:
    """The numbers in a field's schema, each with what makes a value of the field that holds a given number there."""
    if schema.get("type") in {"integer", "number"}:
        yield schema, lambda number: number
    for option in schema.get("anyOf", []):
        yield from numbers(option)
    items = schema.get("prefixItems", [])
    for node, around in (found for item in items for found in numbers(item)):
        yield node, lambda number, around=around: [around(number)] * len(items)
    if "items" in schema:
        for node, around in numbers(schema["items"]):
            yield node, lambda number, around=around: [around(number)]


NUMBERS = [
    pytest.param(section, name, node, around, id=f"{section.__name__}.{name}")
    for section in sections(RunConfig)
    for name, schema in section.model_json_schema()["properties"].items()
    for node, around in numbers(schema)
]


def refused(section: type[Section], name: str, value: Any) -> bool:
    """Whether the section says that this field cannot have the value."""
    try:
        section.model_validate({name: value})
    except ValidationError as error:
        return any(found["loc"][:1] == (name,) for found in error.errors())
    return False


@pytest.mark.parametrize(("section", "name", "node", "around"), NUMBERS)
def test_every_number_is_bounded_on_both_sides(
    section: type[Section], name: str, node: dict[str, Any], around: Callable[[Any], Any]
) -> None:
    low = node.get("minimum", node.get("exclusiveMinimum", min(node.get("enum", [None]))))
    high = node.get("maximum", node.get("exclusiveMaximum", max(node.get("enum", [None]))))
    assert low is not None, f"{section.__name__}.{name} has no lower bound"
    assert high is not None, f"{section.__name__}.{name} has no upper bound"
    assert refused(section, name, around(low - 1))
    assert refused(section, name, around(high + 1))


@pytest.mark.parametrize(("section", "name", "node", "around"), NUMBERS)
@pytest.mark.parametrize("impossible", [math.nan, math.inf, -math.inf, True, "many"])
def test_no_number_may_be_nan_infinite_a_truth_value_or_a_word(
    section: type[Section], name: str, node: dict[str, Any], around: Callable[[Any], Any], impossible: Any
) -> None:
    assert refused(section, name, around(impossible)), node
