"""The warehouse's tables as many readers see them: small ones in memory, large ones in the lake.

Naming a table of the lake costs a reader 10 to 25 ms after each commit, however little it holds, and every view of the
lake names two: its table, and `quarantine`. A page asks a dozen questions. So the small tables are kept in memory,
`quarantine` among them; what became visible since is read when a reader begins, and only of tables that a commit
named. `resident.shown` has a view for each table, with the columns, names and rows of the lake's own. A table that
never had a row costs the lake most of all; its view is empty until a commit names it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import duckdb

from warehouse import lake
from warehouse.location import Location
from warehouse.queries import query
from warehouse.schema import PROVENANCE, TABLES, VIEW_COLUMNS, TableSchema

SMALL: Final = (
    "quarantine",  # the first: the views of all others ask it
    "runs",
    "run_events",
    "stages",
    "problems",
    "policies",
    "reference_counts",
    "audits",
    "audit_findings",
    "suite_versions",
)
SEARCH_PATH: Final = "SET search_path = 'resident.shown,lake.main,resident.main'"
"""What a reader's cursor is told, so that a table's name means its view here and all other names the lake's."""
_INSERTED: Final = re.compile(r"inserted_into_table:(\d+)")


class ResidentTables:
    """Follows the small tables; `snapshot` is how far. One thread refreshes at a time, any number may read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, location: Location) -> None:
        self._location = location
        self._cursor = connection.cursor()
        for statement in (*lake.SESSION, *query(__name__, "schema").split(";\n")):
            self._cursor.execute(statement)
        for name in (*SMALL, *(name for name in TABLES if name not in SMALL)):
            for statement in _statements(TABLES[name]):
                self._cursor.execute(statement)
        self._filled: set[str] = set()
        self._filling = threading.Lock()
        self.snapshot = 0

    def refresh(self, newest: int) -> None:
        """Take in what became visible until snapshot `newest`."""
        with self._filling:
            if newest <= self.snapshot:
                return
            changed = changed_tables(self._cursor, self._location, self.snapshot, newest).intersection(TABLES)
            self._cursor.execute("BEGIN")
            try:
                for name in changed.intersection(SMALL):
                    take_in(self._cursor, name, self.snapshot, newest, _insert)
                for name in changed.difference(SMALL, self._filled):
                    self._cursor.execute(_view(TABLES[name], _in_the_lake(TABLES[name])))
                self._cursor.execute("COMMIT")
            except BaseException:
                self._cursor.execute("ROLLBACK")
                raise
            self._filled |= changed
            self.snapshot = newest

    def close(self) -> None:
        """Close the cursor that reads."""
        self._cursor.close()


def _statements(table: TableSchema) -> list[str]:
    """What makes the table's view, and its copy where there is one."""
    if table.name not in SMALL:
        nothing = (f'NULL::{one.type} AS "{one.name}"' for one in (*table.columns, *PROVENANCE, *VIEW_COLUMNS))
        return [_view(table, f"SELECT {', '.join(nothing)} LIMIT 0")]
    columns = ", ".join(f'"{one.name}" {one.type}' for one in (*table.columns, *PROVENANCE))
    kept = f"CREATE TABLE resident.kept.{table.name} ({columns}, snapshot_id BIGINT, arrival BIGINT)"
    return [kept, _view(table, f"FROM resident.kept.{table.name}")]


def _view(table: TableSchema, rows: str) -> str:
    if table.name == "quarantine":
        return query(__name__, "view_of_quarantine")
    return query(__name__, "view_of_table", table=table.name, rows=rows)


def _in_the_lake(table: TableSchema) -> str:
    return f"SELECT {_columns(table)}, snapshot_id, rowid AS arrival FROM {lake.LAKE}.{lake.STORED}.{table.name}"


def _insert(table: str, rows: str, bounds: Mapping[str, str]) -> str:
    return query(__name__, "insert", table=table, columns=_columns(TABLES[table]), rows=rows, **bounds)


def _columns(table: TableSchema) -> str:
    """Every column of the table in its order, which differs from the stored one where a migration added some."""
    return ", ".join(f'"{one.name}"' for one in (*table.columns, *PROVENANCE))


def take_in(
    cursor: duckdb.DuckDBPyConnection,
    table: str,
    since: int,
    newest: int,
    insert: Callable[[str, str, Mapping[str, str]], str],
) -> int:
    """Run `insert(table, rows, bounds)` on the rows of these snapshots; how many were added.

    The catalog lists the files of snapshots while they are not expired; else the whole table is read.
    """
    bounds = {"since": str(since), "newest": str(newest)}
    whole = f"(SELECT *, rowid, snapshot_id FROM {lake.LAKE}.{lake.STORED}.{table})"
    if since:
        added = f"ducklake_table_insertions('{lake.LAKE}', '{lake.STORED}', '{table}', {since + 1}, {newest})"
        try:
            return _count(cursor.execute(insert(table, added, bounds)))
        except duckdb.InvalidInputException as error:
            if "No snapshot found" not in str(error):
                raise
    return _count(cursor.execute(insert(table, whole, bounds)))


def _count(result: duckdb.DuckDBPyConnection) -> int:
    found = result.fetchone()
    return 0 if found is None else int(found[0])


def changed_tables(cursor: duckdb.DuckDBPyConnection, location: Location, since: int, newest: int) -> set[str]:
    """The tables that got rows after snapshot `since` until `newest`: those that have rows where that is not known."""

    def asked(inner: str) -> list[tuple[Any, ...]]:
        return cursor.execute(f"FROM {lake.asked_of_catalog(location, inner)}").fetchall()

    schema = location.schema
    changes = query(__name__, "changes", schema=schema, since=str(since), newest=str(newest))
    rows = asked(changes) if since else []
    if len({snapshot for snapshot, _ in rows}) < newest - since:  # the first time, or a snapshot has expired
        return {str(name) for (name,) in asked(query(__name__, "tables_with_rows", schema=schema))}
    numbers = {int(number) for _, changes in rows for number in _INSERTED.findall(changes or "")}
    return {str(name) for number, name in asked(query(__name__, "tables", schema=schema)) if int(number) in numbers}
