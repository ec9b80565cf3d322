"""Old identities are brought to today's rules, so that equal programs are equal again."""

import duckdb
import pytest

from tasks.problems.programs import normal_hash, program_hash
from tasks.problems.rehash import rehash


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
    assert rehash(store) == 6
    known = (program_hash("print(1)"), normal_hash("print(1)"))
    broken = (program_hash("print("), normal_hash("print("))
    assert hashes(store, "trajectories") == [known, known, known, broken, (None, None)]
    assert hashes(store, "eval_samples") == [known, known]


def test_running_it_twice_changes_nothing_more(store: duckdb.DuckDBPyConnection):
    rehash(store)
    before = hashes(store, "trajectories")
    rehash(store)
    assert hashes(store, "trajectories") == before
