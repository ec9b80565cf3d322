"""Many readers at once: questions with a time limit and a snapshot, on a connection that can change nothing.

The connection's lake is attached read-only, its configuration is locked, and it reaches no files but the warehouse's
own. What people type is checked to be a single SELECT statement before it runs.

Errors: TookTooLong, BadQuestion, StillReading, WarehouseBusy, UnknownSnapshot, and those of opening.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import duckdb

from warehouse import lake
from warehouse.errors import BadQuestion, StillReading, TookTooLong, UnknownSnapshot, WarehouseBusy, WarehouseError
from warehouse.location import Location, parse_location
from warehouse.opening import open_ledger, prepare
from warehouse.reading.resident import ResidentColumns
from warehouse.reading.resident_tables import SEARCH_PATH, ResidentTables
from warehouse.reading.without_pandas import without_pandas

TIMEOUT_S: Final = 60.0
AT_ONCE: Final = 4
KEPT_ROWS: Final = 200_000
"""Rows of answers that are kept, of all together; an empty answer counts as one."""
TABLE_FUNCTIONS: Final = frozenset(
    {"unnest", "range", "generate_series", "repeat", "duckdb_tables", "duckdb_columns", "answers_to"}
)
"""Those that a typed question may call: none of them reads files or runs text."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A result as a table; `cut` when there were more rows than the limit."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was asked of a session, and the time until its answer; `kept` when it was known already."""

    sql: str
    parameters: Mapping[str, Any]
    seconds: float
    kept: bool


class Readers:
    """A pool of cursors on one locked, read-only connection; a context manager. Safe to use from several threads."""

    def __init__(self, location: Location, connection: duckdb.DuckDBPyConnection) -> None:
        self.location = location
        self._connection = connection
        self._tables = ResidentTables(connection, location)
        self._responses = ResidentColumns(connection, location)
        self._free: queue.Queue[duckdb.DuckDBPyConnection] = queue.Queue()
        for statement in _locking(location):
            connection.execute(statement)
        for _ in range(AT_ONCE):
            cursor = connection.cursor()
            cursor.execute(SEARCH_PATH)
            self._free.put(cursor)
        self._answers: OrderedDict[tuple[Any, ...], list[dict[str, Any]]] = OrderedDict()
        self._kept_rows = 0
        self._keeping = threading.Lock()
        self._filled = threading.Event()

    @classmethod
    def open(cls, location: str | Path | None = None) -> Self:
        """Readers of the warehouse at `location`; raises WarehouseMissing, NewerSchema, ExtensionMissing."""
        parsed = parse_location(location)
        ledger = open_ledger(parsed, read_only=True)
        try:
            return cls(parsed, prepare(parsed, ledger, read_only=True))
        finally:
            ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every cursor; questions that still run are stopped."""
        self._tables.close()
        self._responses.close()
        self._connection.close()

    def fill(self) -> None:
        """Read the small columns of every response once; until then `Session.need_responses` raises StillReading.

        What fails here is tried again by the next session that needs them.
        """
        try:
            newest = lake.current_snapshot(self._connection.cursor())
            self._tables.refresh(newest)
            self._responses.refresh(newest)
        finally:
            self._filled.set()

    @contextmanager
    def session(self, at: int | None = None, *, timeout_s: float = TIMEOUT_S) -> Generator[Session]:
        """Questions of one moment: all see the same snapshot, `at` or the newest, and end by the time limit."""
        try:
            cursor = self._free.get(timeout=timeout_s)
        except queue.Empty:
            raise WarehouseBusy(f"{AT_ONCE} questions are being answered; ask again in a moment") from None
        stop = threading.Timer(timeout_s, cursor.interrupt)
        stop.daemon = True
        try:
            newest = lake.current_snapshot(cursor)
            self._tables.refresh(newest)
            cursor.execute("BEGIN")  # after that: a transaction sees of memory, too, what was there when it began
            shown = newest if at is None else at
            if not 0 <= shown <= newest:
                raise UnknownSnapshot(f"there is no snapshot {shown}: this warehouse has the snapshots 0 to {newest}")
            past = "NULL" if at is None else str(int(at))
            cursor.execute(f"SET VARIABLE at_snapshot = {past}::BIGINT")
            cursor.execute(f"SET VARIABLE shown_snapshot = {int(shown)}::BIGINT")
            cursor.execute("SET VARIABLE counted = NULL::BOOLEAN")
            stop.start()
            yield Session(self, cursor, shown, newest, at)
        finally:
            stop.cancel()
            with suppress(duckdb.Error):
                cursor.execute("ROLLBACK")
            self._free.put(cursor)

    def known(self, key: tuple[Any, ...]) -> list[dict[str, Any]] | None:
        """The rows of an earlier answer to the same question at the same snapshot."""
        with self._keeping:
            found = self._answers.get(key)
            if found is not None:
                self._answers.move_to_end(key)
            return found

    def keep(self, key: tuple[Any, ...], rows: list[dict[str, Any]]) -> None:
        """Remember an answer; the oldest unused ones are forgotten."""
        with self._keeping:
            if key not in self._answers:
                self._kept_rows += len(rows) + 1
            self._answers[key] = rows
            while self._kept_rows > KEPT_ROWS and len(self._answers) > 1:
                self._kept_rows -= len(self._answers.popitem(last=False)[1]) + 1

    def take_in(self, newest: int, wait_s: float) -> None:
        """Bring `resident.responses` up to `newest`; raises StillReading when the first reading is not done in time."""
        if not self._filled.wait(wait_s):
            raise StillReading("the responses are being read for the first time; ask again in a moment")
        try:
            self._responses.refresh(newest)
        except duckdb.Error as error:
            raise WarehouseError(f"the responses could not be read: {error}", code="ResponsesUnreadable") from error


@dataclass(slots=True)
class Session:
    """What one page asks. `snapshot` is what it shows, `newest` what there is."""

    _readers: Readers
    _cursor: duckdb.DuckDBPyConnection
    snapshot: int
    newest: int
    at: int | None
    asked: list[Asked] = field(default_factory=list[Asked])
    """Every question so far, in order."""

    def rows(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query of this project; an answer that is known at this snapshot is given again."""
        values = dict(parameters or {})
        begun = time.perf_counter()
        key = (self.newest, self.at, sql, json.dumps(values, sort_keys=True, default=str))
        found = self._readers.known(key)
        kept = found is not None
        if found is None:
            result = self._run(sql, values)
            names = [column[0] for column in result.description or ()]
            found = [dict(zip(names, row, strict=True)) for row in self._fetch(result)]
            self._readers.keep(key, found)
        self.asked.append(Asked(sql, values, time.perf_counter() - begun, kept))
        return found

    def row(self, sql: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The first row of a query of this project; None when there is none."""
        return next(iter(self.rows(sql, parameters)), None)

    def need_responses(self, wait_s: float = 2.0) -> None:
        """Let `resident.responses` show what this session shows; raises StillReading, and does so once at most."""
        self._readers.take_in(self.newest, wait_s)
        self._cursor.execute("ROLLBACK")
        self._cursor.execute("BEGIN")
        counted = self._cursor.execute("SELECT snapshot FROM resident.counted_until").fetchone()
        self._cursor.execute(f"SET VARIABLE counted = {str(counted == (self.snapshot,)).upper()}")

    def ask(self, text: str, *, limit: int) -> Answer:
        """The answer to what a person typed, at most `limit` rows; raises BadQuestion and TookTooLong."""
        statement = _single_select(self._cursor, text)
        begun = time.perf_counter()
        limited = f"SELECT * FROM (\n{statement}\n) AS asked LIMIT {int(limit) + 1}"
        try:
            result = self._run(limited, {})
            columns = tuple(column[0] for column in result.description or ())
            rows = self._fetch(result)
        except (duckdb.Error, UnicodeDecodeError) as error:
            raise BadQuestion(str(error)) from error
        return Answer(columns, tuple(rows[:limit]), len(rows) > limit, time.perf_counter() - begun)

    def plan(self, text: str) -> str:
        """How DuckDB would answer what a person typed; raises BadQuestion and TookTooLong."""
        statement = _single_select(self._cursor, text)
        try:
            return "\n".join(row[-1] for row in self._fetch(self._run(f"EXPLAIN {statement}", {})))
        except duckdb.Error as error:
            raise BadQuestion(str(error)) from error

    def _run(self, sql: str, values: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
        try:
            with without_pandas():
                return self._cursor.execute(sql, values) if values else self._cursor.execute(sql)
        except duckdb.InterruptException:
            raise self._too_long() from None

    def _fetch(self, result: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
        try:
            return result.fetchall()
        except duckdb.InterruptException:
            raise self._too_long() from None

    def _too_long(self) -> TookTooLong:
        return TookTooLong("the question took longer than its time limit and was stopped; ask for less of it")


def _locking(location: Location) -> list[str]:
    """The statements after which a connection reaches the warehouse's own files only, and nobody can undo that."""
    own = [location.data]
    files = (
        [] if location.folder is None else [f"{location.folder}/catalog.sqlite{end}" for end in ("", "-wal", "-shm")]
    )
    return [
        "SET temp_directory = ''",  # DuckDB allows reading it
        "SET GLOBAL TimeZone = 'UTC'",
        f"SET allowed_directories = [{', '.join(map(lake.quoted, own))}]",
        f"SET allowed_paths = [{', '.join(map(lake.quoted, files))}]",
        "SET enable_external_access = false",
        "SET lock_configuration = true",
    ]


def _single_select(cursor: duckdb.DuckDBPyConnection, text: str) -> str:
    """The one SELECT statement in `text`, without its semicolon; raises BadQuestion."""
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise BadQuestion(str(error)) from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise BadQuestion("ask one SELECT statement; nothing can be changed from here")
    statement = statements[0].query.strip().rstrip(";").strip()
    serialized = cursor.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [statement]).fetchone()
    tree = json.loads(serialized[0]) if serialized else {"error": True, "error_message": "empty"}
    if tree.get("error"):
        raise BadQuestion(f"only plain SELECT statements can be asked here: {tree.get('error_message')}")
    unknown = sorted(set(_table_functions(tree)) - TABLE_FUNCTIONS)
    if unknown:
        raise BadQuestion(f"the table function {unknown[0]} cannot be asked here; ask tables and views")
    return statement


def _table_functions(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if tree.get("type") == "TABLE_FUNCTION":
            yield str(tree["function"]["function_name"]).lower()
        tree = list(tree.values())
    if isinstance(tree, list):
        for part in tree:
            yield from _table_functions(part)
