"""The trajectory warehouse: Parquet files under a DuckLake catalog, appended to by many, queried by anyone.

    with Warehouse.open("./.spo/warehouse") as store: ...       # a program of the pipeline
    connection = warehouse.open("./.spo/warehouse")             # a person with questions: read-only DuckDB
"""

from warehouse.errors import (
    ExtensionMissing,
    InvalidRows,
    NewerSchema,
    StorageFull,
    StorageLost,
    UnknownTable,
    UnsafeStorage,
    WarehouseBusy,
    WarehouseError,
    WarehouseMissing,
)
from warehouse.store import Warehouse
from warehouse.store import open_read_only as open

__all__ = [
    "ExtensionMissing",
    "InvalidRows",
    "NewerSchema",
    "StorageFull",
    "StorageLost",
    "UnknownTable",
    "UnsafeStorage",
    "Warehouse",
    "WarehouseBusy",
    "WarehouseError",
    "WarehouseMissing",
    "open",
]
