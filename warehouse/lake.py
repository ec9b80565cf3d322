"""The DuckLake attachment: extensions from installed wheels, the tables, and the views."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import duckdb

from warehouse.errors import ExtensionMissing
from warehouse.location import Location
from warehouse.queries import query
from warehouse.schema import PROVENANCE, TABLES, TableSchema

LAKE: Final = "lake"
STORED: Final = "stored"
"""Schema of the tables; the lake's main schema holds the views, which leave out quarantined batches."""
METADATA: Final = f"__ducklake_metadata_{LAKE}"
_CATALOG: Final = "warehouse_catalog"
_VIEWS: Final = Path(__file__).parent / "views"
_MERGED_FILES: Final = {
    "parquet_compression": "zstd",
    "parquet_compression_level": "1",
    "parquet_version": "2",
    "parquet_row_group_size": "2048",
}
SESSION: Final = (f"USE {LAKE}", "SET TimeZone = 'UTC'", "SET enable_progress_bar = false")
"""What every cursor of a connection has to be told again."""
_NO_SECOND_TRY: Final = "SET ducklake_max_retry_count = 0"
"""When another program has committed since a transaction began, DuckLake would by itself commit the transaction under
the next number. A leader whose lock was lost would so store once more what the next leader has just committed.
"""
_NO_DOWNLOADS: Final = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}


def connect(location: Location, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection with the lake attached and in use; needs no network unless the location does.

    One that writes has one thread: a commit is hundreds of tiny queries on the catalog, and waking further threads
    for each of them costs half as much again as the commit. One that only reads has a thread per core.
    """
    config: dict[str, str | bool | int | float | list[str]] = {**_NO_DOWNLOADS, "allow_unsigned_extensions": True}
    config["temp_directory"] = os.environ.get("TMPDIR", "/tmp")
    if not read_only:
        config["threads"] = 1
    connection = duckdb.connect(config=config)
    for statement in opening(location, read_only=read_only):
        connection.execute(statement)
    return connection


def opening(location: Location, *, read_only: bool) -> list[str]:
    """The statements that make a bare DuckDB connection one with the lake attached and in use."""
    statements = [f"LOAD {quoted(checked_extension(extension_file(name)))}" for name in extensions(location)]
    statements.append("SET allow_unsigned_extensions = false")  # from here on, and nobody can turn it on again
    if location.remote:
        statements.append(_secret())
    if location.password is not None:  # in the ATTACH statement, errors and duckdb_databases() would show it
        statements.append(f"CREATE OR REPLACE SECRET {_CATALOG} (TYPE postgres, PASSWORD {quoted(location.password)})")
    statements += consistency(location)
    if not read_only:
        statements.append(_NO_SECOND_TRY)
    return [*statements, attach(location, read_only=read_only), *SESSION]


def consistency(location: Location) -> list[str]:
    """The settings without which a reader may see a table without its merged files.

    By default DuckDB reads SQLite tables in ranges of row numbers whose end it looked up before, over connections
    outside of the transaction: a merge that commits in between removes the old rows, and the new one is past the end.
    """
    return ["SET GLOBAL sqlite_disable_multithreaded_scans = true"] if not location.postgres else []


def attach(location: Location, *, read_only: bool) -> str:
    """The ATTACH statement of the location."""
    options = [f"DATA_PATH {quoted(location.data)}", "OVERRIDE_DATA_PATH true"]  # it may have been moved or copied
    if not location.postgres:
        catalog = f"ducklake:sqlite:{location.folder}/catalog.sqlite"
        options.append("META_BUSY_TIMEOUT 10000")
    else:
        catalog = f"ducklake:postgres:{libpq(location.postgres)}"
        options.append(f"METADATA_SCHEMA {quoted(location.schema)}")
        if location.password is not None:
            options.append(f"META_SECRET {quoted(_CATALOG)}")
    if read_only:
        options.append("READ_ONLY")
    else:
        options.append("DATA_INLINING_ROW_LIMIT 0")
        if not location.postgres:
            options.append("META_JOURNAL_MODE 'WAL'")
    return f"ATTACH {quoted(catalog)} AS {LAKE} ({', '.join(options)})"


def libpq(address: str) -> str:
    """A postgresql:// address (no password) as the key=value string that DuckLake wants."""
    from psycopg.conninfo import make_conninfo

    return make_conninfo(address, options="-clc_messages=C")


def extensions(location: Location) -> list[str]:
    """The extensions that the location needs, in the order of loading."""
    catalog = "sqlite_scanner" if not location.postgres else "postgres_scanner"
    return ["ducklake", catalog, *(["httpfs"] if location.remote else [])]


def extension_file(name: str) -> str:
    """The signed extension binary that its wheel ships; raises ExtensionMissing."""
    package = f"duckdb_extension_{name}"
    found = importlib.util.find_spec(package)
    version = duckdb.__version__
    if found is not None and found.origin is not None:
        path = Path(found.origin).parent / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if path.is_file():
            return str(path)
    wheel = package.replace("_", "-")
    raise ExtensionMissing(f"DuckDB's extension {name!r} is not installed: pip install {wheel}=={version}")


def checked_extension(path: str) -> str:
    """`path`, once DuckDB has found its own signature in that file; raises duckdb.IOException when there is none.

    A file is checked once per process (and its forks) and again when it changes: the check reads 35 MB, which made up
    nine tenths of the time that opening a warehouse took.
    """
    status = os.stat(path)
    _check_signature(path, status.st_mtime_ns, status.st_size)
    return path


@cache
def _check_signature(path: str, _mtime_ns: int, _size: int) -> None:
    with duckdb.connect(config={**_NO_DOWNLOADS, "threads": 1}) as connection:
        connection.execute(f"LOAD {quoted(path)}")


def _secret() -> str:
    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL", "")
    scheme, _, host = endpoint.rpartition("://")
    parts = ["TYPE s3", f"REGION {quoted(environment.get('AWS_REGION', 'us-east-1'))}"]
    for name, variable in (
        ("KEY_ID", "AWS_ACCESS_KEY_ID"),
        ("SECRET", "AWS_SECRET_ACCESS_KEY"),
        ("SESSION_TOKEN", "AWS_SESSION_TOKEN"),
    ):
        if environment.get(variable):
            parts.append(f"{name} {quoted(environment[variable])}")
    if host:
        parts += [f"ENDPOINT {quoted(host)}", "URL_STYLE 'path'", f"USE_SSL {str(scheme == 'https').lower()}"]
    return f"CREATE OR REPLACE SECRET warehouse ({', '.join(parts)})"


def quoted(text: str) -> str:
    """`text` as a SQL string."""
    return "'" + text.replace("'", "''") + "'"


def create_table(table: TableSchema) -> str:
    """The statement that makes the table unless it is there."""
    columns = ", ".join(
        f'"{column.name}" {column.type}{" NOT NULL" if column.required else ""}'
        for column in (*table.columns, *PROVENANCE)
    )
    return f'CREATE TABLE IF NOT EXISTS {STORED}."{table.name}" ({columns})'


def masked_view(table: TableSchema) -> str:
    """The view of a table's name: its rows up to the chosen snapshot without quarantined batches."""
    if table.name == "quarantine":
        return query(__name__, "view_of_quarantine")
    return query(__name__, "view_of_table", table=table.name)


def comments(table: TableSchema) -> list[str]:
    """The statements that put the meanings into the catalog, where any client shows them."""
    name = f'{STORED}."{table.name}"'
    columns = [
        f'COMMENT ON COLUMN {name}."{column.name}" IS {quoted(column.meaning)}'
        for column in (*table.columns, *PROVENANCE)
    ]
    return [f"COMMENT ON TABLE {name} IS {quoted('one row per ' + table.row)}", *columns]


def view_files() -> list[Path]:
    """The files of views and macros, in the order in which they build on one another."""
    return sorted(_VIEWS.glob("*.sql"))


def view_statements() -> list[tuple[str, str]]:
    """Every view and macro: (the question in its comment, its CREATE statement)."""
    found: list[tuple[str, str]] = []
    for path in view_files():
        for part in re.split(r";\s*(?:\n|$)", path.read_text(encoding="utf-8")):
            lines = part.strip().splitlines()
            if not lines:
                continue
            asked = [line.removeprefix("--").strip() for line in lines if line.startswith("--")]
            statement = "\n".join(line for line in lines if not line.startswith("--"))
            found.append((" ".join(asked), statement))
    return found


def views_fingerprint() -> str:
    """Identity of the views and macros that this code makes."""
    statements = [masked_view(table) for table in TABLES.values()] + [text for _, text in view_statements()]
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()[:16]


def is_made(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether the lake has tables of ours, of whichever version."""
    asked = "SELECT count(*) FROM duckdb_tables() WHERE database_name = ? AND schema_name = ?"
    return bool(connection.execute(asked, [LAKE, STORED]).fetchall()[0][0])


def create_everything(connection: duckdb.DuckDBPyConnection) -> None:
    """Make tables, comments, views and macros in one transaction; harmless when they are there."""
    for option, value in _MERGED_FILES.items():
        connection.execute(f"CALL ducklake_set_option('{LAKE}', ?, ?)", [option, value])
    connection.execute("BEGIN")
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {STORED}")
    for table in TABLES.values():
        connection.execute(create_table(table))
    for table in TABLES.values():
        for statement in comments(table):
            connection.execute(statement)
    create_views(connection)
    connection.execute("COMMIT")


def create_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make or replace every view and macro."""
    for table in TABLES.values():
        connection.execute(masked_view(table))
    for _, statement in view_statements():
        connection.execute(statement)


def register(
    connection: duckdb.DuckDBPyConnection, files: Sequence[tuple[str, list[str]]], extra_info: str, message: str
) -> None:
    """Add Parquet files to their tables in the open transaction; `files` are (table, full paths)."""
    for table, paths in files:
        connection.execute(
            f"CALL ducklake_add_data_files('{LAKE}', ?, ?, schema => '{STORED}', allow_missing => true)",
            [table, paths],
        )
    connection.execute(
        f"CALL ducklake_set_commit_message('{LAKE}', 'warehouse', ?, extra_info => ?)", [message, extra_info]
    )


def current_snapshot(connection: duckdb.DuckDBPyConnection) -> int:
    """The newest snapshot."""
    ((snapshot,),) = connection.execute(f"FROM ducklake_current_snapshot('{LAKE}')").fetchall()
    return int(snapshot)


def committed_snapshot(connection: duckdb.DuckDBPyConnection) -> int:
    """The snapshot of this process's last commit, which does not ask the catalog: that takes longer the more snapshots
    there are.
    """
    ((snapshot,),) = connection.execute(f"FROM ducklake_last_committed_snapshot('{LAKE}')").fetchall()
    return current_snapshot(connection) if snapshot is None else int(snapshot)


def snapshots_are_missing(connection: duckdb.DuckDBPyConnection, location: Location, after: int, until: int) -> bool:
    """Whether the catalog has forgotten a snapshot after one and up to another, and the message of its commit."""
    inner = query(__name__, "kept_snapshots", schema=location.schema, after=str(int(after)), until=str(int(until)))
    ((kept,),) = connection.execute(f"SELECT kept::BIGINT FROM {asked_of_catalog(location, inner)}").fetchall()
    return int(kept) < until - after


def commits_since(connection: duckdb.DuckDBPyConnection, location: Location, snapshot: int) -> list[tuple[int, str]]:
    """The (snapshot, extra information) of every commit after `snapshot` that carries any, oldest first."""
    inner = query(__name__, "commit_messages", schema=location.schema, snapshot=str(int(snapshot)))
    source = asked_of_catalog(location, inner)
    rows = connection.execute(f"SELECT snapshot_id::BIGINT, commit_extra_info FROM {source} ORDER BY 1").fetchall()
    return [(int(row[0]), str(row[1])) for row in rows]


def asked_of_catalog(location: Location, sql: str) -> str:
    """The table function whose rows are the answer of the catalog's own database."""
    ask = "sqlite_query" if not location.postgres else "postgres_query"
    return f"{ask}('{METADATA}', {quoted(sql)})"
