"""The ledger in PostgreSQL, beside the catalog: for processes of several machines."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, cast

import psycopg
from psycopg import sql

from warehouse.commit.failpoints import failpoint
from warehouse.commit.intents import Intent
from warehouse.commit.ledger import CommittedBatch, busy, holder, stored_batch, with_rows_in
from warehouse.errors import StorageLost, WarehouseMissing
from warehouse.files import translated
from warehouse.queries import query

_POLL_S: Final = (0.002, 0.05)
_FORGET_THE_DEAD: Final = "SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
"""Makes the server end, and its locks free, within a minute when this machine vanishes (the default is two hours)."""


class PostgresLedger:
    """The same promises as `FolderLedger`, over one connection for statements and one for each lock held."""

    def __init__(self, address: str, password: str | None, schema: str, *, create: bool) -> None:
        self._address = address
        self._password = password
        self._schema = schema
        self._guard = threading.Lock()
        self._own = self._connect()
        self._idle: list[psycopg.Connection[Any]] = []
        if create:
            self._create()
        elif not self._run("SELECT to_regclass(%s)", (f"{schema}.warehouse_meta",))[0][0]:
            raise WarehouseMissing(f"there is no warehouse in schema {schema!r} of this PostgreSQL database")

    def _create(self) -> None:
        with self._faults(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_number(self._schema, "creation"),))
            cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {s}").format(s=sql.Identifier(self._schema)))
            cursor.execute(self._sql(query(__name__, "tables")))

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            connection = psycopg.connect(
                self._address,
                password=self._password,
                autocommit=True,
                connect_timeout=10,
                client_encoding="utf8",  # without it a database in SQL_ASCII answers in bytes
            )
            connection.execute(_FORGET_THE_DEAD)
            return connection
        except psycopg.OperationalError as error:
            raise StorageLost(f"cannot reach the PostgreSQL catalog: {error}") from error

    def close(self) -> None:
        for connection in (self._own, *self._idle):
            connection.close()

    @property
    def _connection(self) -> psycopg.Connection[Any]:
        """The connection for statements, which each are whole; a new one where it was lost. Under `_guard`."""
        if self._own.closed:
            self._own = self._connect()
        return self._own

    def get(self, name: str) -> str | None:
        rows = self._run("SELECT value FROM {s}.warehouse_meta WHERE name = %s", (name,))
        return str(rows[0][0]) if rows else None

    def put(self, name: str, value: str) -> None:
        self._run(query(__name__, "put"), (name, value))

    def snapshots(self, batch_ids: Iterable[str]) -> dict[str, int]:
        asked = "SELECT batch_id, snapshot FROM {s}.warehouse_batches WHERE batch_id = ANY(%s)"
        return dict(self._run(asked, (list(batch_ids),)))

    def under(self, prefix: str) -> set[str]:
        asked = "SELECT batch_id FROM {s}.warehouse_batches WHERE starts_with(batch_id, %s)"
        return {row[0] for row in self._run(asked, (prefix,))}

    def newest_of(self, run_id: str) -> int:
        ((newest,),) = self._run("SELECT max(snapshot) FROM {s}.warehouse_batches WHERE run_id = %s", (run_id,))
        return int(newest or 0)

    def newest_in(self, table: str, since: int) -> int:
        ((newest,),) = self._run(query(__name__, "newest_in"), (since, with_rows_in(table)))
        return int(newest or 0)

    def batches_of(self, run_id: str, since: int) -> list[CommittedBatch]:
        return [stored_batch(*row) for row in self._run(query(__name__, "batches_of"), (run_id, since))]

    def batches(self) -> list[CommittedBatch]:
        rows = self._run(query(__name__, "all_batches"))
        return [stored_batch(*row) for row in rows]

    def record(self, batches: Sequence[CommittedBatch], reconciled: int) -> None:
        rows = [(batch.batch_id, batch.run_id, batch.snapshot, batch.files_json()) for batch in batches]
        with self._guard, self._faults(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(
                self._sql("INSERT INTO {s}.warehouse_batches VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"), rows
            )
            cursor.execute(self._sql(query(__name__, "put")), ("reconciled", str(reconciled)))

    def forget_after(self, snapshot: int) -> None:
        with self._guard, self._faults(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(self._sql("DELETE FROM {s}.warehouse_batches WHERE snapshot > %s"), (snapshot,))
            cursor.execute(self._sql(query(__name__, "put")), ("reconciled", str(snapshot)))

    def add_intent(self, intent: Intent) -> None:
        failpoint("intent-written")
        self._run("INSERT INTO {s}.warehouse_intents VALUES (%s, %s)", (intent.key, intent.to_json()))
        failpoint("intent-renamed")

    def has_intent(self, key: str) -> bool:
        return bool(self._run("SELECT 1 FROM {s}.warehouse_intents WHERE key = %s", (key,)))

    def intents(self, limit: int | None = None) -> list[Intent]:
        rows = self._run("SELECT intent FROM {s}.warehouse_intents ORDER BY key LIMIT %s", (limit,))
        return [Intent.from_json(row[0]) for row in rows]

    def remove_intents(self, keys: Iterable[str]) -> None:
        self._run("DELETE FROM {s}.warehouse_intents WHERE key = ANY(%s)", (list(keys),))

    def refuse_intent(self, intent: Intent, reason: str) -> None:
        with self._guard, self._faults(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(
                self._sql("INSERT INTO {s}.warehouse_refused VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"),
                (intent.key, intent.to_json(), reason),
            )
            cursor.execute(self._sql("DELETE FROM {s}.warehouse_intents WHERE key = %s"), (intent.key,))

    def refusal(self, key: str) -> str | None:
        rows = self._run("SELECT reason FROM {s}.warehouse_refused WHERE key = %s", (key,))
        return str(rows[0][0]) if rows else None

    def refused(self) -> list[tuple[Intent, str]]:
        rows = self._run("SELECT intent, reason FROM {s}.warehouse_refused ORDER BY key")
        return [(Intent.from_json(intent), str(reason)) for intent, reason in rows]

    def offer_again(self, key: str) -> None:
        with self._guard, self._faults(), self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(self._sql(query(__name__, "offer_again")), (key,))
            cursor.execute(self._sql("DELETE FROM {s}.warehouse_refused WHERE key = %s"), (key,))

    @contextmanager
    def lock(
        self, name: str, *, timeout_s: float, done: Callable[[], bool] | None = None
    ) -> Generator[bool, None, None]:
        """Hold the named lock; yields False, without it, as soon as `done` says that it is not needed any more."""
        with self._guard:
            session = self._idle.pop() if self._idle else None
        session = session or self._connect()
        number = _number(self._schema, name)
        try:
            if not self._wait(session, number, name, timeout_s, done):
                yield False
                return
            try:
                self._run(query(__name__, "name_holder"), (name, holder()))
                yield True
            finally:
                session.execute("SELECT pg_advisory_unlock(%s)", (number,))
        except psycopg.Error as error:
            raise translated(error, "the PostgreSQL ledger") from error
        finally:
            with self._guard:
                self._idle += [] if session.closed else [session]

    def _wait(
        self,
        session: psycopg.Connection[Any],
        number: int,
        name: str,
        timeout_s: float,
        done: Callable[[], bool] | None,
    ) -> bool:
        deadline = time.monotonic() + timeout_s
        pause, longest = _POLL_S
        while True:
            row = session.execute("SELECT pg_try_advisory_lock(%s)", (number,)).fetchone()
            if row is not None and row[0]:
                return True
            if done is not None and done():
                return False
            if time.monotonic() >= deadline:
                rows = self._run("SELECT holder FROM {s}.warehouse_holders WHERE name = %s", (name,))
                who = rows[0][0] if rows else "an unknown process"
                raise busy(name, timeout_s, who)
            time.sleep(pause)
            pause = min(pause * 2, longest)

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(cast(LiteralString, text)).format(s=sql.Identifier(self._schema))

    @contextmanager
    def _faults(self) -> Generator[None, None, None]:
        try:
            yield
        except psycopg.Error as error:
            raise translated(error, "the PostgreSQL ledger") from error

    def _run(self, text: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._guard, self._faults(), self._connection.cursor() as cursor:
            cursor.execute(self._sql(text), parameters or None)
            return cursor.fetchall() if cursor.description else []


def _number(schema: str, name: str) -> int:
    digest = hashlib.sha256(f"{schema}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
