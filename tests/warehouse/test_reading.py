"""Many readers: limits, snapshots, the copy in memory beside the lake, and nothing but SELECT."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.refusals import refused
from tests.warehouse.conftest import everywhere, trajectories, trajectory
from warehouse import BadQuestion, StillReading, TookTooLong, Warehouse, WarehouseMissing
from warehouse.reading import resident
from warehouse.reading.readers import Readers
from warehouse.upkeep.maintenance import compact

ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
BY_SOURCE = "SELECT source, count(*) AS n, sum(reward) AS r FROM {} GROUP BY source ORDER BY source"


@pytest.fixture
def readers(store: Warehouse) -> Iterator[Readers]:
    store.append("a", {"trajectories": trajectories(20)}, run_id="one")
    store.append("b", {"trajectories": trajectories(10, "b", source="reference", reward=-1.0)}, run_id="one")
    with Readers.open(str(store.location)) as opened:
        opened.fill()
        yield opened


@pytest.fixture(scope="module")
def plain(new_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """Readers of a warehouse in a folder that nobody writes to, for questions that change nothing."""
    folder = shutil.copytree(new_warehouse, tmp_path_factory.mktemp("plain") / "warehouse")
    with Warehouse.open(folder) as store:
        store.append("a", {"trajectories": trajectories(30)}, run_id="one")
    with Readers.open(folder) as opened:
        opened.fill()
        yield opened


def test_responses_that_are_compressed_while_another_reader_takes_in_tables_are_there_all_the_same(
    store: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "CHECKPOINT_ROWS", 0)
    store.append("a", {"trajectories": trajectories(20)}, run_id="one")
    with Readers.open(str(store.location)) as opened:
        other = opened._connection.cursor()
        other.execute("BEGIN; INSERT INTO resident.kept.audits BY NAME SELECT 'x' AS audit_id")
        opened.fill()
        other.execute("ROLLBACK")
        store.append("b", {"trajectories": trajectories(5, "b")}, run_id="one")
        memory, lake = both(opened)
        assert memory == lake
        assert memory[0]["n"] == 25


def test_a_first_reading_that_failed_is_tried_again(store: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("a", {"trajectories": trajectories(20)}, run_id="one")
    with Readers.open(str(store.location)) as opened:
        with monkeypatch.context() as patched:
            patched.setattr(resident, "take_in", lambda *_: opened._connection.execute("SELECT error('no disk')"))
            with pytest.raises(duckdb.Error):
                opened.fill()
            with opened.session() as session, refused("ResponsesUnreadable"):
                session.need_responses()
        memory, lake = both(opened)
        assert memory == lake == [{"source": "online", "n": 20, "r": 0.0}]


def both(readers: Readers, at: int | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The same question asked of memory and of the lake."""
    with readers.session(at) as session:
        session.need_responses()
        return session.rows(BY_SOURCE.format("resident.responses")), session.rows(BY_SOURCE.format("trajectories"))


@everywhere
def test_memory_shows_what_the_lake_shows_on_every_storage_while_rows_arrive(
    store: Warehouse, readers: Readers
) -> None:
    memory, lake = both(readers)
    assert memory == lake == [{"source": "online", "n": 20, "r": 0.0}, {"source": "reference", "n": 10, "r": -10.0}]
    before = store.snapshot()
    store.append("c", {"trajectories": trajectories(5, "c")}, run_id="two")
    memory, lake = both(readers)
    assert memory == lake
    assert memory[0]["n"] == 25
    memory, lake = both(readers, before)
    assert memory == lake
    assert memory[0]["n"] == 20


def test_memory_leaves_out_what_is_quarantined_and_the_past_still_shows_what_was_superseded(
    store: Warehouse, readers: Readers
) -> None:
    before = store.snapshot()
    bad = [{"bad_batch_id": "a", "reason": "superseded by c"}]
    store.append("q", {"quarantine": bad, "trajectories": trajectories(3, "c")}, run_id="two")
    memory, lake = both(readers)
    assert memory == lake
    assert memory[0]["n"] == 3
    memory, lake = both(readers, before)
    assert memory == lake
    assert memory[0]["n"] == 20
    store.append("r", {"quarantine": [{"bad_batch_id": "b", "reason": "wrong"}]}, run_id="two")
    memory, lake = both(readers, before)
    assert memory == lake
    assert [row["source"] for row in memory] == ["online"]


def test_memory_has_every_row_once_when_files_are_merged_meanwhile(store: Warehouse, readers: Readers) -> None:
    for number in range(4):
        store.append(f"m{number}", {"trajectories": trajectories(4, f"m{number}-")}, run_id="two")
    compact(str(store.location), many_files=1)
    memory, lake = both(readers)
    assert memory == lake
    assert memory[0]["n"] == 36


def test_who_wrote_a_response_is_told_also_of_evaluations(store: Warehouse, readers: Readers) -> None:
    sample = {"problem_id": "p0", "sample": 0, "token_ids": [1], "normal_hash": "e", "reward": 0.0}
    rows = {
        "policies": [{"policy_id": "first", "kind": "reference"}, {"policy_id": "later", "kind": "final"}],
        "eval_samples": [sample | {"policy_id": name} for name in ("first", "later", "another")],
        "trajectories": [trajectory("h", source="human")],
    }
    store.append("e", rows, run_id="one")
    with readers.session() as session:
        session.need_responses()
        found = session.rows("SELECT author, count(*) AS n FROM resident.responses GROUP BY author ORDER BY author")
    counts = {row["author"]: row["n"] for row in found}
    assert counts == {"evaluation": 1, "other model": 1, "person": 1, "pi_0": 11, "training": 20}


def test_a_session_sees_one_moment(store: Warehouse, readers: Readers) -> None:
    with readers.session() as session:
        first = session.rows("SELECT count(*) AS n FROM trajectories")
        store.append("later", {"trajectories": trajectories(5, "later")}, run_id="two")
        second = session.rows("SELECT count(*) + 0 AS n FROM trajectories")
        assert first == second == [{"n": 30}]
    with readers.session() as session:
        assert session.snapshot == store.snapshot()
        assert session.rows("SELECT count(*) AS n FROM trajectories") == [{"n": 35}]


@pytest.mark.parametrize("at", [-1, 10_000])
def test_a_snapshot_that_never_was_is_refused(plain: Readers, at: int) -> None:
    with refused("UnknownSnapshot", at), plain.session(at):
        pass


def test_answers_are_kept_until_something_arrives(store: Warehouse, readers: Readers) -> None:
    asked = "SELECT count(*) AS n FROM trajectories WHERE source = $source"
    for expected in (False, True):
        with readers.session() as session:
            assert session.rows(asked, {"source": "online"}) == [{"n": 20}]
            assert [one.kept for one in session.asked] == [expected]
    store.append("later", {"trajectories": trajectories(5, "later")}, run_id="two")
    with readers.session() as session:
        assert session.rows(asked, {"source": "online"}) == [{"n": 25}]


def test_a_question_is_stopped_at_its_time_limit_and_the_next_one_is_answered(plain: Readers) -> None:
    with pytest.raises(TookTooLong), plain.session(timeout_s=0.3) as session:
        session.ask(ENDLESS, limit=10)
    with plain.session() as session:
        assert session.ask("SELECT 1 AS one", limit=10).rows == ((1,),)


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM trajectories",
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "CREATE TABLE resident.x AS SELECT 1",
        "COPY (SELECT 1) TO 'x.csv'",
        "ATTACH 'x.db'",
        "SET lock_configuration = false",
        "SET VARIABLE at_snapshot = 1",
        "CALL ducklake_expire_snapshots('lake')",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM sqlite_scan('/tmp/x.sqlite', 'y')",
        "SELECT * FROM (SELECT * FROM read_csv('/etc/passwd'))",
        "SELECT (SELECT count(*) FROM duckdb_secrets())",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT * FROM nothing_like_it",
        "this is no SQL",
    ],
)
def test_only_one_plain_select_is_answered(plain: Readers, text: str) -> None:
    with plain.session() as session, pytest.raises(BadQuestion):
        session.ask(text, limit=10)
    with plain.session() as session:
        assert session.ask("SELECT count(*) FROM trajectories", limit=10).rows == ((30,),)


def test_the_connection_itself_reaches_no_other_file_and_cannot_be_opened_up(plain: Readers, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    for statement in (
        f"SELECT * FROM read_text('{tmp_path}/secret.txt')",
        "SELECT * FROM read_text('/etc/hostname')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
        f"ATTACH '{tmp_path}/other.db'",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET allow_unsigned_extensions = true",
        "INSERT INTO stored.quarantine SELECT * FROM stored.quarantine",
    ):
        with plain.session() as session, pytest.raises((BadQuestion, duckdb.Error)):
            session.rows(statement)
    assert not (tmp_path / "out.csv").exists()
    assert not (tmp_path / "other.db").exists()


def test_rows_beyond_the_limit_are_cut_and_told(plain: Readers) -> None:
    with plain.session() as session:
        cut = session.ask("SELECT trajectory_id FROM trajectories ORDER BY ALL", limit=7)
        whole = session.ask("SELECT trajectory_id FROM trajectories ORDER BY ALL -- with a comment", limit=30)
    assert (len(cut.rows), cut.cut) == (7, True)
    assert (len(whole.rows), whole.cut) == (30, False)
    assert list(whole.rows) == sorted(whole.rows)


def test_a_plan_is_shown_without_an_answer(plain: Readers) -> None:
    with plain.session() as session:
        assert "FILTER" in session.plan("SELECT * FROM range(10) WHERE range % 2 = 1").upper()


def test_responses_are_waited_for_no_longer_than_told(folder: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("a", {"trajectories": trajectories(2)}, run_id="one")
    with Readers.open(folder) as unfilled:
        with unfilled.session() as session, pytest.raises(StillReading):
            session.need_responses(0.01)
        threading.Thread(target=unfilled.fill).start()
        with unfilled.session() as session:
            session.need_responses(30)
            assert session.rows("SELECT count(*) AS n FROM resident.responses") == [{"n": 2}]


def test_more_readers_than_cursors_take_turns(plain: Readers) -> None:
    found: list[Any] = []

    def ask() -> None:
        with plain.session() as session:
            found.append(session.ask("SELECT count(*) FROM trajectories", limit=1).rows)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [((30,),)] * 12


def test_nothing_is_made_where_there_is_no_warehouse(tmp_path: Path) -> None:
    with pytest.raises(WarehouseMissing):
        Readers.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()
