"""Steps from each older schema version to the next; every step only adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import duckdb

from warehouse import lake
from warehouse.schema import SCHEMA_VERSION, TABLES

Step = Callable[[duckdb.DuckDBPyConnection], None]


def _audits(connection: duckdb.DuckDBPyConnection) -> None:
    """Version 2: what audits found, and which suites came of it."""
    for name in ("audits", "audit_findings", "suite_versions"):
        connection.execute(lake.create_table(TABLES[name]))
        for statement in lake.comments(TABLES[name]):
            connection.execute(statement)


def _outcomes(connection: duckdb.DuckDBPyConnection) -> None:
    """Version 3: the outcome of each test, and what a program printed on the one that it failed."""
    _add_texts(connection, "verdicts", "outcomes", "output")


def _counted_prompts(connection: duckdb.DuckDBPyConnection) -> None:
    """Version 4: which prompt the samples answered that a soft value is computed from."""
    _add_texts(connection, "reference_counts", "prompt_id")


def _add_texts(connection: duckdb.DuckDBPyConnection, table: str, *columns: str) -> None:
    for name in columns:
        connection.execute(f"ALTER TABLE {lake.STORED}.{table} ADD COLUMN IF NOT EXISTS {name} VARCHAR")
    for statement in lake.comments(TABLES[table]):
        connection.execute(statement)


STEPS: Final[dict[int, Step]] = {1: _audits, 2: _outcomes, 3: _counted_prompts}
"""`STEPS[n]` brings the tables of version n to version n + 1; it must be harmless when run twice."""


def migrate(
    connection: duckdb.DuckDBPyConnection, version: int, *, to: int = SCHEMA_VERSION, steps: Mapping[int, Step] = STEPS
) -> None:
    """Bring the lake from `version` to `to` in one transaction, then make the views anew; the caller holds the lock."""
    connection.execute("BEGIN")
    for number in range(version, to):
        steps[number](connection)
    lake.create_views(connection)
    connection.execute("COMMIT")
