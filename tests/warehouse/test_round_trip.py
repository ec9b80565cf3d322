"""What `export` writes, `import_file` reads back: for every table, in every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.conftest import trajectories
from warehouse import TABLES, InvalidRows, Warehouse
from warehouse.exporting import export
from warehouse.importing_files import import_file
from warehouse.schema import Column
from warehouse.verification import verify

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


def stored(location: str, table: str) -> list[dict[str, Any]]:
    with Warehouse.open(location, read_only=True) as store:
        return store.rows(f'SELECT * EXCLUDE ({STAMPED_ANEW}) FROM "{table}" ORDER BY arrival')


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse with rows of two runs in every table."""
    location = str(tmp_path_factory.mktemp("round trip") / "warehouse")
    with Warehouse.open(location) as store:
        for run in ("one", "two"):
            store.stage(run, {table: rows_of(table) for table in TABLES}, run_id=run)
        store.commit()
    return location


@pytest.fixture(scope="module", params=["parquet", "jsonl", "hf"])
def exchanged(request: pytest.FixtureRequest, full: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A warehouse into which every exported table was imported, twice."""
    folder = tmp_path_factory.mktemp("exported")
    export(full, folder / "files", list(TABLES), form=request.param, hidden_tests=True)
    target = str(folder / "warehouse")
    for table in TABLES:
        name = f"{table}/train-00000-of-00001.parquet" if request.param == "hf" else f"{table}.{request.param}"
        assert import_file(target, folder / "files" / name, table).rows == {table: 8}
        assert import_file(target, folder / "files" / name, table).rows == {table: 0}
    return target


@pytest.mark.parametrize("table", TABLES)
def test_an_exported_table_is_imported_with_every_value_and_the_runs_of_its_rows(
    exchanged: str, full: str, table: str
) -> None:
    before = stored(full, table)
    assert len(before) == 8
    assert stored(exchanged, table) == before


def test_a_warehouse_of_imported_files_is_whole(exchanged: str) -> None:
    assert verify(exchanged).clean


def test_rows_are_given_to_a_run_when_it_is_named(full: str, tmp_path: Path) -> None:
    export(full, tmp_path / "files", "trajectories")
    target = str(tmp_path / "warehouse")
    import_file(target, tmp_path / "files" / "trajectories.parquet", "trajectories", run_id="mine")
    with Warehouse.open(target) as store:
        assert store.rows("SELECT DISTINCT run_id FROM trajectories") == [{"run_id": "mine"}]


def test_rows_without_a_run_belong_to_the_run_import(full: str, tmp_path: Path) -> None:
    with Warehouse.open(full, read_only=True) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 8
    export(full, tmp_path / "files", "SELECT * EXCLUDE (run_id) FROM trajectories", form="jsonl")
    target = str(tmp_path / "warehouse")
    import_file(target, tmp_path / "files" / "query.jsonl", "trajectories")
    with Warehouse.open(target) as store:
        assert store.rows("SELECT DISTINCT run_id FROM trajectories") == [{"run_id": "import"}]


def test_an_import_that_was_broken_off_is_finished_by_repeating_it(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(full, tmp_path / "files", "trajectories")
    source, target = tmp_path / "files" / "trajectories.parquet", str(tmp_path / "warehouse")
    monkeypatch.setattr("warehouse.importing_files._ROWS_PER_BATCH", 3)
    whole = Warehouse.stage_parts
    monkeypatch.setattr(Warehouse, "stage_parts", lambda *given, **named: whole(*given, **named) or broken_off())
    with pytest.raises(KeyboardInterrupt):
        import_file(target, source, "trajectories")
    monkeypatch.setattr(Warehouse, "stage_parts", whole)
    done = import_file(target, source, "trajectories")
    assert (done.rows, done.batches, done.skipped) == ({"trajectories": 5}, 2, 1)
    assert stored(target, "trajectories") == stored(full, "trajectories")


def broken_off() -> None:
    raise KeyboardInterrupt


def test_imported_trajectories_take_part_in_the_views(full: str, tmp_path: Path) -> None:
    export(full, tmp_path / "files", "trajectories")
    target = str(tmp_path / "warehouse")
    with Warehouse.open(target) as store:
        store.append("own", {"trajectories": trajectories(1, "own")}, run_id="own")
    import_file(target, tmp_path / "files" / "trajectories.parquet", "trajectories")
    with Warehouse.open(target) as store:
        scored = "FROM trajectories WHERE reward IS NOT NULL"
        assert store.value(f"SELECT count(*) {scored}") == 7
        different = store.value(f"SELECT count(DISTINCT (trajectory_id, coalesce(suite_hash, ''))) {scored}")
        assert store.value("SELECT CAST(sum(n) AS BIGINT) FROM pass_rate_by_problem") == different > 1


@pytest.mark.parametrize("time", ["yesterday", 5])
def test_a_row_whose_time_is_none_is_refused_by_file_and_row(folder: str, tmp_path: Path, time: object) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"kind": "note", "created_at": time}) + "\n")
    with pytest.raises(InvalidRows, match=r"rows\.jsonl: row 0: field 'created_at' holds .* which is no time"):
        import_file(folder, tmp_path / "rows.jsonl", "run_events")
