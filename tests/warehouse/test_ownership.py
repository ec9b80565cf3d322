"""Whose the data are: what compaction may delete, and which warehouse may write where."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from tests.refusals import refused
from tests.warehouse.conftest import KINDS, OFTEN, everywhere, locate, trajectories
from warehouse import Warehouse, lake
from warehouse.errors import StorageFull
from warehouse.files import FileStore
from warehouse.location import parse_location
from warehouse.upkeep import maintenance
from warehouse.upkeep.maintenance import compact, live_files, orphans, sweep
from warehouse.upkeep.ownership import MARKER
from warehouse.upkeep.verification import verify

NOW = timedelta(0)
OLD = timedelta(days=2).total_seconds()


def age(folder: Path, seconds: float) -> None:
    """Let every file below `folder` be that much older."""
    for path in folder.rglob("*"):
        if path.is_file():
            written = path.stat().st_mtime - seconds
            os.utime(path, (written, written))


@pytest.fixture(params=OFTEN)
def sharing(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Where two warehouses may be made that have the same data folder, on every kind of storage in turn."""
    locations = [locate(request, request.param, tmp_path / name, make=False) for name in ("one", "two")]
    data = parse_location(locations[0]).data
    one, two = (f"{text.rpartition('data=')[0] or text + '?'}data={data}" for text in locations)
    return one, two


def fill(location: str, prefix: str) -> int:
    """Append three rows; the number of rows then."""
    with Warehouse.open(location) as store:
        store.append(prefix, {"trajectories": trajectories(3, prefix)}, run_id="run")
        return int(store.value("SELECT count(*) FROM trajectories"))


def unmark(location: str) -> None:
    """Let the data be as before there were markers."""
    with Warehouse.open(location, read_only=True) as store:
        store.files.delete(MARKER)


def test_where_no_marker_can_be_written_the_warehouse_still_opens_and_nothing_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk whoever makes room must be able to open it; the next opening marks the folder."""
    location = str(tmp_path / "warehouse")
    fill(location, "a")
    unmark(location)

    def full(*_: object, **__: object) -> None:
        raise StorageFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "write", full)
        with Warehouse.open(location) as store:
            left = Path(store.location.data) / "stored/trajectories/left.0123456789ab.parquet"
            left.parent.mkdir(parents=True, exist_ok=True)
            left.write_bytes(b"x")
            assert orphans(store, NOW) == []
            assert store.files.read_if_there(MARKER) is None
    with Warehouse.open(location) as store:
        assert store.files.read_if_there(MARKER) is not None


@everywhere
def test_compaction_deletes_only_files_that_the_warehouse_itself_can_have_written(location: str) -> None:
    own = "stored/trajectories/left.0123456789ab.parquet"
    others = [
        "datasets/mine.jsonl",
        "mine.parquet",
        "stored/notes.txt",
        "stored/trajectories/mine.parquet",
        "stored/trajectories/deeper/left.0123456789ab.parquet",
        "stored/paintings/left.0123456789ab.parquet",
    ]
    with Warehouse.open(location) as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        time.sleep(1.1 if "s3" in location else 0.05)  # so that the files are younger than the marker
        for name in [own, *others]:
            store.files.write(name, b"x")
        time.sleep(0.05)
        assert compact(location, keep_orphans=NOW).files_deleted == 1
        assert [name for name in others if store.files.size(name) is None] == []
        assert store.files.size(own) is None
    assert verify(location).clean


def test_files_that_crashes_and_merges_left_are_swept(folder: str) -> None:
    with Warehouse.open(folder) as store:
        left = Path(store.location.data) / "stored" / "trajectories"
        left.mkdir(parents=True)
        names = [
            "batch.0123456789ab.parquet.01234567.tmp",
            "ducklake-01a20877-c923-7952-8e8d-da192d6f24d9-delete.parquet",
            "ducklake-01a20877-c923-7952-8e8d-da192d6f24d9.parquet",
        ]
        for name in names:
            (left / name).write_bytes(b"x")
        age(Path(store.location.data), OLD)
        assert sweep(store, timedelta(days=1)) == [f"stored/trajectories/{name}" for name in names]


@pytest.mark.parametrize("sharing", KINDS, indirect=True)
def test_a_second_warehouse_is_refused_in_the_data_folder_of_another(sharing: tuple[str, str]) -> None:
    one, two = sharing
    fill(one, "one")
    data = parse_location(one).data
    with refused("DataOfAnother", data):
        fill(two, "two")
    assert fill(one, "more") == 6


def test_of_two_unmarked_warehouses_in_one_folder_the_first_to_open_keeps_it_and_both_keep_their_files(
    sharing: tuple[str, str],
) -> None:
    one, two = sharing
    for location in (one, two):
        fill(location, location[-60:])
        unmark(location)
    Warehouse.open(one).close()
    with refused("DataOfAnother"):
        Warehouse.open(two)
    assert compact(one, keep_orphans=NOW).files_deleted == 0
    with Warehouse.open(two, read_only=True) as store:
        assert store.value("SELECT sum(len(token_ids)) FROM trajectories") == 9
        assert orphans(store, NOW) == []


def test_warehouses_that_shared_a_folder_are_separated_as_the_refusal_says(tmp_path: Path) -> None:
    shared, apart = tmp_path / "shared", tmp_path / "apart"
    one, two = (f"{tmp_path}/{name}?data={shared}" for name in ("one", "two"))
    for location in (one, two):
        fill(location, location[-40:])
        unmark(location)
    Warehouse.open(one).close()
    shutil.copytree(shared, apart, ignore=shutil.ignore_patterns(MARKER))
    moved = f"{tmp_path}/two?data={apart}"
    assert fill(moved, "more") == 6
    for location in (one, moved):
        compact(location, many_files=1, keep_snapshots=NOW, keep_orphans=NOW)
        assert verify(location).clean


def test_an_old_warehouse_is_marked_when_it_is_next_opened_for_writing(location: str) -> None:
    fill(location, "b")
    unmark(location)
    with Warehouse.open(location, read_only=True) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 3
        assert store.files.size(MARKER) is None
    with Warehouse.open(location) as store:
        assert store.files.size(MARKER)


def test_a_copied_catalog_goes_on_with_the_same_data(tmp_path: Path) -> None:
    fill(f"{tmp_path}/original?data={tmp_path}/data", "b")
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert fill(f"{tmp_path}/copy?data={tmp_path}/data", "c") == 6


def test_a_warehouse_without_its_ledger_takes_its_id_from_the_marker_again(folder: str) -> None:
    fill(folder, "b")
    with Warehouse.open(folder) as store:
        known = store.ledger.get("warehouse_id")
    for path in Path(folder).glob("ledger.sqlite*"):
        path.unlink()
    assert fill(folder, "c") == 6
    with Warehouse.open(folder) as store:
        assert store.ledger.get("warehouse_id") == known


def test_a_damaged_marker_is_refused_by_name(folder: str) -> None:
    marker = Path(folder) / "data" / MARKER
    marker.write_text("[]")
    with refused("DamagedMarker", marker):
        Warehouse.open(folder)


def test_deleted_and_replaced_rows_stay_so_after_a_sweep(folder: str) -> None:
    """Files that list deleted rows, and those that an older snapshot reads, were swept as orphans once."""

    def change(connection: duckdb.DuckDBPyConnection, schema: str) -> int:
        connection.execute(f"DELETE FROM {schema}.trajectories WHERE trajectory_id = 't0'")
        connection.execute(f"UPDATE {schema}.run_events SET message = 'after'")
        return 2

    with Warehouse.open(folder) as store:
        tables = {"trajectories": trajectories(3), "run_events": [{"kind": "note", "message": "before"}]}
        before = store.append("b", tables, run_id="run")
    maintenance.rewrite(folder, change)
    age(Path(folder) / "data", OLD)
    assert compact(folder).files_deleted == 0
    with Warehouse.open(folder) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 2
        assert store.rows("SELECT message FROM run_events") == [{"message": "after"}]
        asked = f"SELECT message FROM {lake.STORED}.run_events AT (VERSION => {before})"
        assert store.rows(asked) == [{"message": "before"}]
        assert len(live_files(store)) == 2
