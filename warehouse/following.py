"""Rows that became visible between two snapshots, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from warehouse.encoding import table_named
from warehouse.lake import LAKE, STORED


def rows_between(
    connection: duckdb.DuckDBPyConnection, table: str, since: int, newest: int, where: str, parameters: Sequence[Any]
) -> list[dict[str, Any]]:
    """The rows of `table` of the snapshots in (since, newest], oldest first, with their `snapshot_id`."""
    name = table_named(table).name
    condition = f" AND ({where})" if where else ""
    source = f"ducklake_table_insertions('{LAKE}', '{STORED}', '{name}', {int(since) + 1}, {int(newest)})"
    found = connection.execute(
        f"SELECT *, snapshot_id FROM {source} "
        f"WHERE batch_id NOT IN (SELECT bad_batch_id FROM {STORED}.quarantine){condition} ORDER BY snapshot_id, rowid",
        list(parameters),
    )
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
