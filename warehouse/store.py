"""`Warehouse`: one process's handle on the store of everything that was sampled, judged, trained and evaluated."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import duckdb

from warehouse import lake
from warehouse.commit.intents import Intent, KeyMaker
from warehouse.commit.ledger import COMMIT_LOCK, BatchLedger
from warehouse.commit.protocol import Committer, stage_files
from warehouse.errors import InvalidRows, UnknownSnapshot, WarehouseError
from warehouse.files import FileStore
from warehouse.location import Location, parse_location
from warehouse.opening import open_ledger, prepare
from warehouse.reading.without_pandas import without_pandas
from warehouse.upkeep.ownership import claim

if TYPE_CHECKING:
    import pyarrow as pa

COMMIT_TIMEOUT_S: Final = 120.0
Parameters = Sequence[Any] | Mapping[str, Any]


class Warehouse:
    """Appends, reads and follows; a context manager. One thread appends at a time, any number may read."""

    def __init__(
        self, location: Location, connection: duckdb.DuckDBPyConnection, ledger: BatchLedger, *, read_only: bool
    ) -> None:
        self._location = location
        self._connection = connection
        self._ledger = ledger
        self._read_only = read_only
        self._files = FileStore(location)
        self._committer = Committer(location, connection, ledger, self._files)
        self._writing = threading.RLock()
        self._keys = KeyMaker()
        self._staged: list[Intent] = []
        self._readers = threading.local()
        self._verdicts: list[str] = []
        self.clock: Callable[[], datetime] = utc_now
        """Says when rows are made."""
        self.commit_timeout_s = COMMIT_TIMEOUT_S
        """Waiting time for the commit lock and the catalog."""

    @classmethod
    def open(cls, location: str | Path | None = None, *, read_only: bool = False) -> Self:
        """The warehouse at `location` (None: $SPO_WAREHOUSE, else ./.spo/warehouse), made if it is not there.

        Batches that were staged by a process that died become visible now. Raises WarehouseMissing (read-only),
        NewerSchema, UnsafeStorage, ExtensionMissing, and WarehouseError when the data folder is another warehouse's.
        """
        parsed = parse_location(location)
        ledger = open_ledger(parsed, read_only=read_only)
        try:
            connection = prepare(parsed, ledger, read_only=read_only)
        except BaseException:
            ledger.close()
            raise
        opened = cls(parsed, connection, ledger, read_only=read_only)
        try:
            if not read_only:
                claim(parsed, connection, ledger, opened.files)
                if opened.committer.is_behind():
                    with ledger.lock(COMMIT_LOCK, timeout_s=COMMIT_TIMEOUT_S):
                        opened.committer.reconcile()
                opened.commit()
        except BaseException:
            opened.close()
            raise
        return opened

    @property
    def location(self) -> Location:
        """Where the warehouse is; as text it is what `open` takes, without the password."""
        return self._location

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The connection that commits; for maintenance under the commit lock."""
        return self._connection

    @property
    def ledger(self) -> BatchLedger:
        """The ledger; for maintenance."""
        return self._ledger

    @property
    def files(self) -> FileStore:
        """The data files; for maintenance."""
        return self._files

    @property
    def committer(self) -> Committer:
        """The committer; for maintenance."""
        return self._committer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close; staged batches stay durable and become visible at anybody's next commit."""
        self._connection.close()
        self._ledger.close()

    def append(
        self,
        batch_id: str,
        tables: Mapping[str, Sequence[Mapping[str, Any]]],
        *,
        run_id: str,
        runs: Mapping[str, Sequence[str]] | None = None,
        times: Mapping[str, Sequence[datetime]] | None = None,
    ) -> int:
        """Append a batch to one or several tables at once; the snapshot that shows it.

        A batch id names a unit of work: appending the same id again changes nothing and returns the first snapshot.
        Rows belong to `run_id` and were made now, those of a table in `runs` and `times` to and when it says there, one
        for each row.
        Columns that a row leaves out are null. Raises InvalidRows, UnknownTable, StorageFull, StorageLost or
        WarehouseBusy; then the batch is not acknowledged and the same call may be repeated.
        """
        with self._writing:
            known = self._ledger.snapshots([batch_id])
            if batch_id not in known:
                self.stage(batch_id, tables, run_id=run_id, runs=runs, times=times)
                self._commit_staged()
                known = self._ledger.snapshots([batch_id])
            return known[batch_id]

    def stage(
        self,
        batch_id: str,
        tables: Mapping[str, Sequence[Mapping[str, Any]]],
        *,
        run_id: str,
        runs: Mapping[str, Sequence[str]] | None = None,
        times: Mapping[str, Sequence[datetime]] | None = None,
    ) -> None:
        """Make a batch durable; it becomes visible at the next commit, whoever makes it. Raises as `append`."""
        from warehouse import encoding

        if not batch_id or not run_id:
            raise InvalidRows("a batch needs a batch_id and a run_id")
        now = self.clock()
        parts: list[tuple[str, int, memoryview]] = []
        for name, rows in tables.items():
            of, made = (runs or {}).get(name, run_id), (times or {}).get(name, now)
            table = encoding.to_arrow(name, rows, run_id=of, batch_id=batch_id, now=made)
            if table.num_rows:
                parts.append((name, table.num_rows, encoding.parquet_bytes(name, table)))
        self.stage_parts(batch_id, parts, run_id=run_id)

    def stage_parts(self, batch_id: str, parts: Sequence[tuple[str, int, memoryview]], *, run_id: str) -> None:
        """Make a batch of ready (table, rows, Parquet) durable."""
        with self._writing:
            intent = stage_files(self._files, self._keys.new_key(), batch_id, run_id, parts)
            self._ledger.add_intent(intent)
            self._staged.append(intent)

    def commit(self) -> None:
        """Make every batch that is staged now, by anybody, visible."""
        with self._writing:
            self._commit_staged()

    def _commit_staged(self) -> None:
        staged = self._staged or self._ledger.intents()
        self._staged = []
        if staged:
            self._committer.commit([intent.key for intent in staged], timeout_s=self.commit_timeout_s)

    def committed(self, batch_ids: Iterable[str]) -> set[str]:
        """Those of the batches that are visible."""
        return set(self._ledger.snapshots(batch_ids))

    def committed_under(self, prefix: str) -> set[str]:
        """Every visible batch whose id begins with `prefix`."""
        return self._ledger.under(prefix)

    def newest_of(self, run_id: str) -> int:
        """The snapshot that shows the run's newest batch, 0 when it has none; far cheaper than any query."""
        return self._ledger.newest_of(run_id)

    def rows(self, sql: str, parameters: Parameters = (), *, snapshot: int | None = None) -> list[dict[str, Any]]:
        """The rows of a query over tables and views, without quarantined batches; up to `snapshot` when given.

        Raises UnknownSnapshot, and WarehouseError when `sql` holds no statement.
        """
        cursor = self._reader()
        if snapshot is not None:
            self.check_snapshot(snapshot)
            cursor.execute(f"SET VARIABLE at_snapshot = {int(snapshot)}")
        try:
            found = _run(cursor, sql, parameters)
            names = _column_names(found)
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        finally:
            if snapshot is not None:
                cursor.execute("RESET VARIABLE at_snapshot")

    def arrow(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """The rows of a query as an Arrow table."""
        return self._reader().execute(sql, parameters or None).to_arrow_table()

    def tables_of(self, sql: str) -> set[str]:
        """The tables and views that a SELECT statement names; raises WarehouseError when it is none or hides them."""
        tree = json.loads(self.value("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [sql]))
        if tree["error"]:
            raise WarehouseError(f"not a SELECT statement: {sql!r}: {tree['error_message']}", code="NotASelect")
        return set(_table_names(tree))

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """The first column of the first row of a query; None when there is no row."""
        row = _run(self._reader(), sql, parameters).fetchone()
        return None if row is None else row[0]

    def snapshot(self) -> int:
        """The newest snapshot."""
        return lake.current_snapshot(self._reader())

    def show_judged_until(self, snapshot: int, tables: Iterable[str]) -> None:
        """From now on these tables, where a question names them, show what was judged again after `snapshot` as it was.

        All else is the newest; views on the tables show the newest verdicts.
        """
        from warehouse.superseding import view_judged_until

        self._verdicts = [view_judged_until(table, snapshot) for table in tables]
        self._readers = threading.local()

    def check_snapshot(self, snapshot: int) -> None:
        """Raise UnknownSnapshot unless `snapshot` is there or was there before it expired."""
        newest = self.snapshot()
        if not 0 <= snapshot <= newest:
            raise UnknownSnapshot(
                f"there is no snapshot {snapshot}: the warehouse at {self.location} has the snapshots 0 to {newest}"
            )

    def follow(
        self, table: str, since: int, *, where: str = "", parameters: Sequence[Any] = ()
    ) -> tuple[list[dict[str, Any]], int]:
        """The rows of `table` that became visible after snapshot `since`, oldest first, and the next `since`.

        Every row comes exactly once, whatever compaction does meanwhile; quarantined batches are left out.
        """
        from warehouse.reading.new_rows import rows_between

        newest = self.snapshot()
        if newest <= since:
            return [], since
        return rows_between(self._reader(), table, since, newest, where, parameters), newest

    def lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[bool]:
        """Hold the named lock among all processes of this warehouse; raises WarehouseBusy naming its holder."""
        return self._ledger.lock(f"named/{name}", timeout_s=timeout_s)

    def _reader(self) -> duckdb.DuckDBPyConnection:
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._readers, "cursor", None)
        if cursor is None:
            cursor = self._connection.cursor()
            for statement in (*lake.SESSION, *self._verdicts):
                cursor.execute(statement)
            self._readers.cursor = cursor
        return cursor


def utc_now() -> datetime:
    """The time that a batch is stamped with; nothing is ordered by it (see `arrival` in `warehouse.schema`)."""
    return datetime.now(UTC)


def _run(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters) -> duckdb.DuckDBPyConnection:
    with without_pandas():
        found: Any = cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
    if found is None:  # what DuckDB says to a text without a statement
        raise WarehouseError(f"there is no SQL statement to run in {sql!r}", code="NoStatement")
    return found


def _column_names(found: duckdb.DuckDBPyConnection) -> list[str]:
    """The columns of a result; one whose name another before it has gets a number, as in a table made of it."""
    names: list[str] = []
    for column in found.description or ():
        number, name = 0, column[0]
        while name in names:
            number += 1
            name = f"{column[0]}_{number}"
        names.append(name)
    return names


def _table_names(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE":
            yield str(tree["table_name"])
        if tree.get("function_name") in ("query", "query_table"):
            raise WarehouseError(
                "which tables query() and query_table() read cannot be told: name them in the question",
                code="HiddenTables",
            )
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _table_names(part)
