"""What a table is made of: columns with types, meanings and units, and those that every row carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its SQL type, what it holds and in which unit; `required` columns are never null."""

    name: str
    type: str
    meaning: str
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table: one row per `row`."""

    name: str
    row: str
    columns: tuple[Column, ...]


PROVENANCE: Final = (
    Column("run_id", "VARCHAR", "run that appended the row", required=True),
    Column("batch_id", "VARCHAR", "unit of work that produced the row; appended at most once", required=True),
    Column("created_at", "TIMESTAMPTZ", "when the batch was staged (UTC)", required=True),
    Column("schema_version", "INTEGER", "version of the schema that wrote the row", required=True),
)


def text(name: str, meaning: str, *, required: bool = False, choices: tuple[str, ...] = ()) -> Column:
    """A column of text."""
    return Column(name, "VARCHAR", meaning, required, choices)


def count(name: str, meaning: str, *, required: bool = False) -> Column:
    """A column of whole numbers."""
    return Column(name, "BIGINT", meaning, required)


def real(name: str, meaning: str, *, required: bool = False) -> Column:
    """A column of numbers."""
    return Column(name, "DOUBLE", meaning, required)
