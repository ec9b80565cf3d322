"""What `verify` says of files that were made here of others, by merging or by `spo upgrade`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.conftest import fill
from warehouse import Warehouse
from warehouse.upkeep.maintenance import compact, live_files, rewrite
from warehouse.upkeep.verification import verify

NOW = timedelta(0)


def merged(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 4)
    compact(folder, many_files=2, keep_snapshots=NOW, keep_orphans=NOW)


def renamed(connection: Any, schema: str) -> int:
    first = f"(SELECT min(batch_id) FROM {schema}.trajectories)"
    connection.execute(f"UPDATE {schema}.trajectories SET normal_hash = 'changed' WHERE batch_id = {first}")
    return 0


def changed_file(folder: str) -> Path:
    """The last file of `trajectories`, after it was damaged so that it can still be read."""
    with Warehouse.open(folder) as store:
        path = Path(store.location.data) / [f.path for f in live_files(store) if f.table == "trajectories"][-1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    return path


@pytest.mark.parametrize("make", [merged, lambda folder: (merged(folder), rewrite(folder, renamed))])
def test_damage_in_a_file_that_was_made_of_others_is_found(folder: str, make: Callable[[str], Any]) -> None:
    make(folder)
    assert verify(folder).findings == ()
    path = changed_file(folder)
    (found,) = (finding.message for finding in verify(folder).findings if finding.level == "problem")
    assert found.startswith(str(path))


def test_files_without_a_hash_are_told_of(folder: str) -> None:
    merged(folder)
    with Warehouse.open(folder) as store:
        for file in live_files(store):
            store.ledger.put(f"sha256 of {file.path}", "")  # as where an older version merged
    (found,) = verify(folder).findings
    assert found.level == "note"
    assert found.message.startswith("1 files that merging made have no hash")


@pytest.mark.parametrize("repair", [False, True])
def test_a_lost_list_of_deleted_rows_is_named_and_the_rest_is_checked(folder: str, repair: bool) -> None:
    merged(folder)
    rewrite(folder, renamed)
    (lost,) = Path(folder).rglob("*-delete.parquet")
    lost.unlink()
    found = [finding.message for finding in verify(folder, repair=repair).findings if finding.level == "problem"]
    assert [message[:38] for message in found] == ["table 'trajectories' cannot be read: I"]


def test_a_lost_file_of_quarantine_is_named(folder: str) -> None:
    with Warehouse.open(folder) as store:
        fill(store, 1)
        store.append("bad", {"quarantine": [{"bad_batch_id": "none", "reason": "by hand"}]}, run_id="hand")
        path = Path(store.location.data) / next(f.path for f in live_files(store) if f.table == "quarantine")
    path.unlink()
    (found,) = verify(folder).findings
    assert f"{path.name} is missing" in found.message


def test_merging_one_table_takes_no_damaged_file_of_another_for_whole(folder: str) -> None:
    merged(folder)
    path = changed_file(folder)
    with Warehouse.open(folder) as store:
        for number in range(4):
            store.append(f"note/{number}", {"run_events": [{"kind": "note"}]}, run_id="run")
    assert compact(folder, many_files=2, keep_snapshots=NOW, keep_orphans=NOW).merged_tables == ("run_events",)
    (found,) = (finding.message for finding in verify(folder).findings if finding.level == "problem")
    assert found.startswith(str(path))
