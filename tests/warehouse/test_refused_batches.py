"""Batches that were refused, and a ledger that was lost: what is named, what comes back, what is stored once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.refusals import refused
from tests.warehouse.conftest import everywhere, fill, trajectories
from warehouse import Warehouse, lake
from warehouse.upkeep.maintenance import compact
from warehouse.upkeep.verification import verify

NOW = timedelta(0)


def test_verify_rebuilds_a_lost_ledger(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 3)
    with closing(sqlite3.connect(Path(folder) / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("DELETE FROM batches")
    broken = verify(folder)
    assert not broken.clean
    assert "'b0'" in broken.findings[0].message
    repaired = verify(folder, repair=True)
    assert {finding.level for finding in repaired.findings} == {"repaired"}
    assert verify(folder).findings == ()
    with Warehouse.open(folder) as store:
        assert store.committed(["b0", "b1", "b2"]) == {"b0", "b1", "b2"}


def test_what_is_repeated_after_the_ledger_was_lost_is_not_stored_twice(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 3)
        before = store.ledger.snapshots(["b0", "b1", "b2"])
    assert compact(folder, keep_snapshots=NOW).snapshots_expired > 0
    for path in Path(folder).glob("ledger.sqlite*"):
        path.unlink()
    with Warehouse.open(folder) as store:
        rows = store.value("SELECT count(*) FROM trajectories")
        fill(store, 3)
        assert store.value("SELECT count(*) FROM trajectories") == rows
        assert store.ledger.snapshots(["b0", "b1", "b2"]) == before
    assert verify(folder).clean


def lose_ledger(folder: str) -> None:
    for path in Path(folder).glob("ledger.sqlite*"):
        path.unlink()


@pytest.fixture
def restored(folder: str, tmp_path: Path) -> Callable[[], None]:
    """Brings the ledger back that knew batch `b0` alone, in a warehouse that has had three batches since."""
    kept = tmp_path / "backup"
    kept.mkdir()
    with Warehouse.open(folder) as store:
        fill(store, 1)
    for path in Path(folder).glob("ledger.sqlite*"):
        shutil.copy(path, kept)
    with Warehouse.open(folder) as store:
        fill(store, 4)

    def restore() -> None:
        lose_ledger(folder)
        for path in kept.iterdir():
            shutil.copy(path, folder)

    return restore


def test_what_is_repeated_after_an_older_ledger_was_restored_is_not_stored_twice(
    folder: str, restored: Callable[[], None]
) -> None:
    with Warehouse.open(folder) as store:
        before = store.ledger.snapshots(["b0", "b1", "b2", "b3"])
    assert compact(folder, keep_snapshots=NOW).snapshots_expired > 0
    restored()
    with Warehouse.open(folder) as store:
        assert store.committed(before) == {"b0"}
        store.append("new", {"trajectories": trajectories(1, "new")}, run_id="run")
        assert store.ledger.snapshots(before) == before
        fill(store, 4)
        assert store.value("SELECT count(*) FROM trajectories") == 17
    assert verify(folder).clean


@pytest.mark.parametrize("lost", [True, False])
def test_a_batch_without_rows_does_not_hide_that_the_ledger_is_behind(
    folder: str, restored: Callable[[], None], lost: bool
) -> None:
    lose_ledger(folder) if lost else restored()
    with Warehouse.open(folder) as store:
        newest = store.snapshot()
        assert store.append("empty", {"trajectories": []}, run_id="run") == newest == store.snapshot()
        fill(store, 4)
        assert store.value("SELECT count(*) FROM trajectories") == 16
    assert verify(folder).clean


def test_a_lost_ledger_of_an_older_schema_is_rebuilt_and_the_tables_brought_up_to_date(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 2)
        for column in ("outcomes", "output"):
            store.connection.execute(f"ALTER TABLE {lake.STORED}.verdicts DROP COLUMN {column}")
    for path in Path(folder).glob("ledger.sqlite*"):
        path.unlink()
    with Warehouse.open(folder) as store:
        assert store.value("SELECT count(outcomes) + count(output) FROM verdicts") == 0
        fill(store, 3)
        assert store.value("SELECT count(*) FROM trajectories") == 12


def test_what_the_ledger_knows_beyond_a_catalog_from_a_backup_is_done_again(folder: str, tmp_path: Path) -> None:
    catalog = Path(folder) / "catalog.sqlite"
    with Warehouse.open(folder) as store:
        fill(store, 1)
    shutil.copy(catalog, tmp_path)
    with Warehouse.open(folder) as store:
        fill(store, 3)
    shutil.copy(tmp_path / catalog.name, catalog)
    with Warehouse.open(folder) as store:
        assert store.committed(["b0", "b1", "b2"]) == {"b0"}
        fill(store, 3)
        assert store.value("SELECT count(*) FROM trajectories") == 12
    assert verify(folder).clean


def test_another_attempt_of_a_batch_whose_first_one_is_refused_is_stored(folder: str) -> None:
    with Warehouse.open(folder) as dead, Warehouse.open(folder) as again:
        dead.stage("unit", {"trajectories": trajectories(1)}, run_id="run")
        shutil.rmtree(Path(dead.location.data) / "stored" / "trajectories")
        again.append("unit", {"trajectories": trajectories(1)}, run_id="run")
        assert again.value("SELECT count(*) FROM trajectories") == 1
        assert again.committed(["unit"]) == {"unit"}
        assert again.ledger.intents() == []


def test_an_intent_whose_data_are_gone_is_refused_without_blocking_others(folder: str) -> None:
    with Warehouse.open(folder) as one, Warehouse.open(folder) as two:
        one.stage("lost", {"trajectories": trajectories(1)}, run_id="run")
        shutil.rmtree(Path(one.location.data) / "stored" / "trajectories")
        two.stage("whole", {"run_events": [{"kind": "note"}]}, run_id="run")
        two.commit()
        assert two.committed(["whole", "lost"]) == {"whole"}
        with refused("StorageLost", "'lost'"):
            one.commit()


def test_an_intent_whose_file_was_damaged_at_its_size_is_refused_without_blocking_others(folder: str) -> None:
    with Warehouse.open(folder) as one, Warehouse.open(folder) as two:
        one.stage("damaged", {"trajectories": trajectories(1)}, run_id="run")
        (path,) = (Path(one.location.data) / "stored" / "trajectories").rglob("*.parquet")
        path.write_bytes(path.read_bytes()[:-4] + b"NOPE")
        two.stage("whole", {"run_events": [{"kind": "note"}]}, run_id="run")
        two.commit()
        assert two.committed(["whole", "damaged"]) == {"whole"}
        with refused("StorageLost", "'damaged'"):
            one.commit()


def test_refused_batches_are_named_until_another_attempt_is_stored(location: str) -> None:
    with Warehouse.open(location) as store, Warehouse.open(location) as another:
        store.stage("refused", {"trajectories": trajectories(1)}, run_id="run")
        (intent,) = store.ledger.intents()
        store.ledger.refuse_intent(intent, "batch 'refused' cannot be committed")
        (found,) = verify(location).findings
        assert found.level == "note"
        assert "'refused'" in found.message
        another.append("refused", {"trajectories": trajectories(1)}, run_id="run")
        assert verify(location).findings == ()


@everywhere
def test_a_refused_batch_whose_data_are_back_is_committed_by_a_repair(location: str) -> None:
    with Warehouse.open(location) as one, Warehouse.open(location) as store:
        one.stage("refused", {"trajectories": trajectories(2)}, run_id="run")
        (intent,) = one.ledger.intents()
        (file,) = intent.files
        content = one.files.read(file.path)
        one.files.delete(file.path)
        store.append("other", {"run_events": [{"kind": "note"}]}, run_id="run")
        (note,) = verify(location, repair=True).findings
        assert (note.level, "`spo verify --repair`" in note.message) == ("note", True)
        one.files.write(file.path, content)
        assert [found.level for found in verify(location, repair=True).findings] == ["repaired"]
        assert store.value("SELECT count(*) FROM trajectories") == 2
        assert verify(location).findings == ()
