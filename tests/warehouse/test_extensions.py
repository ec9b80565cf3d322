"""DuckDB's extensions come from installed wheels, are signed by DuckDB, and nothing else is loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

import warehouse
from warehouse import Warehouse, lake


def tampered(path: Path) -> Path:
    """`path`, a new file: a signed extension with one byte changed, which keeps its signature."""
    content = bytearray(Path(lake.extension_file("ducklake")).read_bytes())
    content[len(content) // 2] ^= 1
    new = path.with_suffix(".new")
    new.write_bytes(bytes(content))
    new.replace(path)  # a file that is loaded must not be written over
    return path


def test_a_changed_extension_is_refused_even_after_it_was_checked_and_by_an_open_warehouse(
    folder: str, tmp_path: Path
) -> None:
    path = tmp_path / "ducklake.duckdb_extension"
    shutil.copy(lake.extension_file("ducklake"), path)
    assert lake.checked_extension(str(path)) == str(path)
    tampered(path)
    with pytest.raises(duckdb.IOException):
        lake.checked_extension(str(path))
    other = tampered(tmp_path / "other.duckdb_extension")  # one of that name is loaded
    with Warehouse.open(folder) as store:
        people = warehouse.open(folder)
        for run in (store.rows, people.execute):
            for statement in (f"LOAD '{other}'", "SET allow_unsigned_extensions = true"):
                with pytest.raises(duckdb.Error):
                    run(statement)
