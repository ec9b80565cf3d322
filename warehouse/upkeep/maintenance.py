"""Upkeep: merging small files, forgetting old snapshots, sweeping what crashes left; all beside running writers."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb

from warehouse import lake
from warehouse.commit.failpoints import failpoint
from warehouse.commit.ledger import COMMIT_LOCK
from warehouse.files import translated
from warehouse.queries import query
from warehouse.schema import TABLES
from warehouse.store import COMMIT_TIMEOUT_S, Warehouse
from warehouse.upkeep.ownership import claimed_at

TIERS: Final = ((16 << 20, 64 << 20), (128 << 20, 256 << 20))
"""Files smaller than the first (bytes) are merged into files of about the second; every row is so rewritten about
twice however large a table grows, and no merge holds the commit lock for longer than one such file takes."""
MANY_FILES: Final = 256
KEEP_SNAPSHOTS: Final = timedelta(days=7)
MOST_SNAPSHOTS: Final = 10_000
"""The catalog reads the list of all snapshots when a transaction begins: 1 ms for a thousand of them."""
EXPIRED_AT_ONCE: Final = 5_000
"""Snapshots that are forgotten under one hold of the commit lock, in about a second."""
KEEP_ORPHANS: Final = timedelta(days=1)
OWN_NAME: Final = re.compile(
    rf"{lake.STORED}/({'|'.join(TABLES)})/"
    r"([^/]*\.[0-9a-f]{12}\.parquet(\.[0-9a-f]{8}\.tmp)?|(tmp_)?ducklake-[0-9a-f-]{36}(-delete)?\.parquet)"
)
"""The names that staging a batch (also when it is killed halfway) and DuckLake give to files; no other is swept."""
HASH_OF: Final = "sha256 of "
"""The ledger remembers the hash of a file that was made here of others under this and its path."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Compaction:
    """What `compact` did."""

    files_before: int
    files_after: int
    merged_tables: tuple[str, ...]
    snapshots_expired: int
    files_deleted: int
    seconds: float


@dataclass(slots=True)
class _Counts:
    merged: set[str] = field(default_factory=set[str])
    expired: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A Parquet file of the catalog; `path` is relative to the data unless it lies elsewhere."""

    table: str
    path: str
    rows: int
    bytes: int


def compact(
    location: str | Path | None = None,
    *,
    many_files: int = MANY_FILES,
    keep_snapshots: timedelta = KEEP_SNAPSHOTS,
    most_snapshots: int = MOST_SNAPSHOTS,
    keep_orphans: timedelta = KEEP_ORPHANS,
) -> Compaction:
    """Merge tables of more than `many_files` small files, expire snapshots, delete what nothing refers to.

    Expired are those older than `keep_snapshots`, and of the rest the oldest until `most_snapshots` are left; never
    those that runs or stages refer to. Reading at an expired snapshot (`at_snapshot`) still works, only
    `AT (VERSION => n)` does not. Safe beside writers and readers: the commit lock is held for a few files at a time.
    """
    begun = time.monotonic()
    tally = _Counts()
    with Warehouse.open(location) as warehouse:
        before = len(live_files(warehouse))
        tally.merged |= merge_where_many(warehouse, many_files)
        tally.expired = expire(warehouse, keep_snapshots, most_snapshots)
        _clean(warehouse, keep_orphans, tally)
        sweep(warehouse, keep_orphans, tally)
        after = len(live_files(warehouse))
    return Compaction(
        before, after, tuple(sorted(tally.merged)), tally.expired, tally.deleted, time.monotonic() - begun
    )


def rewrite(location: str | Path | None, step: Callable[[duckdb.DuckDBPyConnection, str], int]) -> int:
    """Run `step` on what is stored, in one transaction that no writer can come into; what it returns.

    It gets the connection and the schema of the stored tables. Rows that it updates belong to a new snapshot from then
    on: run it when no run is under way, and do not pin runs to older snapshots afterwards.
    """
    with Warehouse.open(location) as warehouse:

        def work() -> int:
            warehouse.committer.reconcile()
            connection = warehouse.connection
            connection.execute("BEGIN")
            try:
                done = step(connection, lake.STORED)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            warehouse.ledger.record([], lake.current_snapshot(connection))
            return done

        before = live_files(warehouse)
        done = _locked(warehouse, work)
        _remember_hashes(warehouse, before, live_files(warehouse))
        return done


def merge_where_many(
    warehouse: Warehouse,
    many_files: int = MANY_FILES,
    *,
    enough: Callable[[], bool] = lambda: False,
    tiers: Sequence[tuple[int, int]] = TIERS,
) -> set[str]:
    """Merge the small files of tables that have more than `many_files` of them; the names of those tables.

    Stops early, after the file that is being made, when `enough` says so.
    """
    merged: set[str] = set()
    for smaller_than, target in tiers:
        small = Counter(file.table for file in live_files(warehouse) if file.bytes < smaller_than)
        for table, count in small.items():
            if count > many_files and not enough():
                merge(warehouse, table, smaller_than, target, enough=enough)
                merged.add(table)
    return merged


def merge(
    warehouse: Warehouse, table: str, smaller_than: int, target: int, *, enough: Callable[[], bool] = lambda: False
) -> None:
    """Merge the table's files of less than `smaller_than` bytes into files of about `target` bytes.

    The commit lock is released after every file made.
    """
    connection = warehouse.connection
    connection.execute(f"SET ducklake_target_file_size = '{target}B'")
    while not enough():
        before = live_files(warehouse)

        def step() -> None:
            failpoint("merge-begun")
            connection.execute(query(__name__, "merge", smaller_than=str(smaller_than)), [table])
            failpoint("merge-committed")

        _locked(warehouse, step)
        after = live_files(warehouse)
        _remember_hashes(warehouse, before, after)
        if _count_of(table, after) >= _count_of(table, before):
            return


def made_here(file: LiveFile) -> bool:
    """Whether the file was made of others by merging or rewriting, not staged."""
    return "/ducklake-" in file.path


def _remember_hashes(warehouse: Warehouse, before: Sequence[LiveFile], after: Sequence[LiveFile]) -> None:
    """Keep the hashes of files made since `before`: of staged ones the ledger knows them."""
    there = {file.path for file in before}
    for file in after:
        if made_here(file) and file.path not in there:
            content = warehouse.files.read(file.path)
            warehouse.ledger.put(HASH_OF + file.path, hashlib.sha256(content).hexdigest())


def expire(
    warehouse: Warehouse,
    keep: timedelta,
    most: int,
    *,
    enough: Callable[[], bool] = lambda: False,
    at_once: int = EXPIRED_AT_ONCE,
) -> int:
    """Forget snapshots older than `keep`, and the oldest beyond `most`, that no run or stage refers to; how many.

    Stops early, between two holds of the commit lock, when `enough` says so.
    """

    def step() -> int:
        warehouse.committer.reconcile()
        versions = _to_expire(warehouse, keep, most, at_once)
        if versions:
            warehouse.connection.execute(f"CALL ducklake_expire_snapshots('{lake.LAKE}', versions => {versions})")
        return len(versions)

    if not _to_expire(warehouse, keep, most, at_once):  # as mostly, and nobody waits for the lock
        return 0
    expired = 0
    while not enough():
        now = _locked(warehouse, step)
        expired += now
        if now < at_once:
            break
    return expired


def _to_expire(warehouse: Warehouse, keep: timedelta, most: int, at_once: int) -> list[int]:
    """The next snapshots that are too old or too many, oldest first; to expire them, ask under the commit lock."""
    asked = [sorted(pinned_snapshots(warehouse)), most, keep.total_seconds(), at_once]
    found = warehouse.rows(query(__name__, "expired", metadata=_metadata(warehouse)), asked)
    return [int(row["snapshot_id"]) for row in found]


def pinned_snapshots(warehouse: Warehouse) -> set[int]:
    """The snapshots that runs and stages refer to."""
    return {int(row["pinned"]) for row in warehouse.rows(query(__name__, "pinned_snapshots"))}


def _clean(warehouse: Warehouse, keep: timedelta, tally: _Counts) -> None:
    """Delete files that merging replaced, once no kept snapshot needs them and `keep` has passed."""
    age = f"to_seconds(CAST({keep.total_seconds()} AS DOUBLE))"
    call = f"CALL ducklake_cleanup_old_files('{lake.LAKE}', older_than => now() - {age})"
    tally.deleted += len(_locked(warehouse, lambda: warehouse.connection.execute(call).fetchall()))


def sweep(warehouse: Warehouse, keep: timedelta, tally: _Counts | None = None) -> list[str]:
    """Delete data files older than `keep` that neither the catalog nor a waiting batch knows; returns their names."""

    def step() -> list[str]:
        failpoint("sweep-begun")
        gone: list[str] = []
        for name in orphans(warehouse, keep):
            if tally is not None:
                tally.deleted += 1
            warehouse.files.delete(name)
            gone.append(name)
            failpoint("file-swept")
        return gone

    return _locked(warehouse, step)


def orphans(warehouse: Warehouse, keep: timedelta) -> list[str]:
    """Data files, last written before `keep` ago, that nothing refers to; call it under the commit lock to delete.

    Only files that this warehouse itself wrote: by their names, and since it marked the folder as its own.
    """
    since = claimed_at(warehouse.location, warehouse.ledger, warehouse.files)
    if since is None:
        return []
    before = time.time() - keep.total_seconds()
    found = warehouse.files.names(lake.STORED)
    names = {name for name, written in found if since < written < before and OWN_NAME.fullmatch(name)}
    waiting = {file.path for intent in warehouse.ledger.intents() for file in intent.files}
    return sorted(names - kept_files(warehouse) - scheduled_files(warehouse) - waiting)


def live_files(warehouse: Warehouse) -> list[LiveFile]:
    """Every Parquet file of the newest snapshot."""
    rows = warehouse.rows(query(__name__, "live_files", metadata=_metadata(warehouse)))
    return [LiveFile(row["name"], _relative(warehouse, row), int(row["rows"]), int(row["bytes"])) for row in rows]


def kept_files(warehouse: Warehouse) -> set[str]:
    """Every file that some snapshot reads: Parquet files, and those that say which rows of them are deleted."""
    rows = warehouse.rows(query(__name__, "kept_files", metadata=_metadata(warehouse)))
    return {_relative(warehouse, row) for row in rows}


def _relative(warehouse: Warehouse, row: Mapping[str, Any]) -> str:
    """A file of the catalog by its path below the data."""
    if row["near"]:
        return row["schema_path"] + row["table_path"] + row["path"]
    return row["path"].removeprefix(warehouse.location.data)


def scheduled_files(warehouse: Warehouse) -> set[str]:
    """Files that the catalog itself will delete."""
    rows = warehouse.rows(f"SELECT path FROM {_metadata(warehouse)}.ducklake_files_scheduled_for_deletion")
    return {str(row["path"]).removeprefix(warehouse.location.data) for row in rows}


def _metadata(warehouse: Warehouse) -> str:
    return f"{lake.METADATA}.{warehouse.location.schema}"


def _count_of(table: str, files: Sequence[LiveFile]) -> int:
    return sum(file.table == table for file in files)


def _locked(warehouse: Warehouse, step: Callable[[], T]) -> T:
    with warehouse.ledger.lock(COMMIT_LOCK, timeout_s=COMMIT_TIMEOUT_S):
        try:
            return step()
        except duckdb.Error as error:
            location = warehouse.location
            raise translated(error, f"the catalog of {location}", folder=location.folder) from error


def describe(done: Compaction) -> dict[str, Any]:
    """The compaction as plain values, for a table or JSON."""
    return {
        "files before": done.files_before,
        "files after": done.files_after,
        "tables merged": ", ".join(done.merged_tables) or "none",
        "snapshots expired": done.snapshots_expired,
        "files deleted": done.files_deleted,
        "seconds": round(done.seconds, 2),
    }
