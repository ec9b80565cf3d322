"""What a loop reads of its own run from the files themselves is what the lake would say."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.warehouse.conftest import everywhere, trajectories
from warehouse import Warehouse
from warehouse.commit.intents import DataFile
from warehouse.commit.ledger import CommittedBatch
from warehouse.files import FileStore
from warehouse.reading.following import RunFollower
from warehouse.upkeep.maintenance import compact

NOW = timedelta(0)


def of_the_lake(store: Warehouse, since: int) -> list[dict[str, Any]]:
    """What the lake shows of the run after a snapshot."""
    rows, _ = store.follow("trajectories", since, where="run_id = ?", parameters=("run",))
    return rows


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["trajectory_id"] for row in rows]


@everywhere
def test_a_follower_reads_what_the_lake_shows_of_its_run_each_row_once(store: Warehouse) -> None:
    store.append("before", {"trajectories": trajectories(2, "before")}, run_id="run")
    start = store.snapshot()
    follower = RunFollower(store, "trajectories", "run", since=start)
    assert follower.read() == []
    store.append("of another", {"trajectories": trajectories(2, "other")}, run_id="another")
    store.append("b0", {"trajectories": trajectories(2, "0-"), "run_events": [{"kind": "note"}]}, run_id="run")
    store.append("b1", {"trajectories": trajectories(1, "1-")}, run_id="run")
    first = follower.read()
    assert first == of_the_lake(store, start)
    assert ids(first) == ["t0-0", "t0-1", "t1-0"]
    assert follower.since == store.newest_of("run")
    store.append("b2", {"run_events": [{"kind": "note"}]}, run_id="run")
    assert follower.read() == []
    store.append("b3", {"trajectories": trajectories(1, "3-")}, run_id="run")
    assert ids(follower.read()) == ["t3-0"]
    assert follower.read() == []


def test_a_follower_leaves_out_what_was_quarantined_by_whichever_run(store: Warehouse) -> None:
    follower = RunFollower(store, "trajectories", "run", since=store.snapshot())
    store.append("bad", {"trajectories": trajectories(2, "bad")}, run_id="run")
    store.append("mask", {"quarantine": [{"bad_batch_id": "bad", "reason": "wrong tests"}]}, run_id="another")
    store.append("good", {"trajectories": trajectories(1, "good")}, run_id="run")
    assert ids(follower.read()) == ["tgood0"]
    store.append("worse", {"trajectories": trajectories(2, "worse")}, run_id="run")
    store.stage("better", {"trajectories": trajectories(1, "better")}, run_id="run")
    store.stage("mask it", {"quarantine": [{"bad_batch_id": "worse", "reason": "as well"}]}, run_id="run")
    store.commit()
    assert ids(follower.read()) == ["tbetter0"]


def test_a_follower_finds_its_rows_where_compaction_has_put_them(store: Warehouse, location: str) -> None:
    start = store.snapshot()
    follower = RunFollower(store, "trajectories", "run", since=start)
    for number in range(4):
        store.append(f"b{number}", {"trajectories": trajectories(2, f"{number}-")}, run_id="run")
    assert compact(location, many_files=2, keep_snapshots=NOW, keep_orphans=NOW).files_deleted == 4
    assert follower.read() == of_the_lake(store, start)
    store.append("late", {"trajectories": trajectories(1, "late")}, run_id="run")
    assert ids(follower.read()) == ["tlate0"]


def test_a_follower_of_some_columns_reads_these(store: Warehouse) -> None:
    follower = RunFollower(store, "trajectories", "run", since=store.snapshot(), columns=("batch_id", "reward"))
    snapshot = store.append("b", {"trajectories": trajectories(1)}, run_id="run")
    (row,) = follower.read()
    assert (row["batch_id"], row["snapshot_id"], "token_ids" in row) == ("b", snapshot, False)


def test_a_follower_of_some_batches_opens_no_file_of_others(
    store: Warehouse, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = store.snapshot()
    follower = RunFollower(store, "trajectories", "run", since=start, batches="rollout/run/")
    store.append("q0/many", {"trajectories": trajectories(3, "q0-")}, run_id="run")
    read: list[str] = []
    as_it_was = FileStore.read_if_there

    def noted(files: FileStore, path: str) -> bytes | None:
        read.append(path)
        return as_it_was(files, path)

    monkeypatch.setattr(FileStore, "read_if_there", noted)
    assert (follower.read(), read) == ([], [])
    assert follower.since == store.newest_of("run")
    for number in range(3):
        store.append(f"rollout/run/0/{number}", {"trajectories": trajectories(1, f"{number}-")}, run_id="run")
    assert ids(follower.read()) == ["t0-0", "t1-0", "t2-0"]
    assert len(read) == 3
    behind = RunFollower(store, "trajectories", "run", since=start, batches="rollout/run/")
    assert compact(location, many_files=2, keep_snapshots=NOW, keep_orphans=NOW).files_deleted == 4
    assert ids(behind.read()) == ["t0-0", "t1-0", "t2-0"]


def test_a_column_that_is_younger_than_a_file_is_null(store: Warehouse) -> None:
    start = store.snapshot()
    store.append("b", {"trajectories": trajectories(1)}, run_id="run")
    follower = RunFollower(store, "trajectories", "run", since=start, columns=("batch_id", "colour"))
    (row,) = follower.read()
    assert (row["batch_id"], row["colour"]) == ("b", None)


def test_a_follower_asks_the_lake_for_batches_of_a_rebuilt_ledger(store: Warehouse) -> None:
    start = store.snapshot()
    snapshot = store.append("b", {"trajectories": trajectories(2)}, run_id="run")
    nameless = CommittedBatch("a", "run", snapshot, (DataFile("trajectories", "", 2, 0, ""),))
    store.ledger.record([nameless], snapshot)
    follower = RunFollower(store, "trajectories", "run", since=start)
    assert follower.read() == of_the_lake(store, start)
    assert follower.read() == []
