from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb
import pytest

import warehouse
from tests.fork_server import process_of
from tests.refusals import refused
from tests.warehouse.conftest import everywhere, trajectories, trajectory
from warehouse import (
    SCHEMA_VERSION,
    TABLES,
    Warehouse,
    lake,
)
from warehouse.commit.failpoints import failpoint_hooks
from warehouse.exchange.exporting import export
from warehouse.upkeep.verification import verify


@everywhere
def test_an_appended_batch_is_read_back_with_its_provenance(store: Warehouse) -> None:
    snapshot = store.append("batch", {"trajectories": trajectories(2)}, run_id="run")
    rows = store.rows("SELECT * FROM trajectories ORDER BY trajectory_id")
    assert [row["trajectory_id"] for row in rows] == ["t0", "t1"]
    assert rows[0]["token_ids"] == [1, 2, 3]
    assert rows[0]["sampled_logprobs"] == [-0.5, -1.0, -0.25]
    assert rows[0]["tests_passed"] is None
    assert {(row["run_id"], row["batch_id"], row["snapshot_id"]) for row in rows} == {("run", "batch", snapshot)}
    assert rows[0]["created_at"].tzinfo is not None


def test_rows_arrive_in_the_order_of_their_snapshots_whatever_the_clock_says(store: Warehouse) -> None:
    for number, hour in enumerate([12, 9, 10]):
        store.clock = partial(datetime, 2030, 1, 1, hour, tzinfo=UTC)
        store.append(f"b{number}", {"trajectories": trajectories(2, f"{number}-")}, run_id="run")
    by_clock = [
        row["batch_id"] for row in store.rows("SELECT DISTINCT batch_id, created_at FROM trajectories ORDER BY 2")
    ]
    assert by_clock == ["b1", "b2", "b0"]
    rows = store.rows("SELECT trajectory_id, arrival FROM trajectories ORDER BY arrival")
    assert [row["trajectory_id"] for row in rows] == ["t0-0", "t0-1", "t1-0", "t1-1", "t2-0", "t2-1"]
    assert len({row["arrival"] for row in rows}) == 6
    assert store.value("SELECT arg_max(batch_id, arrival) FROM trajectories") == "b2"


def test_batches_of_one_commit_arrive_in_the_order_in_which_a_process_staged_them(
    store: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(10**18, 0, -(10**15)))
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    for number in range(12):
        store.stage(f"b{number}", {"trajectories": trajectories(2, f"{number}-")}, run_id="run")
    store.commit()
    assert store.value("SELECT count(DISTINCT snapshot_id) FROM trajectories") == 1
    rows = store.rows("SELECT trajectory_id FROM trajectories ORDER BY arrival")
    assert [row["trajectory_id"] for row in rows] == [f"t{number}-{row}" for number in range(12) for row in range(2)]


def test_the_same_batch_id_is_appended_once(store: Warehouse) -> None:
    first = store.append("batch", {"trajectories": trajectories(2)}, run_id="run")
    assert store.append("batch", {"trajectories": trajectories(5)}, run_id="other") == first
    assert store.value("SELECT count(*) FROM trajectories") == 2


def test_a_batch_on_several_tables_is_one_snapshot(store: Warehouse) -> None:
    before = store.snapshot()
    tables = {"trajectories": trajectories(1), "run_events": [{"kind": "note"}], "corpus": []}
    assert store.append("batch", tables, run_id="run") == store.snapshot() == before + 1


def test_staged_batches_become_visible_together_at_the_commit(store: Warehouse) -> None:
    before = store.snapshot()
    for number in range(5):
        store.stage(f"batch/{number}", {"trajectories": trajectories(1, f"{number}-")}, run_id="run")
    assert store.value("SELECT count(*) FROM trajectories") == 0
    assert store.committed(["batch/0"]) == set()
    store.commit()
    assert store.snapshot() == before + 1
    assert store.value("SELECT count(*) FROM trajectories") == 5


@everywhere
def test_batches_staged_by_a_process_that_died_are_visible_after_the_next_opening(location: str) -> None:
    with Warehouse.open(location) as one:
        one.stage("batch", {"trajectories": trajectories(3)}, run_id="run")
    with Warehouse.open(location) as two:
        assert two.committed(["batch"]) == {"batch"}
        assert two.value("SELECT count(*) FROM trajectories") == 3


def test_committed_batches_are_found_by_id_and_by_prefix(store: Warehouse) -> None:
    for name in ("q0/a/1", "q0/a/2", "q0/b/1", "q0%/x"):
        store.stage(name, {"run_events": [{"kind": "note"}]}, run_id="run")
    store.commit()
    assert store.committed(["q0/a/1", "q0/z"]) == {"q0/a/1"}
    assert store.committed_under("q0/a/") == {"q0/a/1", "q0/a/2"}
    assert store.committed_under("q0%") == {"q0%/x"}


def test_the_newest_batch_of_a_run_is_known_without_asking_the_lake(store: Warehouse) -> None:
    assert store.newest_of("a") == 0
    row = {"trajectory_id": "t", "problem_id": "p", "source": "online", "token_ids": [1]}
    first = store.append("one", {"trajectories": [row]}, run_id="a")
    store.append("two", {"trajectories": [row | {"trajectory_id": "u"}]}, run_id="b")
    assert store.newest_of("a") == first
    store.stage("three", {"trajectories": [row | {"trajectory_id": "v"}]}, run_id="a")
    assert store.newest_of("a") == first
    store.commit()
    assert store.newest_of("a") == store.snapshot()


def test_an_empty_batch_counts_as_committed(store: Warehouse) -> None:
    store.append("nothing", {"trajectories": []}, run_id="run")
    assert store.committed(["nothing"]) == {"nothing"}


def test_reading_at_a_snapshot_ignores_what_came_later(store: Warehouse) -> None:
    first = store.append("one", {"trajectories": trajectories(1)}, run_id="run")
    store.append("two", {"trajectories": trajectories(1, "x")}, run_id="run")
    count = "SELECT count(*) AS n FROM pass_rate_by_problem, trajectories"
    assert store.rows(count, snapshot=first) == [{"n": 1}]
    assert store.rows(count) == [{"n": 2}]


def test_a_quarantined_batch_disappears_from_tables_views_and_followers(store: Warehouse) -> None:
    start = store.snapshot()
    store.append("bad", {"trajectories": trajectories(2)}, run_id="run")
    before = store.append("good", {"trajectories": trajectories(1, "g")}, run_id="run")
    store.append("mask", {"quarantine": [{"bad_batch_id": "bad", "reason": "wrong tests"}]}, run_id="run")
    assert store.value("SELECT n FROM pass_rate_by_problem") == 1
    assert [row["trajectory_id"] for row in store.follow("trajectories", start)[0]] == ["tg0"]
    assert store.rows("SELECT count(*) AS n FROM trajectories", snapshot=before) == [{"n": 1}]


def test_following_yields_every_row_once_in_order_of_arrival(store: Warehouse) -> None:
    cursor = store.snapshot()
    seen: list[str] = []
    for number in range(4):
        store.append(f"b{number}", {"trajectories": trajectories(2, f"{number}-")}, run_id="run")
        if number % 2:
            rows, cursor = store.follow("trajectories", cursor, where="run_id = ?", parameters=["run"])
            seen += [row["trajectory_id"] for row in rows]
    assert seen == [f"t{number}-{row}" for number in range(4) for row in range(2)]
    assert store.follow("trajectories", cursor) == ([], cursor)


def test_queries_take_positional_and_named_parameters(store: Warehouse) -> None:
    store.append("b", {"trajectories": trajectories(3)}, run_id="run")
    assert store.value("SELECT count(*) FROM trajectories WHERE trajectory_id = ?", ["t1"]) == 1
    assert store.value("SELECT count(*) FROM trajectories WHERE run_id = $run", {"run": "run"}) == 3
    assert store.value("SELECT 1 WHERE false") is None


@pytest.fixture(scope="module")
def refusing(new_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """An empty warehouse for whatever is refused."""
    folder = shutil.copytree(new_warehouse, tmp_path_factory.mktemp("refusing") / "warehouse")
    with Warehouse.open(folder) as opened:
        yield opened


@pytest.mark.parametrize(
    "row, code, named",
    [
        ({"trajectory_id": "x"}, "MissingField", ["problem_id"]),
        (trajectory(1, token_ids=["a"]), "WrongType", ["token_ids", "INTEGER[]"]),
        (trajectory(1, token_ids=[2**40]), "WrongType", ["token_ids", 2**40]),
        (trajectory(1, reward="1"), "WrongType", ["reward", "DOUBLE"]),
        (trajectory(1, reward=0.5), "OutOfRange", ["reward", 0.5]),
        (trajectory(1, reward=float("nan")), "OutOfRange", ["reward", "nan"]),
        (trajectory(1, source="dream"), "UnknownChoice", ["source", "dream", "online"]),
        (trajectory(1, sampled_logprobs=[0.0]), "UnequalLengths", ["sampled_logprobs", "token_ids"]),
        (trajectory(1, colour="red"), "UnknownField", ["colour"]),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_table_row_and_field(
    refusing: Warehouse, row: dict[str, object], code: str, named: list[object]
) -> None:
    before = refusing.snapshot()
    tables = {"run_events": [{"kind": "note"}], "trajectories": [trajectory(0), row]}
    with refused(code, "'trajectories'", "row 1", *named):
        refusing.append("batch", tables, run_id="run")
    assert refusing.snapshot() == before
    assert refusing.value("SELECT count(*) FROM run_events") == 0
    assert refusing.ledger.intents() == []


def test_unknown_tables_are_refused_with_the_known_ones(refusing: Warehouse) -> None:
    with refused("UnknownTable", "'dreams'", *TABLES):
        refusing.append("batch", {"dreams": [{}]}, run_id="run")


@everywhere
def test_a_named_lock_is_exclusive_and_names_its_holder(location: str) -> None:
    with Warehouse.open(location) as one, Warehouse.open(location) as two:
        with one.lock("stage/q0", timeout_s=1):
            with refused("WarehouseBusy", "'stage/q0'", f"process {os.getpid()}"):
                with two.lock("stage/q0", timeout_s=0.05):
                    pass
            with two.lock("stage/other", timeout_s=0.05):
                pass
        with two.lock("stage/q0", timeout_s=1):
            pass


def test_read_only_opening_never_creates(tmp_path: Path) -> None:
    for opening in (warehouse.open, partial(Warehouse.open, read_only=True)):
        with refused("WarehouseMissing", tmp_path / "none"):
            opening(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_warehouse_whose_creator_was_killed_is_empty_to_readers_and_made_by_the_next_writer(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").touch()
    with refused("EmptyWarehouse"):
        Warehouse.open(tmp_path, read_only=True)
    with Warehouse.open(tmp_path) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 0


@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_ledger_is_named_and_left_as_it_is(tmp_path: Path, read_only: bool) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database " * 400)
    with refused("DamagedLedger", tmp_path / "ledger.sqlite"):
        Warehouse.open(tmp_path, read_only=read_only)
    assert (tmp_path / "ledger.sqlite").read_bytes() == b"no database " * 400


def test_a_newer_warehouse_is_refused_and_left_as_it_was(location: str) -> None:
    with Warehouse.open(location) as store:
        store.ledger.put("schema_version", "99")
    for read_only in (False, True):
        with refused("NewerSchema", 99, SCHEMA_VERSION):
            Warehouse.open(location, read_only=read_only)


@everywhere
def test_people_read_while_a_process_writes(location: str) -> None:
    with Warehouse.open(location) as store:
        store.append("one", {"trajectories": trajectories(1)}, run_id="run")
        reader = warehouse.open(location)
        assert reader.execute("SELECT count(*) FROM trajectories").fetchall() == [(1,)]
        store.append("two", {"trajectories": trajectories(1, "x")}, run_id="run")
        assert reader.execute("SELECT count(*) FROM trajectories").fetchall() == [(2,)]
        with pytest.raises(duckdb.InvalidInputException):
            reader.execute("DELETE FROM stored.trajectories")
        reader.close()


def test_threads_may_read_while_one_appends(folder: str) -> None:
    with Warehouse.open(folder) as store:
        counts: list[int] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                counts.append(store.value("SELECT count(*) FROM trajectories"))

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(8):
            store.append(f"b{number}", {"trajectories": trajectories(4, f"{number}-")}, run_id="run")
        stop.set()
        reader.join()
        assert counts == sorted(counts)
        assert all(count % 4 == 0 for count in counts)


def _append_some(location: str, writer: int, batches: int) -> None:
    with Warehouse.open(location) as store:
        for number in range(batches):
            rows = trajectories(8, f"{writer}-{number}-")
            store.append(f"rollout/{writer}/{number}", {"trajectories": rows}, run_id=f"run{writer}")


def test_processes_that_create_and_append_at_once_lose_and_double_nothing(unmade: str) -> None:
    writers = [process_of(_append_some, unmade, writer, 6) for writer in range(3)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(120)
    assert [process.exitcode for process in writers] == [0, 0, 0]
    with Warehouse.open(unmade) as store:
        assert len(store.committed_under("rollout/")) == 18
        assert store.rows("SELECT count(*) AS n, count(DISTINCT trajectory_id) AS d FROM trajectories") == [
            {"n": 144, "d": 144}
        ]
    checked = verify(unmade)
    assert checked.clean
    assert checked.rows == 144


@pytest.mark.parametrize("sql", ["", "   ", ";", "-- nothing"])
def test_an_empty_statement_is_refused(refusing: Warehouse, sql: str) -> None:
    with refused("NoStatement"):
        refusing.rows(sql)


@pytest.mark.parametrize("snapshot", [-1, 999_999])
def test_a_snapshot_that_never_was_is_refused_with_those_there_are(folder: str, tmp_path: Path, snapshot: int) -> None:
    with Warehouse.open(folder) as store:
        newest = store.append("b", {"trajectories": trajectories(1)}, run_id="run")
        with refused("UnknownSnapshot", snapshot, f"0 to {newest}"):
            store.rows("SELECT 1", snapshot=snapshot)
        with refused("UnknownSnapshot", snapshot):
            store.check_snapshot(snapshot)
        store.check_snapshot(newest)
        assert store.rows("SELECT count(*) AS n FROM trajectories", snapshot=0) == [{"n": 0}]
    with refused("UnknownSnapshot"):
        export(folder, tmp_path / "out", "trajectories", snapshot=snapshot)
    assert not (tmp_path / "out").exists()


def test_a_warehouse_of_version_1_gets_the_tables_of_audits(folder: str) -> None:
    added = ("audits", "audit_findings", "suite_versions")
    with Warehouse.open(folder) as store:
        for table in added:
            store.connection.execute(f"DROP VIEW {table}")
            store.connection.execute(f"DROP TABLE stored.{table}")
        store.ledger.put("schema_version", "1")
    with Warehouse.open(folder) as store:
        assert [store.value(f"SELECT count(*) FROM {table}") for table in added] == [0, 0, 0]
        assert store.ledger.get("schema_version") == str(SCHEMA_VERSION)


def test_columns_of_one_name_are_told_apart(folder: str) -> None:
    with Warehouse.open(folder) as store:
        assert store.rows("SELECT a.x, b.x, 3 AS y FROM (SELECT 1 AS x) AS a, (SELECT 2 AS x) AS b") == [
            {"x": 1, "x_1": 2, "y": 3}
        ]


@everywhere
def test_the_snapshot_of_the_last_commit_is_its_own_whatever_others_commit_afterwards(store: Warehouse) -> None:
    with Warehouse.open(str(store.location)) as other:
        assert lake.committed_snapshot(other.connection) == lake.current_snapshot(other.connection), "none yet"
        store.append("a", {"runs": [{"recipe": "tiny", "config_json": "{}"}]}, run_id="one")
        own = lake.current_snapshot(store.connection)
        other.append("b", {"runs": [{"recipe": "tiny", "config_json": "{}"}]}, run_id="two")
        assert lake.committed_snapshot(store.connection) == own
        assert lake.committed_snapshot(other.connection) == lake.current_snapshot(store.connection) == own + 1
    assert store.ledger.snapshots(["a", "b"]) == {"a": own, "b": own + 1}


def test_a_commit_that_programs_without_our_lock_overtake_is_tried_again(store: Warehouse) -> None:
    overtaken: list[int] = []

    def commit_first(label: str) -> None:
        if label == "files-registered" and len(overtaken) < 3:
            overtaken.append(lake.current_snapshot(other))
            other.execute(f"CREATE TABLE lake.main.other_{len(overtaken)} (x INTEGER)")

    with closing(lake.connect(store.location, read_only=False)) as other:
        failpoint_hooks.append(commit_first)
        try:
            snapshot = store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        finally:
            failpoint_hooks.remove(commit_first)
    assert snapshot == store.snapshot() == overtaken[0] + 4
    assert store.value("SELECT count(*) FROM trajectories") == 3
