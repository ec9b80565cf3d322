"""The warehouse: append batches once, follow them, ask questions of them.

Every table is seen through a view that leaves out quarantined batches and adds the column `snapshot_id`, the snapshot
a row arrived with.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import duckdb

from warehouse import encoding
from warehouse.commit import Committer, Ledger, current_snapshot
from warehouse.errors import InvalidRows, NewerSchema, WarehouseMissing
from warehouse.files import file_lock, storage_error, write_durably
from warehouse.lake import DATA, LAKE, attach_line, connect
from warehouse.schema import PROVENANCE, SCHEMA_VERSION, TABLES

VIEWS: Final = Path(__file__).parent / "views"
MARK: Final = "spo-warehouse.json"
Rows = Sequence[Mapping[str, Any]]
Parameters = Sequence[Any] | Mapping[str, Any]


class Warehouse:
    """One process's handle. `append` and `rows` may be called from several threads."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self.location = folder
        self.read_only = read_only
        self._lock = threading.RLock()
        self._connection = connect(folder, read_only=read_only)
        self._pinned: dict[int, duckdb.DuckDBPyConnection] = {}
        self._ledger = Ledger(folder / "ledger.sqlite")
        self._committer = Committer(folder, self._connection, self._ledger)
        define_views(self._connection)

    @classmethod
    def open(cls, location: str | Path | None = None, *, read_only: bool = False) -> Warehouse:
        """The warehouse at `location` (default `$SPO_WAREHOUSE`, else ./.spo/warehouse), made if it is not there.

        Raises WarehouseMissing (read-only opening makes nothing) and NewerSchema.
        """
        folder = Path(location or os.environ.get("SPO_WAREHOUSE") or ".spo/warehouse").absolute()
        if not (folder / MARK).is_file():
            if read_only:
                raise WarehouseMissing(f"there is no warehouse at {folder}; a run makes it, e.g. `make run`")
            create(folder)
        check_version(folder)
        return cls(folder, read_only=read_only)

    def append(self, batch_id: str, tables: Mapping[str, Rows], *, run_id: str) -> int:
        """Store a batch and make it visible; returns its snapshot. A batch id that was stored before is left alone.

        Raises InvalidRows, UnknownTable, StorageFull, StorageLost, WarehouseBusy; then nothing was stored.
        """
        with self._lock:
            known = self._ledger.snapshots([batch_id])
            if batch_id not in known:
                self.stage(batch_id, tables, run_id=run_id)
                self._committer.commit()
                known = self._ledger.snapshots([batch_id])
            return known[batch_id]

    def stage(self, batch_id: str, tables: Mapping[str, Rows], *, run_id: str) -> None:
        """Make a batch durable; it becomes visible with the next commit of any process."""
        now = datetime.now(UTC)
        attempt = uuid.uuid4().hex[:8]
        stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', batch_id)[:80]}.{_digest(batch_id)}.{attempt}"
        built = {
            name: encoding.to_arrow(name, rows, run_id=run_id, batch_id=batch_id, now=now) for name, rows in tables.items()
        }
        files: list[dict[str, Any]] = []
        for name, table in built.items():
            if table.num_rows == 0:
                continue
            path = Path(DATA) / name / f"{stem}.parquet"
            content = encoding.parquet_bytes(name, table)
            write_durably(self.location / path, content)
            files.append({"table": name, "path": str(path), "rows": table.num_rows, "bytes": len(content)})
        if not files:
            raise InvalidRows(f"batch {batch_id!r} has no rows")
        intent = {"batch_id": batch_id, "run_id": run_id, "files": files}
        write_durably(self._committer.intents / f"{now:%Y%m%dT%H%M%S%f}.{attempt}.json", json.dumps(intent).encode())

    def commit(self) -> int:
        """Make every staged batch visible; returns the newest snapshot."""
        with self._lock:
            self._committer.commit()
            return self.snapshot()

    def committed(self, batch_ids: Iterable[str]) -> set[str]:
        """Those of `batch_ids` that are stored."""
        return set(self._ledger.snapshots(batch_ids))

    def committed_under(self, prefix: str) -> set[str]:
        """Stored batches whose id starts with `prefix`."""
        return self._ledger.under(prefix)

    def rows(self, sql: str, parameters: Parameters = (), *, snapshot: int | None = None) -> list[dict[str, Any]]:
        """The rows of a query, one dict each; with `snapshot`, as the warehouse was then."""
        with self._lock:
            cursor = self._at(snapshot).execute(sql, parameters or None)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def value(self, sql: str, parameters: Parameters = ()) -> Any:
        """First column of the first row; None when there is none."""
        for row in self.rows(sql, parameters):
            return next(iter(row.values()))
        return None

    def snapshot(self) -> int:
        """The newest snapshot."""
        with self._lock:
            return current_snapshot(self._connection)

    def follow(
        self, table: str, since: int, *, where: str = "", parameters: Sequence[Any] = ()
    ) -> tuple[list[dict[str, Any]], int]:
        """Rows of `table` that arrived after snapshot `since`, and the snapshot to go on from."""
        encoding.table_named(table)
        now = self.snapshot()
        if now <= since:
            return [], since
        condition = f" AND ({where})" if where else ""
        sql = f"SELECT * FROM {table} WHERE snapshot_id > {int(since)} AND snapshot_id <= {now}{condition}"
        return self.rows(sql + " ORDER BY snapshot_id", parameters), now

    def lock(self, name: str, *, timeout_s: float) -> AbstractContextManager[None]:
        """A named lock across processes; raises WarehouseBusy naming the holder."""
        return file_lock(self.location / "locks" / _digest(name), timeout_s=timeout_s, what=f"the lock {name!r}")

    def close(self) -> None:
        """Give the connections back."""
        with self._lock:
            for connection in (self._connection, *self._pinned.values()):
                connection.close()
            self._pinned.clear()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _at(self, snapshot: int | None) -> duckdb.DuckDBPyConnection:
        if snapshot is None:
            return self._connection
        if snapshot not in self._pinned:
            connection = connect(self.location, read_only=True)
            define_views(connection, snapshot=snapshot)
            self._pinned[snapshot] = connection
        return self._pinned[snapshot]


def open_read_only(path: str | Path | None = None) -> duckdb.DuckDBPyConnection:
    """A read-only DuckDB connection to the warehouse at `path`, with every view."""
    folder = Path(path or os.environ.get("SPO_WAREHOUSE") or ".spo/warehouse").absolute()
    if not (folder / MARK).is_file():
        raise WarehouseMissing(f"there is no warehouse at {folder}; a run makes it, e.g. `make run`")
    check_version(folder)
    connection = connect(folder, read_only=True)
    define_views(connection)
    return connection


def create(folder: Path) -> None:
    """Make an empty warehouse; several processes may try at once."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, folder) from error
    with file_lock(folder / "commit.lock", timeout_s=120, what="the warehouse's commit lock"):
        if (folder / MARK).is_file():
            return
        for part in (DATA, "intents", "locks"):
            (folder / part).mkdir(exist_ok=True)
        connection = connect(folder, read_only=False)
        for name, table in TABLES.items():
            columns = ", ".join(
                f'"{c.name}" {c.type}{" NOT NULL" if c.required else ""}' for c in (*table.columns, *PROVENANCE)
            )
            connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns})")
        connection.close()
        Ledger(folder / "ledger.sqlite").create()
        sql = attach_line(folder, read_only=True) + f";\nUSE {LAKE};\n" + "".join(view_statements(None))
        write_durably(folder / "warehouse.sql", sql.encode())
        write_durably(folder / MARK, json.dumps({"schema_version": SCHEMA_VERSION}).encode())


def check_version(folder: Path) -> None:
    """Raise NewerSchema when a newer version of the project wrote the warehouse."""
    written = int(json.loads((folder / MARK).read_bytes())["schema_version"])
    if written > SCHEMA_VERSION:
        raise NewerSchema(
            f"the warehouse at {folder} has schema version {written}, this version of spo-pipeline knows "
            f"{SCHEMA_VERSION}; install a newer spo-pipeline, or choose another warehouse with SPO_WAREHOUSE"
        )


def define_views(connection: duckdb.DuckDBPyConnection, *, snapshot: int | None = None) -> None:
    """Tables without quarantined batches (as of `snapshot`), and the questions of views/*.sql."""
    for statement in view_statements(snapshot):
        connection.execute(statement)


def view_statements(snapshot: int | None) -> list[str]:
    """The SQL of every view."""
    until = "" if snapshot is None else f" AND snapshot_id <= {int(snapshot)}"
    tables = [
        f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT *, snapshot_id FROM {LAKE}.main.{name} WHERE batch_id NOT IN "
        f"(SELECT bad_batch_id FROM {LAKE}.main.quarantine){until};\n"
        for name in TABLES
    ]
    questions = sorted(VIEWS.glob("*.sql"))
    return tables + [statement + "\n" for path in questions for statement in _statements(path.read_text("utf-8"))]


def _statements(text: str) -> list[str]:
    return [part.strip() + ";" for part in re.split(r";\s*\n", text + "\n") if part.strip()]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


