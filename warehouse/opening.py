"""Opening a place: making it once, whoever comes first, and refusing what this version does not understand."""

from __future__ import annotations

import uuid

import duckdb

from warehouse import lake
from warehouse.errors import NewerSchema, WarehouseMissing
from warehouse.files import storage_errors, write_durably
from warehouse.ledger import FolderLedger, Ledger
from warehouse.migrations import migrate
from warehouse.place import Place, refuse_network_folder
from warehouse.schema import SCHEMA_VERSION

CREATION_TIMEOUT_S = 120.0


def open_ledger(place: Place, *, read_only: bool) -> Ledger:
    """The place's ledger; raises WarehouseMissing (read-only) and UnsafeStorage."""
    if place.postgres is not None:
        from warehouse.postgres_ledger import PostgresLedger

        return PostgresLedger(place.postgres, place.password, place.schema, create=not read_only)
    folder = place.folder
    assert folder is not None
    if read_only and not (folder / "ledger.sqlite").is_file():
        raise WarehouseMissing(
            f"there is no warehouse at {folder}: run the pipeline first, or set SPO_WAREHOUSE to where it is"
        )
    if not read_only:
        with storage_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
    refuse_network_folder(folder)
    return FolderLedger(folder, read_only=read_only)


def prepare(place: Place, ledger: Ledger, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the place's lake, made or migrated when needed; raises NewerSchema and WarehouseMissing."""
    version = stored_version(ledger)
    if version is not None and version > SCHEMA_VERSION:
        raise NewerSchema(
            f"the warehouse at {place} has schema version {version}, this project understands up to {SCHEMA_VERSION}: "
            f"update the project"
        )
    if read_only:
        if version is None:
            raise WarehouseMissing(f"the warehouse at {place} is empty: run the pipeline first")
        return lake.connect(place, read_only=True)
    if version == SCHEMA_VERSION and ledger.get("views") == lake.views_fingerprint():
        return lake.connect(place, read_only=False)
    return _create_or_migrate(place, ledger)


def stored_version(ledger: Ledger) -> int | None:
    """The schema version of the warehouse; None before it is made."""
    version = ledger.get("schema_version")
    return None if version is None else int(version)


def _create_or_migrate(place: Place, ledger: Ledger) -> duckdb.DuckDBPyConnection:
    with ledger.lock("commit", timeout_s=CREATION_TIMEOUT_S):
        connection = lake.connect(place, read_only=False)
        version = stored_version(ledger)
        if version is None:
            lake.create_everything(connection)
            if place.folder is not None:
                write_opening_file(place)
            ledger.put("warehouse_id", ledger.get("warehouse_id") or uuid.uuid4().hex[:12])
        elif version < SCHEMA_VERSION or ledger.get("views") != lake.views_fingerprint():
            migrate(connection, version)
        ledger.put("views", lake.views_fingerprint())
        ledger.put("schema_version", str(SCHEMA_VERSION))
    return connection


def write_opening_file(place: Place) -> None:
    """Write `warehouse.sql` into the warehouse's folder."""
    assert place.folder is not None
    target = place.folder / "warehouse.sql"
    with storage_errors(str(target)):
        target.with_suffix(".sql.tmp").unlink(missing_ok=True)
    write_durably(target, opening_file(place).encode())


def opening_file(place: Place) -> str:
    """SQL with which the stock shell opens the lake: `duckdb -init warehouse.sql`."""
    lines = [
        "-- Opens this warehouse, read-only, in any DuckDB: duckdb -init warehouse.sql",
        *(f"INSTALL {name}; LOAD {name};" for name in lake.extensions(place)),
        *(f"{setting};" for setting in lake.consistency(place)),
        f"{lake.attach(place, read_only=True)};",
        f"USE {lake.LAKE};",
    ]
    return "\n".join(lines) + "\n"
