"""Every field of the configuration says what it means."""

from __future__ import annotations

import pytest
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
