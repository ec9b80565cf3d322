"""Whose data folder it is: a marker in it names the one warehouse that may write there, and sweep there.

Every writing opening reads the marker, and writes it where there is none. What lay in the folder before its marker may
be anybody's (two warehouses could share a folder before there were markers), so the sweep leaves it alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

import duckdb

from warehouse import lake
from warehouse.commit.ledger import BatchLedger
from warehouse.errors import NotWritable, StorageFull, WarehouseError
from warehouse.files import FileStore
from warehouse.location import Location

MARKER: Final = "spo-warehouse.json"


@dataclass(frozen=True, slots=True)
class Marker:
    """What the marker says of the warehouse that the data belong to."""

    warehouse_id: str
    catalog: str
    """DuckLake's identity of the catalog: copies share it, and it is not lost with the ledger."""
    opened_as: str
    """The location that it was first opened at; for people."""


def claim(location: Location, connection: duckdb.DuckDBPyConnection, ledger: BatchLedger, files: FileStore) -> None:
    """Mark the data as this warehouse's unless they are marked so; raises WarehouseError when they are another's.

    A warehouse that has lost its ledger takes its id from the marker again.
    """
    own = str(ledger.get("warehouse_id"))
    marker = _read(location, files)
    if marker is None:
        marker = Marker(own, _catalog(location, connection), str(location))
        try:
            files.write(MARKER, (json.dumps(asdict(marker), indent=2) + "\n").encode())
        except (StorageFull, NotWritable):
            return  # a full disk must not keep anybody from making room; unmarked, nothing is swept
        marker = _read(location, files) or marker  # another warehouse may have come in between
    if marker.warehouse_id == own:
        return
    if marker.catalog != _catalog(location, connection):
        raise WarehouseError(_refusal(location, own, marker), code="DataOfAnother")
    ledger.put("warehouse_id", marker.warehouse_id)


def claimed_at(location: Location, ledger: BatchLedger, files: FileStore) -> float | None:
    """When the data were marked as this warehouse's (seconds since 1970); None when they are not."""
    marker = _read(location, files)
    if marker is None or marker.warehouse_id != ledger.get("warehouse_id"):
        return None
    return files.written_at(MARKER)


def _read(location: Location, files: FileStore) -> Marker | None:
    content = files.read_if_there(MARKER)
    if content is None:
        return None
    try:
        tree = json.loads(content)
        return Marker(str(tree["warehouse_id"]), str(tree["catalog"]), str(tree["opened_as"]))
    except (ValueError, TypeError, KeyError):
        raise WarehouseError(
            f"{location.data}{MARKER}, which says whose data these are, cannot be read: restore it, or delete it if no "
            "other warehouse has its data there",
            code="DamagedMarker",
        ) from None


def _catalog(location: Location, connection: duckdb.DuckDBPyConnection) -> str:
    asked = f"SELECT schema_uuid FROM {lake.METADATA}.{location.schema}.ducklake_schema WHERE schema_id = 0"
    row = connection.execute(asked).fetchone()
    return "" if row is None else str(row[0])


def _refusal(location: Location, own: str, marker: Marker) -> str:
    return (
        f"{location.data} holds the data of another warehouse: {MARKER} there names {marker.warehouse_id} (opened as "
        f"{marker.opened_as}), this one is {own} ({location}), and compaction of one would delete files of the other. "
        "Give this one a folder of its own with ?data=FOLDER (or ?data=s3://BUCKET/PREFIX); if it has files in the "
        f"shared folder already, first copy that folder there without its {MARKER}. If the other warehouse is gone "
        f"for good, delete {location.data}{MARKER} instead"
    )
