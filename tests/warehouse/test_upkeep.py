from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

import warehouse
from tests.fork_server import process_of
from tests.refusals import refused
from tests.warehouse.conftest import everywhere, fill, trajectories
from warehouse import StorageFull, Warehouse, lake
from warehouse.location import parse_location
from warehouse.opening import open_ledger
from warehouse.upkeep import migrations
from warehouse.upkeep.background_compaction import BackgroundCompaction
from warehouse.upkeep.maintenance import compact, expire, live_files, merge_where_many, pinned_snapshots, sweep
from warehouse.upkeep.ownership import MARKER
from warehouse.upkeep.verification import verify

NOW = timedelta(0)


def listed(store: Warehouse) -> list[int]:
    """The snapshots that the catalog knows."""
    return [int(row["snapshot_id"]) for row in store.rows("SELECT snapshot_id FROM ducklake_snapshots('lake')")]


@everywhere
def test_compaction_keeps_every_row_its_snapshot_and_the_followers(store: Warehouse, location: str) -> None:
    snapshots = fill(store, 6)
    before = store.rows("SELECT * FROM trajectories ORDER BY trajectory_id")
    done = compact(location, many_files=2, keep_snapshots=NOW, keep_orphans=NOW)
    assert (done.files_before, done.files_after, done.merged_tables) == (6, 1, ("trajectories",))
    assert done.files_deleted == 6
    assert store.rows("SELECT * FROM trajectories ORDER BY trajectory_id") == before
    assert store.rows("SELECT count(*) AS n FROM trajectories", snapshot=snapshots[2]) == [{"n": 12}]
    rows, cursor = store.follow("trajectories", snapshots[2])
    assert [row["snapshot_id"] for row in rows] == [snapshot for snapshot in snapshots[3:] for _ in range(4)]
    assert store.follow("trajectories", cursor) == ([], cursor)
    assert verify(location).clean


def test_a_merge_that_commits_during_a_readers_transaction_hides_nothing(store: Warehouse, location: str) -> None:
    """Reading the catalog outside of the transaction once made whole tables empty while they were merged."""
    fill(store, 6)
    counts = "SELECT (SELECT count(*) FROM trajectories), (SELECT count(*) FROM run_events)"
    store.append("note", {"run_events": [{"kind": "note"}]}, run_id="run")
    reader = warehouse.open(location)
    reader.execute("BEGIN")
    assert reader.execute(counts).fetchall() == [(24, 1)]
    assert merge_where_many(store, 1) == {"trajectories"}
    assert [file.table for file in live_files(store)].count("trajectories") == 1
    assert reader.execute(counts).fetchall() == [(24, 1)]
    reader.execute("COMMIT")
    assert reader.execute(counts).fetchall() == [(24, 1)]


def test_a_merge_leaves_large_files_as_they_are(folder: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("large", {"trajectories": trajectories(3000, "l")}, run_id="run")
        (large,) = live_files(store)
        fill(store, 6)
        tiers = ((large.bytes, 2 * large.bytes), (2 * large.bytes, 4 * large.bytes))
        assert merge_where_many(store, 5, tiers=tiers) == {"trajectories"}
        left = {file.path: file.rows for file in live_files(store)}
        assert (left.pop(large.path), list(left.values())) == (3000, [24])
        assert merge_where_many(store, 1, tiers=tiers) == {"trajectories"}
        assert [file.rows for file in live_files(store)] == [3024]


def test_background_compaction_merges_beside_a_writer_and_says_what_prevents_it(folder: str) -> None:
    told: list[str] = []
    with Warehouse.open(folder) as store:
        with BackgroundCompaction(folder, tell=told.append, interval_s=0.05, many_files=3, most_snapshots=5):
            deadline = time.monotonic() + 120
            for number in itertools.count():
                store.append(f"{number}", {"trajectories": trajectories(2, f"{number}-")}, run_id="run")
                if number > 8 and len(live_files(store)) < number and len(listed(store)) < number:
                    break
                assert time.monotonic() < deadline, "nothing was merged or forgotten"
                time.sleep(0.05)  # so that a busy machine has time for the other thread
        assert store.value("SELECT count(DISTINCT trajectory_id) FROM trajectories") == 2 * (number + 1)
        assert told == []
        store.ledger.put("schema_version", "99")
        with BackgroundCompaction(folder, tell=told.append, interval_s=0.05):
            waited = time.monotonic() + 30
            while not told and time.monotonic() < waited:
                time.sleep(0.05)
    assert "small files or old snapshots were left as they are this time: the warehouse at" in told[0]


def test_of_many_snapshots_the_newest_stay_and_nothing_is_lost(store: Warehouse, location: str) -> None:
    snapshots = fill(store, 12)
    store.append("run", {"runs": [{"snapshot": snapshots[1]}]}, run_id="run")
    before = store.rows("SELECT * FROM trajectories ORDER BY trajectory_id")
    there = len(listed(store))
    assert expire(store, timedelta(days=1), 4, at_once=2) == there - 5
    assert listed(store) == [snapshots[1], *range(store.snapshot() - 3, store.snapshot() + 1)]
    assert compact(location, most_snapshots=4).snapshots_expired == 0
    assert store.rows("SELECT * FROM trajectories ORDER BY trajectory_id") == before
    assert store.rows("SELECT count(*) AS n FROM trajectories", snapshot=snapshots[5]) == [{"n": 24}]
    rows, _ = store.follow("trajectories", snapshots[3])
    assert [row["snapshot_id"] for row in rows] == [snapshot for snapshot in snapshots[4:] for _ in range(4)]
    assert verify(location).clean


def test_snapshots_that_a_run_refers_to_are_not_expired(store: Warehouse, location: str) -> None:
    snapshots = fill(store, 4)
    store.append("run", {"runs": [{"snapshot": snapshots[1]}]}, run_id="run")
    assert pinned_snapshots(store) == {snapshots[1]}
    assert compact(location, keep_snapshots=NOW).snapshots_expired > 0
    assert listed(store) == [snapshots[1], store.snapshot()]


def test_the_sweep_leaves_staged_and_live_files_and_young_orphans_alone(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 1)
        store.stage("waiting", {"trajectories": trajectories(1, "w")}, run_id="run")
        left = Path(store.location.data) / "stored" / "trajectories" / "left.0123456789ab.parquet"
        left.write_bytes(b"x")
        assert sweep(store, timedelta(days=1)) == []
        os.utime(left, (time.time() - 90_000,) * 2)
        os.utime(Path(store.location.data) / MARKER, (time.time() - 180_000,) * 2)
        assert sweep(store, timedelta(days=1)) == ["stored/trajectories/left.0123456789ab.parquet"]
        assert sweep(store, NOW) == []
        store.commit()
        assert store.value("SELECT count(*) FROM trajectories") == 5


def test_verify_names_a_missing_a_changed_and_a_truncated_file(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 4)
        paths = [
            Path(store.location.data) / file.path for file in sorted(live_files(store), key=lambda file: file.path)
        ]
    paths[0].unlink()
    content = bytearray(paths[1].read_bytes())
    content[len(content) // 2] ^= 1
    paths[1].write_bytes(bytes(content))
    paths[2].write_bytes(b"PAR1")
    found = sorted(finding.message for finding in verify(folder, repair=True).findings)
    assert len(found) == 3
    assert f"{paths[0].name} is missing: 4 rows of table 'trajectories' are lost" in found[0]
    assert f"{paths[1].name} differs from what was written" in found[1]
    assert f"{paths[2].name} has 4 bytes, the catalog says" in found[2]


def test_a_lost_opening_file_is_written_again_by_the_next_opening(folder: str) -> None:
    opening = Path(folder) / "warehouse.sql"
    Warehouse.open(folder).close()
    written = opening.read_text()
    for read_only in (True, False):
        opening.unlink()
        Warehouse.open(folder, read_only=read_only).close()
        assert opening.read_text() == written


def test_an_older_schema_is_migrated_once_and_keeps_its_rows(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 2)

    def add_colour(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"ALTER TABLE {lake.STORED}.trajectories ADD COLUMN IF NOT EXISTS colour VARCHAR")

    parsed = parse_location(folder)
    ledger = open_ledger(parsed, read_only=False)
    connection = lake.connect(parsed, read_only=False)
    migrations.migrate(connection, 1, to=2, steps={1: add_colour})
    migrations.migrate(connection, 1, to=2, steps={1: add_colour})
    connection.close()
    ledger.close()
    with Warehouse.open(folder) as store:
        fill(store, 3)
        assert store.value("SELECT count(*) FROM trajectories WHERE colour IS NULL") == 12
        assert "colour" in store.follow("trajectories", store.snapshot() - 1)[0][0]


def test_counts_that_version_3_stored_have_no_prompt_and_stay(folder: str) -> None:
    row = {"problem_id": "p", "reference": "r", "sampling": "s", "template_id": "t", "suite_hash": "x", "n": 5, "k": 2}
    with Warehouse.open(folder) as store:
        store.append("before", {"reference_counts": [row]}, run_id="run")
        store.connection.execute(f"ALTER TABLE {lake.STORED}.reference_counts DROP COLUMN prompt_id")
        store.ledger.put("schema_version", "3")
        store.ledger.put("views", "earlier")
    with Warehouse.open(folder) as store:
        store.append("after", {"reference_counts": [row | {"prompt_id": "q"}]}, run_id="run")
        found = store.rows("SELECT prompt_id, n, k FROM reference_counts ORDER BY arrival")
    assert found == [{"prompt_id": None, "n": 5, "k": 2}, {"prompt_id": "q", "n": 5, "k": 2}]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_warehouse_of_the_first_version_has_todays_tables_whoever_opens_it(folder: str, read_only: bool) -> None:
    with Warehouse.open(folder) as store:
        snapshots = fill(store, 2)
        for name in ("audits", "audit_findings", "suite_versions"):
            store.connection.execute(f"DROP TABLE {lake.STORED}.{name}")
        store.ledger.put("schema_version", "1")
        store.ledger.put("views", "earlier")
    with Warehouse.open(folder, read_only=read_only) as store:
        assert store.value("SELECT count(*) FROM suite_versions") == 0
        assert store.value("SELECT count(*) FROM survivors") == 0
        assert store.value("SELECT count(*) FROM trajectories") == 8
        assert store.rows("SELECT count(*) AS n FROM trajectories", snapshot=snapshots[0]) == [{"n": 4}]
    with Warehouse.open(folder) as store:
        store.append("after", {"suite_versions": []} | {"trajectories": trajectories(1, "new")}, run_id="run")
        assert store.value("SELECT count(*) FROM trajectories") == 9


def test_views_of_an_earlier_version_are_made_anew(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 1)
        store.connection.execute("CREATE OR REPLACE VIEW q0 AS SELECT 1 AS old")
        store.ledger.put("views", "earlier")
    with Warehouse.open(folder) as store:
        assert "s_lower" in store.arrow("SELECT * FROM q0").column_names
        assert store.value("SELECT count(*) FROM trajectories") == 4


def _fill_under_limit(folder: str, limit_bytes: int, report: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("small", {"trajectories": trajectories(1)}, run_id="run")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        rows = trajectories(300, "big", text=os.urandom(2000).hex())
        for number, row in enumerate(rows):
            row["text"] = os.urandom(2000).hex() + str(number)
        try:
            store.append("big", {"trajectories": rows}, run_id="run")
        except StorageFull as error:
            Path(report).write_text(str(error))


def test_a_full_disk_is_an_error_before_acknowledgement(folder: str, tmp_path: Path) -> None:
    report = tmp_path / "report"
    process = process_of(_fill_under_limit, folder, 100_000, str(report))
    process.start()
    process.join(60)
    assert "no space left for" in report.read_text()
    assert "the batch was not acknowledged: free space and repeat" in report.read_text()
    with Warehouse.open(folder) as store:
        assert store.committed(["small", "big"]) == {"small"}
        assert list(Path(store.location.data).rglob("*.tmp")) == []
        store.append("big", {"trajectories": trajectories(2, "x")}, run_id="run")
    assert verify(folder).clean


def _fill_disk(location: str, acknowledged: list[str]) -> None:
    with Warehouse.open(location) as store:
        for number in range(1000):
            rows = [row | {"text": os.urandom(2000).hex()} for row in trajectories(40, f"{number}-")]
            store.append(f"b{number}", {"trajectories": rows}, run_id="run")
            acknowledged.append(f"b{number}")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
@pytest.mark.parametrize("kilobytes", [6000, pytest.param(6032, marks=pytest.mark.slow), 6064])
def test_a_full_small_disk_loses_nothing_that_was_acknowledged(kilobytes: int, tmp_path: Path) -> None:
    """The space ends in a data file, in shared memory, in COMMIT."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True)
    if mounted.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    location = str(disk / "warehouse")
    acknowledged: list[str] = []
    try:
        with refused("StorageFull"):
            _fill_disk(location, acknowledged)
        subprocess.run(["mount", "-o", "remount,size=40m", str(disk)], check=True)
        with Warehouse.open(location) as store:
            assert store.committed(acknowledged) == set(acknowledged)
        assert verify(location).clean
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _lock_catalog(folder: str) -> subprocess.Popen[str]:
    """A program of somebody else that keeps the catalog locked until it is told to stop."""
    program = (
        f"import sqlite3, sys; c = sqlite3.connect({folder + '/catalog.sqlite'!r}, isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_catalog_that_another_program_locks_is_waited_for(folder: str) -> None:
    with Warehouse.open(folder) as store:
        with _lock_catalog(folder) as other:
            store.commit_timeout_s = 0.3
            with refused("CatalogLocked"):
                store.append("b", {"trajectories": trajectories(1)}, run_id="run")
            store.commit_timeout_s = 120.0
            threading.Timer(0.5, other.kill).start()
            store.append("c", {"trajectories": trajectories(1, "c")}, run_id="run")
        assert store.committed(["b", "c"]) == {"b", "c"}
        assert store.value("SELECT count(*) FROM trajectories") == 2


def test_a_lost_object_store_is_an_error_before_acknowledgement(tmp_path: Path, bucket: str) -> None:
    location = f"{tmp_path}/w?data={bucket}/lost"
    with Warehouse.open(location):
        pass
    with refused("StorageLost"):
        Warehouse.open(f"{tmp_path}/w?data=s3://no-such-bucket/lost")
    with Warehouse.open(location) as store:
        store.files._bucket = "no-such-bucket/lost/"
        with refused("StorageLost"):
            store.append("b", {"trajectories": trajectories(1)}, run_id="run")


def test_every_connection_reads_the_sqlite_catalog_in_one_transaction(folder: str) -> None:
    # otherwise a merge that commits during a query hides the rows it merged
    setting = "SELECT current_setting('sqlite_disable_multithreaded_scans')"
    with Warehouse.open(folder) as store:
        assert store.value(setting) is True
    assert warehouse.open(folder).execute(setting).fetchall() == [(True,)]
    assert "SET GLOBAL sqlite_disable_multithreaded_scans = true;" in (Path(folder) / "warehouse.sql").read_text()


def test_a_moved_warehouse_opens_where_it_is(folder: str, tmp_path: Path) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 2)
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    with Warehouse.open(moved) as store:
        fill(store, 3)
        assert store.value("SELECT sum(len(token_ids)) FROM trajectories") == 36
    assert warehouse.open(moved).execute("SELECT sum(len(token_ids)) FROM trajectories").fetchall() == [(36,)]
    assert verify(moved, repair=True).clean


@pytest.mark.parametrize("read_only", [True, False])
def test_a_copied_warehouse_opens_itself_and_not_the_original_once_it_was_opened(
    folder: str, tmp_path: Path, read_only: bool
) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 1)
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    assert f"'{folder}/data/'" in (copy / "warehouse.sql").read_text()
    Warehouse.open(copy, read_only=read_only).close()
    written = (copy / "warehouse.sql").read_text()
    assert folder not in written
    assert f"ATTACH 'ducklake:sqlite:{copy}/catalog.sqlite' AS lake (DATA_PATH '{copy}/data/'" in written
    assert verify(copy).findings == ()
    assert f"'{folder}/data/'" in (Path(folder) / "warehouse.sql").read_text()
