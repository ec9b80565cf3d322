"""The warehouse: every sample kept, queryable while it grows, never corrupted.

`Warehouse.open()` for programs that append, read and follow; `warehouse.open()` for people with questions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.errors import (
    BadQuestion,
    ExtensionMissing,
    InvalidRows,
    NewerSchema,
    NotWritable,
    StillReading,
    StorageFull,
    StorageLost,
    TookTooLong,
    UnknownQuery,
    UnknownSnapshot,
    UnknownTable,
    UnsafeStorage,
    WarehouseBusy,
    WarehouseError,
    WarehouseMissing,
)
from warehouse.schema import SCHEMA_VERSION, TABLES
from warehouse.store import Warehouse

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "SCHEMA_VERSION",
    "TABLES",
    "BadQuestion",
    "ExtensionMissing",
    "InvalidRows",
    "NewerSchema",
    "NotWritable",
    "StillReading",
    "StorageFull",
    "StorageLost",
    "TookTooLong",
    "UnknownQuery",
    "UnknownSnapshot",
    "UnknownTable",
    "UnsafeStorage",
    "Warehouse",
    "WarehouseBusy",
    "WarehouseError",
    "WarehouseMissing",
    "open",
]


def open(path: str | Path | None = None) -> duckdb.DuckDBPyConnection:
    """A read-only DuckDB connection to the warehouse with its tables and views in use; for people.

    `SET VARIABLE at_snapshot = N` makes every table and view show the state at snapshot N.
    """
    from warehouse.location import parse_location
    from warehouse.opening import open_ledger, prepare

    location = parse_location(path)
    ledger = open_ledger(location, read_only=True)
    try:
        return prepare(location, ledger, read_only=True)
    finally:
        ledger.close()
