"""The ledger: which batch became visible in which snapshot, which batches wait, and who holds which lock.

`FolderLedger` keeps a SQLite file (never the catalog's own), one file per waiting intent, and flock-ed lock files.
The PostgreSQL ledger (postgres_ledger.py) keeps the same in tables and advisory locks.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from warehouse.commit.failpoints import failpoint
from warehouse.commit.intents import DataFile, Intent
from warehouse.errors import StorageLost, WarehouseBusy, WarehouseMissing
from warehouse.files import write_durably
from warehouse.queries import query

COMMIT_LOCK: Final = "commit"
_POLL_S: Final = (0.001, 0.02)


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch of the ledger."""

    batch_id: str
    run_id: str
    snapshot: int
    files: tuple[DataFile, ...]

    def files_json(self) -> str:
        """The batch's files as JSON."""
        return json.dumps([asdict(file) for file in self.files], separators=(",", ":"))


def stored_batch(batch_id: str, run_id: str, snapshot: int, files_json: str) -> CommittedBatch:
    """A batch of the ledger from its columns."""
    return CommittedBatch(batch_id, run_id, snapshot, tuple(DataFile(**file) for file in json.loads(files_json)))


def with_rows_in(table: str) -> str:
    """What `files_json` is LIKE of a batch with rows in the table."""
    return f'%"table":"{table}"%'


class BatchLedger(Protocol):
    """What the commit protocol needs to remember outside of the lake's catalog."""

    def get(self, name: str) -> str | None:
        """A remembered text (`schema_version`, `reconciled`, ...); None when there is none."""
        ...

    def put(self, name: str, value: str) -> None:
        """Remember a text under a name."""
        ...

    def snapshots(self, batch_ids: Iterable[str]) -> dict[str, int]:
        """Snapshot of every one of these batches that is committed."""
        ...

    def under(self, prefix: str) -> set[str]:
        """Committed batches whose id begins with `prefix`."""
        ...

    def newest_of(self, run_id: str) -> int:
        """Snapshot of the run's newest committed batch; 0 when it has none."""
        ...

    def newest_in(self, table: str, since: int) -> int:
        """Snapshot of the newest committed batch with rows in the table; 0 when none is newer than `since`."""
        ...

    def batches_of(self, run_id: str, since: int) -> list[CommittedBatch]:
        """The run's batches that were committed after snapshot `since`, in the order of their snapshots."""
        ...

    def batches(self) -> list[CommittedBatch]:
        """Every committed batch, in the order of their snapshots."""
        ...

    def record(self, batches: Sequence[CommittedBatch], reconciled: int) -> None:
        """Enter batches; the ledger then knows the catalog up to snapshot `reconciled`. All of it or nothing."""
        ...

    def forget_after(self, snapshot: int) -> None:
        """Forget the batches of later snapshots, and that the catalog has those: it is an older one by now."""
        ...

    def add_intent(self, intent: Intent) -> None:
        """Let a staged batch wait to be committed; durable on return."""
        ...

    def has_intent(self, key: str) -> bool:
        """Whether the attempt of that key still waits."""
        ...

    def intents(self, limit: int | None = None) -> list[Intent]:
        """The waiting attempts, oldest first, at most `limit`."""
        ...

    def remove_intents(self, keys: Iterable[str]) -> None:
        """Let these attempts wait no more."""
        ...

    def refuse_intent(self, intent: Intent, reason: str) -> None:
        """Let an attempt wait no more, and remember why it cannot be committed."""
        ...

    def refusal(self, key: str) -> str | None:
        """Why the attempt of that key was refused; None when it was not."""
        ...

    def refused(self) -> list[tuple[Intent, str]]:
        """The refused attempts and why; whether another attempt of the batch was committed is not asked."""
        ...

    def offer_again(self, key: str) -> None:
        """Let a refused attempt wait to be committed."""
        ...

    def lock(
        self, name: str, *, timeout_s: float, done: Callable[[], bool] | None = None
    ) -> AbstractContextManager[bool]:
        """Hold the named lock among all processes; yields False, without it, as soon as `done` says so.

        Raises WarehouseBusy.
        """
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


def holder() -> str:
    """This thread, for the message of whoever waits for it."""
    thread = threading.current_thread().name
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"process {os.getpid()} ({thread}) on {socket.gethostname()} since {since}"


def busy(name: str, timeout_s: float, who: str) -> WarehouseBusy:
    """The error of a lock that was not free in time."""
    shown = name.removeprefix("named/")
    return WarehouseBusy(f"the lock {shown!r} was not free within {timeout_s:g} s; it is held by {who}")


def lock_file(folder: Path, name: str) -> Path:
    """The file that stands for the named lock."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)[:40]
    return folder / f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.lock"


@contextmanager
def _damage_explained(folder: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise StorageLost(
            f"{folder / 'ledger.sqlite'} is damaged ({error}): restore it, or the whole folder, from a backup",
            code="DamagedLedger",
        ) from error


class FolderLedger:
    """The ledger of a warehouse in a folder; for processes of one machine."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._intents = folder / "intents"
        self._refused = folder / "intents" / "refused"
        self._locks = folder / "locks"
        self._guard = threading.Lock()
        if read_only:
            address = f"{(folder / 'ledger.sqlite').as_uri()}?mode=ro"
            self._database = sqlite3.connect(
                address, uri=True, timeout=30, isolation_level=None, check_same_thread=False
            )
            with _damage_explained(folder):
                made = self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
            if made is None:  # its creator was killed, or is at it
                raise WarehouseMissing(
                    f"the warehouse at {folder} is empty: run the pipeline first", code="EmptyWarehouse"
                )
            return
        for path in (self._refused, self._locks):
            path.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(
            folder / "ledger.sqlite", timeout=30, isolation_level=None, check_same_thread=False
        )
        with _damage_explained(folder):
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(query(__name__, "tables"))

    def close(self) -> None:
        self._database.close()

    def get(self, name: str) -> str | None:
        with self._guard:
            row = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, value: str) -> None:
        with self._guard:
            self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def snapshots(self, batch_ids: Iterable[str]) -> dict[str, int]:
        wanted = json.dumps(list(batch_ids))
        asked = "SELECT batch_id, snapshot FROM batches WHERE batch_id IN (SELECT value FROM json_each(?))"
        with self._guard:
            return dict(self._database.execute(asked, (wanted,)).fetchall())

    def under(self, prefix: str) -> set[str]:
        bounds = {"prefix": prefix, "last": prefix + "\U0010ffff"}
        with self._guard:
            found = self._database.execute(query(__name__, "batches_under"), bounds).fetchall()
        return {str(row[0]) for row in found}

    def newest_of(self, run_id: str) -> int:
        with self._guard:
            row = self._database.execute("SELECT max(snapshot) FROM batches WHERE run_id = ?", (run_id,)).fetchone()
        return int(row[0] or 0)

    def newest_in(self, table: str, since: int) -> int:
        with self._guard:
            row = self._database.execute(query(__name__, "newest_in"), (since, with_rows_in(table))).fetchone()
        return int(row[0] or 0)

    def batches_of(self, run_id: str, since: int) -> list[CommittedBatch]:
        with self._guard:
            found = self._database.execute(query(__name__, "batches_of"), (run_id, since)).fetchall()
        return [stored_batch(*row) for row in found]

    def batches(self) -> list[CommittedBatch]:
        with self._guard:
            found = self._database.execute(query(__name__, "all_batches")).fetchall()
        return [stored_batch(*row) for row in found]

    def record(self, batches: Sequence[CommittedBatch], reconciled: int) -> None:
        rows = [(batch.batch_id, batch.run_id, batch.snapshot, batch.files_json()) for batch in batches]
        with self._transaction():
            self._database.executemany("INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?)", rows)
            self._database.execute("INSERT OR REPLACE INTO meta VALUES ('reconciled', ?)", (str(reconciled),))

    def forget_after(self, snapshot: int) -> None:
        with self._transaction():
            self._database.execute("DELETE FROM batches WHERE snapshot > ?", (snapshot,))
            self._database.execute("INSERT OR REPLACE INTO meta VALUES ('reconciled', ?)", (str(snapshot),))

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with self._guard:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise

    def add_intent(self, intent: Intent) -> None:
        write_durably(
            self._intents / f"{intent.key}.json",
            intent.to_json().encode(),
            written=lambda: failpoint("intent-written"),
            renamed=lambda: failpoint("intent-renamed"),
        )

    def has_intent(self, key: str) -> bool:
        return (self._intents / f"{key}.json").exists()

    def intents(self, limit: int | None = None) -> list[Intent]:
        names = sorted(entry.name for entry in os.scandir(self._intents) if entry.name.endswith(".json"))
        found: list[Intent] = []
        for name in names[:limit]:
            try:
                found.append(Intent.from_json((self._intents / name).read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue
        return found

    def remove_intents(self, keys: Iterable[str]) -> None:
        for key in keys:
            (self._intents / f"{key}.json").unlink(missing_ok=True)

    def refuse_intent(self, intent: Intent, reason: str) -> None:
        write_durably(self._refused / f"{intent.key}.txt", reason.encode())
        os.replace(self._intents / f"{intent.key}.json", self._refused / f"{intent.key}.json")

    def refusal(self, key: str) -> str | None:
        path = self._refused / f"{key}.txt"
        return path.read_text(encoding="utf-8") if path.exists() else None

    def refused(self) -> list[tuple[Intent, str]]:
        found = sorted(self._refused.glob("*.json"))
        return [(Intent.from_json(path.read_text(encoding="utf-8")), self.refusal(path.stem) or "") for path in found]

    def offer_again(self, key: str) -> None:
        (self._refused / f"{key}.txt").unlink(missing_ok=True)
        os.replace(self._refused / f"{key}.json", self._intents / f"{key}.json")

    @contextmanager
    def lock(
        self, name: str, *, timeout_s: float, done: Callable[[], bool] | None = None
    ) -> Generator[bool, None, None]:
        """Hold the named lock; yields False, without it, as soon as `done` says that it is not needed any more."""
        path = lock_file(self._locks, name)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not self._wait(descriptor, name, timeout_s, done):
                yield False
                return
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder().encode(), 0)
            yield True
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, name: str, timeout_s: float, done: Callable[[], bool] | None) -> bool:
        deadline = time.monotonic() + timeout_s
        pause, longest = _POLL_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if done is not None and done():
                    return False
                if time.monotonic() >= deadline:
                    who = os.pread(descriptor, 400, 0).decode(errors="replace") or "an unknown process"
                    raise busy(name, timeout_s, who) from None
                time.sleep(pause)
                pause = min(pause * 2, longest)
