"""Opening a location: making it once, whoever comes first, and refusing what this version does not understand."""

from __future__ import annotations

import os
import uuid
from contextlib import closing

import duckdb

from warehouse import lake
from warehouse.commit.ledger import BatchLedger, FolderLedger
from warehouse.errors import NewerSchema, WarehouseMissing
from warehouse.files import not_writable, storage_errors, write_durably
from warehouse.location import Location, refuse_network_folder
from warehouse.schema import SCHEMA_VERSION
from warehouse.upkeep.migrations import STEPS, migrate

CREATION_TIMEOUT_S = 120.0


def open_ledger(location: Location, *, read_only: bool) -> BatchLedger:
    """The location's ledger; raises WarehouseMissing (read-only), UnsafeStorage and NotWritable."""
    folder = location.folder
    if folder is None:
        from warehouse.commit.postgres_ledger import PostgresLedger

        return PostgresLedger(location.postgres, location.password, location.schema, create=not read_only)
    if read_only and not (folder / "ledger.sqlite").is_file():
        raise WarehouseMissing(
            f"there is no warehouse at {folder}: run the pipeline first, or set SPO_WAREHOUSE to where it is"
        )
    if not read_only:
        with storage_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
    refuse_network_folder(folder)
    for path in (folder,) if read_only else (folder, folder / "ledger.sqlite", folder / "catalog.sqlite"):
        if path.exists() and not os.access(path, os.W_OK):
            raise not_writable(
                str(path),
                "let this user write there. SQLite needs to write beside a catalog even to read it; to read only, copy "
                "the folder to where this user may write, and open the copy",
            )
    return FolderLedger(folder, read_only=read_only)


def prepare(location: Location, ledger: BatchLedger, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the location's lake, made or migrated when needed; raises NewerSchema and WarehouseMissing.

    One that is only to be read is brought up to date first, too: what reads asks for the tables and views of today.
    """
    version = stored_version(ledger)
    if version is not None and version > SCHEMA_VERSION:
        raise NewerSchema(
            f"the warehouse at {location} has schema version {version}, this project understands up to "
            f"{SCHEMA_VERSION}: update the project"
        )
    if read_only and version is None:
        raise WarehouseMissing(f"the warehouse at {location} is empty: run the pipeline first", code="EmptyWarehouse")
    if version != SCHEMA_VERSION or ledger.get("views") != lake.views_fingerprint():
        if not read_only:
            return _create_or_migrate(location, ledger)
        with closing(open_ledger(location, read_only=False)) as writable:
            _create_or_migrate(location, writable).close()
    renew_opening_file(location)
    return lake.connect(location, read_only=read_only)


def stored_version(ledger: BatchLedger) -> int | None:
    """The schema version of the warehouse; None before it is made."""
    version = ledger.get("schema_version")
    return None if version is None else int(version)


def _create_or_migrate(location: Location, ledger: BatchLedger) -> duckdb.DuckDBPyConnection:
    with ledger.lock("commit", timeout_s=CREATION_TIMEOUT_S):
        connection = lake.connect(location, read_only=False)
        version = stored_version(ledger)
        if version is None:
            if lake.is_made(connection):  # whose ledger was lost
                migrate(connection, min(STEPS))
            else:
                lake.create_everything(connection)
            ledger.put("warehouse_id", ledger.get("warehouse_id") or uuid.uuid4().hex[:12])
        elif version < SCHEMA_VERSION or ledger.get("views") != lake.views_fingerprint():
            migrate(connection, version)
        renew_opening_file(location)
        ledger.put("views", lake.views_fingerprint())
        ledger.put("schema_version", str(SCHEMA_VERSION))
    return connection


def renew_opening_file(location: Location) -> None:
    """Let `warehouse.sql` open the warehouse it lies in: a copied or moved folder brings that of the original."""
    folder = location.folder
    if folder is None:
        return
    target, text = folder / "warehouse.sql", opening_file(location)
    if not target.is_file() or target.read_text(encoding="utf-8") != text:
        write_durably(target, text.encode())


def opening_file(location: Location) -> str:
    """SQL with which the stock shell opens the lake: `duckdb -init warehouse.sql`."""
    lines = [
        "-- Opens this warehouse, read-only, in any DuckDB: duckdb -init warehouse.sql",
        *(f"INSTALL {name}; LOAD {name};" for name in lake.extensions(location)),
        *(f"{setting};" for setting in lake.consistency(location)),
        f"{lake.attach(location, read_only=True)};",
        f"USE {lake.LAKE};",
    ]
    return "\n".join(lines) + "\n"
