"""A connection to the lake: DuckDB with DuckLake attached, from extensions that were installed as packages.

Nothing is downloaded: every extension is the signed file inside its wheel, and automatic installation is off.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import duckdb

from warehouse.errors import ExtensionMissing

LAKE: Final = "lake"
CATALOG: Final = "catalog.sqlite"
DATA: Final = "data"
_OPTIONS: Final = "META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 10000, DATA_INLINING_ROW_LIMIT 0"


def connect(folder: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection whose default catalog is the lake in `folder`."""
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    for name in ("sqlite_scanner", "ducklake"):
        connection.execute(f"LOAD '{extension_file(name)}'")
    connection.execute(attach_line(folder, read_only=read_only))
    connection.execute(f"USE {LAKE}")
    connection.execute("SET enable_progress_bar = false")
    return connection


def attach_line(folder: Path, *, read_only: bool) -> str:
    """The SQL that attaches the lake in `folder`; any DuckDB with the same extensions can run it."""
    options = "READ_ONLY" if read_only else _OPTIONS
    catalog, data = (str(folder / part).replace("'", "''") for part in (CATALOG, DATA))
    return f"ATTACH 'ducklake:sqlite:{catalog}' AS {LAKE} (DATA_PATH '{data}/', OVERRIDE_DATA_PATH true, {options})"


def extension_file(name: str) -> Path:
    """The extension's file inside its wheel. Raises ExtensionMissing."""
    package = f"duckdb_extension_{name}"
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        wheel = package.replace("_", "-")
        raise ExtensionMissing(f"the DuckDB extension {name!r} is not installed; run `pip install {wheel}==1.5.5`")
    found = sorted(Path(spec.submodule_search_locations[0]).rglob(f"{name}.duckdb_extension"))
    if not found:
        raise ExtensionMissing(f"the package {package} holds no file {name}.duckdb_extension")
    return found[0]
