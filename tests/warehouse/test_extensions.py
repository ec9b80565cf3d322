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


def test_an_extension_that_was_changed_is_refused(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tampered(tmp_path / "ducklake.duckdb_extension")
    monkeypatch.setattr(lake, "extension_file", lambda _: str(changed))
    with pytest.raises(duckdb.IOException, match="signature is either missing or invalid"):
        Warehouse.open(folder)


def test_an_extension_that_is_changed_after_it_was_checked_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "ducklake.duckdb_extension"
    shutil.copy(lake.extension_file("ducklake"), path)
    assert lake.checked_extension(str(path)) == str(path)
    tampered(path)
    with pytest.raises(duckdb.IOException, match="signature is either missing or invalid"):
        lake.checked_extension(str(path))


def test_an_open_warehouse_loads_no_unsigned_extension(folder: str, tmp_path: Path) -> None:
    other = tampered(tmp_path / "other.duckdb_extension")
    with Warehouse.open(folder) as store:
        people = warehouse.open(folder)
        for run in (store.rows, people.execute):
            with pytest.raises(duckdb.Error, match="signature is either missing or invalid"):
                run(f"LOAD '{other}'")
            with pytest.raises(duckdb.Error, match="Cannot change allow_unsigned_extensions"):
                run("SET allow_unsigned_extensions = true")
