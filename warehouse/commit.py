"""The commit protocol: durable first, visible together, each batch once.

1. Parquet files are written durably under fresh names (`<batch>.<random>.parquet`).
2. The intent, naming batch and files, is written durably. From here the batch survives anything.
3. Under the commit lock, one process registers all waiting intents in one transaction, whose commit message names the
   batches; then the ledger learns them; then the intents go.

A process that dies between commit and ledger leaves a snapshot whose message the next leader reads: the ledger is first
brought up to the newest snapshot, so that a batch is never registered twice. The committer never deletes a data file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb

from warehouse.files import file_lock
from warehouse.lake import LAKE

GROUP = 64
LOCK_TIMEOUT_S = 120.0


class Ledger:
    """Which batch became which snapshot. A SQLite file of its own, opened per call."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Make the file and its table, unless they are there."""
        with closing(self._open()) as db, db:
            db.execute("CREATE TABLE IF NOT EXISTS batches (batch_id TEXT PRIMARY KEY, snapshot INTEGER NOT NULL)")
            db.execute("CREATE TABLE IF NOT EXISTS progress (seen INTEGER NOT NULL)")

    def snapshots(self, batch_ids: Iterable[str]) -> dict[str, int]:
        """Snapshot of each committed batch among `batch_ids`."""
        wanted = list(batch_ids)
        found: dict[str, int] = {}
        with closing(self._open()) as db:
            for start in range(0, len(wanted), 500):
                part = wanted[start : start + 500]
                marks = ",".join("?" * len(part))
                found.update(db.execute(f"SELECT batch_id, snapshot FROM batches WHERE batch_id IN ({marks})", part))
        return found

    def under(self, prefix: str) -> set[str]:
        """Committed batches whose id starts with `prefix`."""
        with closing(self._open()) as db:
            query = "SELECT batch_id FROM batches WHERE substr(batch_id, 1, ?) = ?"
            return {str(row[0]) for row in db.execute(query, (len(prefix), prefix))}

    def seen(self) -> int:
        """Newest snapshot the ledger accounts for."""
        with closing(self._open()) as db:
            row = db.execute("SELECT max(seen) FROM progress").fetchone()
            return int(row[0] or 0)

    def enter(self, batches: dict[str, int], seen: int) -> None:
        """Add batches and move on to `seen`, in one transaction."""
        with closing(self._open()) as db, db:
            db.executemany("INSERT OR IGNORE INTO batches VALUES (?, ?)", batches.items())
            db.execute("DELETE FROM progress")
            db.execute("INSERT INTO progress VALUES (?)", (seen,))

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=30)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        return db


class Committer:
    """Registers staged batches. One per process."""

    def __init__(self, folder: Path, connection: duckdb.DuckDBPyConnection, ledger: Ledger) -> None:
        self._folder = folder
        self._connection = connection
        self._ledger = ledger

    @property
    def intents(self) -> Path:
        """Folder of intents that wait."""
        return self._folder / "intents"

    def commit(self) -> None:
        """Make every batch that is durable now visible; waits for another leader if there is one."""
        with file_lock(self._folder / "commit.lock", timeout_s=LOCK_TIMEOUT_S, what="the warehouse's commit lock"):
            self._reconcile()
            while names := sorted(path for path in self.intents.iterdir() if path.suffix == ".json")[:GROUP]:
                self._register(names)

    def _reconcile(self) -> None:
        """Learn from commit messages what a dead leader committed but did not enter."""
        seen = self._ledger.seen()
        current = current_snapshot(self._connection)
        if current <= seen:
            return
        rows = self._connection.execute(
            f"SELECT snapshot_id, commit_extra_info FROM ducklake_snapshots('{LAKE}') WHERE snapshot_id > ?", [seen]
        ).fetchall()
        self._ledger.enter({batch: snapshot for snapshot, info in rows for batch in _batches(info)}, current)

    def _register(self, paths: Sequence[Path]) -> None:
        intents: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in paths]
        known = self._ledger.snapshots(intent["batch_id"] for intent in intents)
        fresh: dict[str, dict[str, Any]] = {}
        for intent in intents:
            if intent["batch_id"] not in known:
                fresh.setdefault(intent["batch_id"], intent)
        if fresh:
            snapshot = self._transaction(fresh)
            self._ledger.enter(dict.fromkeys(fresh, snapshot), snapshot)
        for path in paths:
            path.unlink(missing_ok=True)

    def _transaction(self, fresh: dict[str, dict[str, Any]]) -> int:
        connection = self._connection
        connection.execute("BEGIN")
        try:
            for intent in fresh.values():
                for file in intent["files"]:
                    path = str(self._folder / file["path"])
                    connection.execute(f"CALL ducklake_add_data_files('{LAKE}', ?, ?)", [file["table"], path])
            message = json.dumps({"batches": list(fresh)})
            connection.execute(
                f"CALL {LAKE}.set_commit_message('spo', ?, extra_info => ?)", [f"{len(fresh)} batches", message]
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return current_snapshot(connection)


def current_snapshot(connection: duckdb.DuckDBPyConnection) -> int:
    """Newest snapshot id."""
    row = connection.execute(f"SELECT id FROM ducklake_current_snapshot('{LAKE}')").fetchone()
    return int(row[0]) if row else 0


def _batches(info: str | None) -> list[str]:
    return [str(batch) for batch in json.loads(info)["batches"]] if info else []
