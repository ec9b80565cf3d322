"""Old identities are brought to today's rules, so that equal programs are equal again."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tasks.problems.rehash import rehash
from tasks.programs.extraction import normal_hash, program_hash
from tests.warehouse.conftest import trajectory
from warehouse import Warehouse
from warehouse.upkeep import maintenance, verification


@pytest.fixture
def store() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for table in ("trajectories", "eval_samples"):
        connection.execute(f"CREATE TABLE {table} (id INT, text VARCHAR, program_hash VARCHAR, normal_hash VARCHAR)")
    rows = [
        (1, "print( 1 )  # one", "old under 3.11", "old under 3.11"),
        (2, "print(1)", "old under 3.13", "old under 3.13"),
        (3, "Here:\n```python\nprint(1)\n```\n", "old", "old"),
        (4, "print(", "of its text", "of its text"),
        (5, None, None, None),
    ]
    connection.executemany("INSERT INTO trajectories VALUES (?, ?, ?, ?)", rows)
    connection.executemany("INSERT INTO eval_samples VALUES (?, ?, ?, ?)", rows[:2])
    return connection


def hashes(store: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    return store.execute(f"SELECT program_hash, normal_hash FROM {table} ORDER BY id").fetchall()


def test_equal_programs_get_equal_hashes_whenever_they_were_stored(store: duckdb.DuckDBPyConnection):
    assert rehash(store, "main") == 6
    known = (program_hash("print(1)"), normal_hash("print(1)"))
    broken = (program_hash("print("), normal_hash("print("))
    assert hashes(store, "trajectories") == [known, known, known, broken, (None, None)]
    assert hashes(store, "eval_samples") == [known, known]


def test_running_it_twice_changes_nothing_more(store: duckdb.DuckDBPyConnection):
    rehash(store, "main")
    before = hashes(store, "trajectories")
    rehash(store, "main")
    assert hashes(store, "trajectories") == before


def test_a_warehouse_is_upgraded_as_a_whole_and_stays_sound(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path) as store:
        for name, text in (("a", "print( 1 )  # one"), ("b", "print(1)"), ("c", None)):
            row = trajectory(name, text=text, program_hash=None if text is None else f"old {name}", normal_hash="old")
            store.append(name, {"trajectories": [row]}, run_id="r")
    assert maintenance.rewrite(tmp_path, rehash) == 2
    with Warehouse.open(tmp_path) as store:
        store.append("later", {"trajectories": [trajectory("d")]}, run_id="r")
        found = store.rows("SELECT program_hash FROM trajectories WHERE text IS NOT NULL AND batch_id IN ('a', 'b')")
    assert [row["program_hash"] for row in found] == [program_hash("print(1)")] * 2
    maintenance.compact(tmp_path, many_files=0)
    assert verification.verify(tmp_path).clean


def test_a_rewrite_that_fails_changes_nothing(tmp_path: Path) -> None:
    def fail(connection: duckdb.DuckDBPyConnection, schema: str) -> int:
        connection.execute(f"UPDATE {schema}.trajectories SET program_hash = 'spoilt'")
        raise OSError("the machine went away")

    with Warehouse.open(tmp_path) as store:
        store.append("a", {"trajectories": [trajectory("a", program_hash="kept")]}, run_id="r")
    with pytest.raises(OSError, match="went away"):
        maintenance.rewrite(tmp_path, fail)
    with Warehouse.open(tmp_path, read_only=True) as store:
        assert store.value("SELECT program_hash FROM trajectories") == "kept"
