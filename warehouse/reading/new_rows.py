"""The rows of a table that lie between two snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb

from warehouse.encoding import table_named
from warehouse.lake import LAKE, STORED
from warehouse.queries import query

Row = dict[str, Any]


def rows_between(
    connection: duckdb.DuckDBPyConnection, table: str, since: int, newest: int, where: str, parameters: Sequence[Any]
) -> list[Row]:
    """The rows of `table` of the snapshots in (since, newest], oldest first, with their `snapshot_id`.

    The catalog lists the files of those snapshots, so the cost does not grow with the table. Once the first of them
    is expired, every file has to be looked at instead; the answer is the same.
    """
    name = table_named(table).name
    inserted = f"ducklake_table_insertions('{LAKE}', '{STORED}', '{name}', {int(since) + 1}, {int(newest)})"
    condition = where or "true"
    try:
        asked = query(__name__, "rows_between", rows=inserted, bounds="true", condition=condition)
        found = connection.execute(asked, list(parameters))
    except duckdb.InvalidInputException as error:
        if "No snapshot found" not in str(error):
            raise
        bounds = f"snapshot_id > {int(since)} AND snapshot_id <= {int(newest)}"
        asked = query(__name__, "rows_between", rows=f'{STORED}."{name}"', bounds=bounds, condition=condition)
        found = connection.execute(asked, list(parameters))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
