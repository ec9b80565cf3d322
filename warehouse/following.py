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
    """The rows of `table` of the snapshots in (since, newest], oldest first, with their `snapshot_id`.

    The catalog lists the files of those snapshots, so the cost does not grow with the table. Once the first of them
    is expired, every file has to be looked at instead; the answer is the same.
    """
    name = table_named(table).name
    inserted = f"ducklake_table_insertions('{LAKE}', '{STORED}', '{name}', {int(since) + 1}, {int(newest)})"
    try:
        found = connection.execute(_query(inserted, "true", where), list(parameters))
    except duckdb.InvalidInputException as error:
        if "No snapshot found" not in str(error):
            raise
        bounds = f"snapshot_id > {int(since)} AND snapshot_id <= {int(newest)}"
        found = connection.execute(_query(f'{STORED}."{name}"', bounds, where), list(parameters))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _query(source: str, bounds: str, where: str) -> str:
    return (
        f"SELECT *, snapshot_id FROM {source} "
        f"WHERE {bounds} AND batch_id NOT IN (SELECT bad_batch_id FROM {STORED}.quarantine) "
        f"AND ({where or 'true'}) ORDER BY snapshot_id, rowid"
    )
