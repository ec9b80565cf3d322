"""What `export` writes, `import_file` reads back: for every table, in every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.refusals import refused
from tests.warehouse.conftest import broken_off_at
from warehouse import TABLES, Warehouse
from warehouse.exchange.exporting import export
from warehouse.exchange.importing_files import import_file
from warehouse.schema import Column
from warehouse.upkeep.verification import verify

VALUES: dict[str, list[Any]] = {
    "VARCHAR": ["", 'größer, "quoted"\nsecond line\t\\', "None"],
    "BIGINT": [0, -1, 2**62],
    "INTEGER": [0, 1, -(2**31)],
    "DOUBLE": [0.1, -1e300, 5e-324],
    "BOOLEAN": [True, False, True],
    "INTEGER[]": [[], [1, 2, 3], [0, 49_151, 5]],
    "FLOAT[]": [[], [-0.5, -1.25, None], [-0.1, -3e-38, -1e30]],
    "VARCHAR[]": [[], ["a", "b\n", "ß"], ["", "x", "y"]],
    'STRUCT("input" VARCHAR, "output" VARCHAR)[]': [
        [],
        [{"input": "1\n", "output": "2"}],
        [{"input": "", "output": None}] * 2,
    ],
}
"""Three values of each type, the difficult ones; lists are equally long in each row."""
STAMPED_ANEW = "batch_id, schema_version, snapshot_id, arrival"


def value(column: Column, number: int) -> Any:
    if column.name == "reward":
        return (0.0, -1.0, -0.1)[number]
    if column.choices:
        return column.choices[number % len(column.choices)]
    return VALUES[column.type][number]


def rows_of(table: str) -> list[dict[str, Any]]:
    """Three full rows and one that leaves out what may be null."""
    columns = TABLES[table].columns
    full = [{column.name: value(column, number) for column in columns} for number in range(3)]
    return [*full, {column.name: value(column, 1) for column in columns if column.required}]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with rows of two runs in every table."""
    location = str(tmp_path_factory.mktemp("round trip") / "warehouse")
    with Warehouse.open(location) as store:
        for run in ("one", "two"):
            store.stage(run, {table: rows_of(table) for table in TABLES}, run_id=run)
        store.commit()
    return location


FORMS = {"parquet": "{}.parquet", "jsonl": "{}.jsonl", "hf": "{}/train-00000-of-00001.parquet"}
"""Name of a table's file by form of the export."""


@pytest.mark.parametrize("form", FORMS)
def test_every_exported_table_is_imported_with_every_value_and_the_runs_of_its_rows(
    full: str, tmp_path: Path, form: Literal["parquet", "jsonl", "hf"]
) -> None:
    tables = list(TABLES) if form != "hf" else ["trajectories", "problems"]  # its files are those of Parquet
    export(full, tmp_path / "files", tables, form=form, hidden_tests=True)
    target = str(tmp_path / "warehouse")
    files = {table: tmp_path / "files" / FORMS[form].format(table) for table in tables}
    for table, file in files.items():
        assert import_file(target, file, table).rows == {table: 8}
    assert import_file(target, files["trajectories"], "trajectories").rows == {"trajectories": 0}
    with Warehouse.open(full, read_only=True) as source, Warehouse.open(target, read_only=True) as found:
        for table in tables:
            asked = f'SELECT * EXCLUDE ({STAMPED_ANEW}) FROM "{table}" ORDER BY arrival'
            before = source.rows(asked)
            assert len(before) == 8
            assert found.rows(asked) == before, table
    assert verify(target).clean


def test_an_import_that_was_broken_off_is_finished_by_repeating_it(full: str, tmp_path: Path) -> None:
    export(full, tmp_path / "files", "trajectories")
    source, target = tmp_path / "files" / "trajectories.parquet", str(tmp_path / "warehouse")
    with broken_off_at("intent-renamed"):
        import_file(target, source, "trajectories", rows_per_batch=3)
    done = import_file(target, source, "trajectories", rows_per_batch=3)
    assert (done.rows, done.batches, done.skipped) == ({"trajectories": 5}, 2, 1)
    with Warehouse.open(target) as store:
        assert store.value("SELECT count(DISTINCT arrival) FROM trajectories") == 8


def test_imported_rows_belong_to_a_run_and_take_part_in_the_views(full: str, tmp_path: Path) -> None:
    """To the run that is named, else to that of the file, else to the run `import`."""
    export(full, tmp_path / "files", "trajectories")
    export(full, tmp_path / "runless", "SELECT * EXCLUDE (run_id) FROM trajectories", form="jsonl")
    files = tmp_path / "files" / "trajectories.parquet", tmp_path / "runless" / "query.jsonl"
    for number, (file, run_id, runs) in enumerate(
        [(files[0], None, {"one", "two"}), (files[0], "mine", {"mine"}), (files[1], None, {"import"})]
    ):
        target = str(tmp_path / f"warehouse {number}")
        import_file(target, file, "trajectories", run_id=run_id)
        with Warehouse.open(target) as store:
            assert {row["run_id"] for row in store.rows("SELECT DISTINCT run_id FROM trajectories")} == runs
            scored = "FROM trajectories WHERE reward IS NOT NULL"
            assert store.value(f"SELECT count(*) {scored}") == 6
            different = store.value(f"SELECT count(DISTINCT (trajectory_id, coalesce(suite_hash, ''))) {scored}")
            assert store.value("SELECT CAST(sum(n) AS BIGINT) FROM pass_rate_by_problem") == different > 1


@pytest.mark.parametrize("time", ["yesterday", 5])
def test_a_row_whose_time_is_none_is_refused_by_field(folder: str, tmp_path: Path, time: object) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"kind": "note", "created_at": time}) + "\n")
    with refused("NoTime", "row 0", "'created_at'"):
        import_file(folder, tmp_path / "rows.jsonl", "run_events")
