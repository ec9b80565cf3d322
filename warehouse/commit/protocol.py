"""The commit protocol: stage files and an intent durably, then let whoever holds the lock commit everybody's.

1. Write every data file under a name never used before, durably. 2. Write the intent, durably: the batch is safe now.
3. Take the lock; if the intent is gone, somebody committed it. 4. Reconcile the ledger with the catalog (a leader may
have died between the two). 5. Take up to `GROUP` intents, drop those of batches in the ledger, register the files of
the others in one transaction whose message lists them, enter the ledger, remove the intents.

A committer never deletes a data file: only the sweep of old orphans does.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import asdict
from typing import Final

import duckdb

from warehouse import lake
from warehouse.commit.failpoints import failpoint
from warehouse.commit.intents import DataFile, Intent
from warehouse.commit.ledger import COMMIT_LOCK, BatchLedger, CommittedBatch
from warehouse.errors import StorageLost, WarehouseBusy, WarehouseError
from warehouse.files import FileStore, translated
from warehouse.location import Location
from warehouse.queries import query
from warehouse.schema import TABLES

GROUP: Final = 64
_PAUSE_S: Final = (0.01, 0.25)


def stage_files(
    target: FileStore, key: str, batch_id: str, run_id: str, parts: Sequence[tuple[str, int, memoryview]]
) -> Intent:
    """Write the (table, number of rows, Parquet) of a batch durably; its intent, still unwritten."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in batch_id)[-80:]
    files: list[DataFile] = []
    for table, rows, content in parts:
        name = f"{lake.STORED}/{table}/{plain}.{key[-12:]}.parquet"
        target.write(
            name, content, written=lambda: failpoint("data-written"), renamed=lambda: failpoint("data-renamed")
        )
        files.append(DataFile(table, name, rows, len(content), hashlib.sha256(content).hexdigest()))
    return Intent(key, batch_id, run_id, tuple(files))


class _Overtaken(Exception):
    """The catalog has commits that the ledger lacks, or the ledger has a batch that was about to be committed."""


class Committer:
    """Leads or follows group commits over one connection, which it uses alone while it holds the lock."""

    def __init__(
        self, location: Location, connection: duckdb.DuckDBPyConnection, ledger: BatchLedger, files: FileStore
    ) -> None:
        self._location = location
        self._connection = connection
        self._ledger = ledger
        self._files = files

    def commit(self, keys: Sequence[str], *, timeout_s: float) -> None:
        """Return when none of these intents waits any more; raises WarehouseBusy, StorageFull or StorageLost."""
        while any(self._ledger.has_intent(key) for key in keys):
            waiting = lambda: not any(self._ledger.has_intent(key) for key in keys)  # noqa: E731
            with self._ledger.lock(COMMIT_LOCK, timeout_s=timeout_s, done=waiting) as held:
                if held:
                    failpoint("lock-taken")
                    self.lead(timeout_s)
            failpoint("lock-released")
        for key in keys:
            reason = self._ledger.refusal(key)
            if reason is not None:
                raise StorageLost(reason)

    def lead(self, timeout_s: float) -> None:
        """Commit one group; the caller holds the lock. Waits `timeout_s` at most for a catalog that is locked."""
        intents = self._ledger.intents(GROUP)
        if not intents:
            return
        refused = self._commit_reconciled(intents, timeout_s)
        self._ledger.remove_intents(intent.key for intent in intents if intent.key not in refused)
        failpoint("intents-removed")

    def _commit_reconciled(self, intents: list[Intent], timeout_s: float) -> set[str]:
        """As `_commit_fresh`, again with a reconciled ledger when others have committed; raises WarehouseBusy."""
        deadline, reconciled = time.monotonic() + timeout_s, False
        while True:
            try:
                return self._commit_fresh(intents, timeout_s)
            except _Overtaken as overtaken:
                if reconciled and time.monotonic() >= deadline:
                    raise WarehouseBusy(
                        f"other programs kept committing to {self._location} for {timeout_s:g} s; the batches are "
                        "staged and become visible at the next commit"
                    ) from overtaken
            self.reconcile()
            reconciled = True

    def _commit_fresh(self, intents: list[Intent], timeout_s: float) -> set[str]:
        """Register those batches that the ledger does not know; the keys of intents that were refused.

        Further attempts of a refused batch, whose files may be whole, are among the keys: they wait for the next round.
        """
        known = self._ledger.snapshots(intent.batch_id for intent in intents)
        fresh: dict[str, Intent] = {}
        for intent in intents:
            if intent.batch_id not in known:
                fresh.setdefault(intent.batch_id, intent)
        refused = self._register_or_refuse(list(fresh.values()), timeout_s) if fresh else set[str]()
        again = {batch_id for batch_id, intent in fresh.items() if intent.key in refused}
        return {intent.key for intent in intents if intent.batch_id in again}

    def reconcile(self) -> None:
        """Enter every commit that the catalog has and the ledger lacks; the caller holds the lock.

        And forget those that the ledger has and the catalog lacks, which is an older copy then, out of a backup. Where
        the ledger is that, or was lost, snapshots that it lacks may have been expired, and their messages with them.
        """
        known = int(self._ledger.get("reconciled") or 0)
        current = lake.current_snapshot(self._connection)
        if current < known:
            self._ledger.forget_after(current)
        elif current != known:
            found = [
                batch
                for snapshot, extra in lake.commits_since(self._connection, self._location, known)
                for batch in listed(snapshot, extra)
            ]
            if lake.snapshots_are_missing(self._connection, self._location, known, current):
                entered = self._ledger.under("")
                found += self._stored_beside(entered | {batch.batch_id for batch in found}, current)
            self._ledger.record(found, current)

    def _stored_beside(self, known: Container[str], snapshot: int) -> list[CommittedBatch]:
        """The batches that rows up to a snapshot name and `known` lacks."""
        runs: dict[str, tuple[str, int]] = {}
        files: dict[str, list[DataFile]] = defaultdict(list)
        for table in TABLES:
            rows = self._connection.execute(query(__name__, "rows_by_batch", table=table), [snapshot]).fetchall()
            for batch_id, run_id, count, newest in rows:
                runs[batch_id] = (run_id, int(newest))
                files[batch_id].append(DataFile(table, "", int(count), 0, ""))
        return [CommittedBatch(name, *runs[name], tuple(files[name])) for name in sorted(runs) if name not in known]

    def is_behind(self) -> bool:
        """Whether the catalog has fewer snapshots than the ledger knows, as one out of a backup may."""
        known = int(self._ledger.get("reconciled") or 0)  # asked for first: the catalog is the first to have a commit
        return lake.current_snapshot(self._connection) < known

    def offer_refused(self) -> list[str]:
        """Let refused batches wait again whose files are whole and which nobody has committed; their ids."""
        offered: list[str] = []
        for intent, _ in self._ledger.refused():
            stored = self._ledger.snapshots([intent.batch_id])
            if not stored and not self._fault(intent, contents=True):
                self._ledger.offer_again(intent.key)
                offered.append(intent.batch_id)
        return offered

    def _register_or_refuse(self, intents: list[Intent], timeout_s: float) -> set[str]:
        try:
            self._register(intents, timeout_s)
        except WarehouseError as error:
            contents = not isinstance(error, WarehouseBusy)  # who only waits does not read every file again
            broken = {intent.key: fault for intent in intents if (fault := self._fault(intent, contents=contents))}
            if not broken:
                raise
            for intent in intents:
                if intent.key in broken:
                    self._ledger.refuse_intent(intent, broken[intent.key])
            whole = [intent for intent in intents if intent.key not in broken]
            if whole:
                self._register(whole, timeout_s)
            return set(broken)
        return set()

    def _register(self, intents: list[Intent], timeout_s: float) -> None:
        snapshot = self._transact_patiently(intents, timeout_s)
        failpoint("catalog-committed")
        batches = [CommittedBatch(intent.batch_id, intent.run_id, snapshot, intent.files) for intent in intents]
        self._ledger.record(batches, snapshot)
        failpoint("ledger-written")

    def _transact_patiently(self, intents: list[Intent], timeout_s: float) -> int:
        """The snapshot of the commit; programs that use the catalog without our lock are waited for."""
        deadline = time.monotonic() + timeout_s
        pause, longest = _PAUSE_S
        while True:
            try:
                return self._transact(intents)
            except duckdb.Error as error:
                if not _transient(error):
                    raise translated(error, f"the catalog of {self._location}", folder=self._location.folder) from error
                if time.monotonic() >= deadline:
                    raise WarehouseBusy(
                        f"another program has kept the catalog of {self._location} locked for {timeout_s:g} s; the "
                        f"batches are staged and become visible at the next commit ({error})",
                        code="CatalogLocked",
                    ) from error
            time.sleep(pause)
            pause = min(pause * 2, longest)

    def _transact(self, intents: list[Intent]) -> int:
        paths: dict[str, list[str]] = defaultdict(list)
        for intent in intents:
            for file in intent.files:
                paths[file.table].append(self._location.data + file.path)
        connection = self._connection
        connection.execute("BEGIN")
        failpoint("transaction-begun")
        try:
            before = self._reconciled_snapshot(intents)
            failpoint("ledger-reconciled")
            if paths:
                lake.register(connection, list(paths.items()), extra_info(intents), f"{len(intents)} batches")
                failpoint("files-registered")
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        return lake.committed_snapshot(connection) if paths else before  # without rows there is no new snapshot

    def _reconciled_snapshot(self, intents: list[Intent]) -> int:
        """The snapshot of the open transaction, up to which the ledger knows the catalog; raises _Overtaken.

        Also where the ledger has one of the batches by now: the session with our lock was lost, and whoever took the
        lock next has committed what waited.
        """
        snapshot = lake.current_snapshot(self._connection)
        if snapshot != int(self._ledger.get("reconciled") or 0):
            raise _Overtaken
        if self._ledger.snapshots(intent.batch_id for intent in intents):
            raise _Overtaken
        return snapshot

    def _fault(self, intent: Intent, *, contents: bool) -> str:
        """What is wrong with the files of an intent; empty where nothing is. `contents`: read them, too."""
        for file in intent.files:
            size = self._files.size(file.path)
            if size != file.bytes:
                found = "is missing" if size is None else f"has {size} bytes instead of {file.bytes}"
            elif contents and hashlib.sha256(self._files.read(file.path)).hexdigest() != file.sha256:
                found = "has not the content that was written"
            else:
                continue
            return f"batch {intent.batch_id!r} cannot be committed: {self._location.data}{file.path} {found}"
        return ""


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("ROLLBACK")
    except duckdb.TransactionException:
        return  # a failed COMMIT has already ended the transaction


def _transient(error: duckdb.Error) -> bool:
    text = str(error).lower()  # "unique constraint": another program has taken the number of the snapshot
    return any(word in text for word in ("locked", "busy", "conflict", "serialize", "unique constraint"))


def extra_info(intents: Sequence[Intent]) -> str:
    """What a commit's message says about its batches: enough to rebuild the ledger from the catalog."""
    batches = [
        {"batch_id": intent.batch_id, "run_id": intent.run_id, "files": [asdict(file) for file in intent.files]}
        for intent in intents
    ]
    return json.dumps({"batches": batches}, separators=(",", ":"))


def listed(snapshot: int, extra: str) -> list[CommittedBatch]:
    """The batches that a commit's message lists."""
    tree = json.loads(extra)
    return [
        CommittedBatch(batch["batch_id"], batch["run_id"], snapshot, tuple(DataFile(**file) for file in batch["files"]))
        for batch in tree.get("batches", ())
    ]
