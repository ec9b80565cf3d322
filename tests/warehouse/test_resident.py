"""What readers keep in memory is what the lake says: small tables, who took which response, counts by problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.warehouse.conftest import everywhere, trajectory
from warehouse import TABLES, Warehouse
from warehouse.reading.readers import Readers
from warehouse.reading.resident_tables import SMALL, changed_tables

SOME: dict[str, list[dict[str, Any]]] = {
    "runs": [{"recipe": "tiny", "config_json": "{}"}],
    "run_events": [{"kind": "started"}, {"kind": "note"}],
    "problems": [{"problem_id": "p0", "split": "train", "public_tests": [{"input": "1", "output": "2"}]}],
    "policies": [{"policy_id": "one", "kind": "snapshot"}],
    "verdicts": [{"program_hash": "a", "suite_hash": "s", "verdict": "accepted", "outcomes": "aa"}],
    "train_batches": [{"step": 1, "trajectory_ids": ["t1", "t2", "t1"], "sources": ["online", "offline", "online"]}],
}
COUNTED = """
SELECT problem_id, count(*) AS responses, count(DISTINCT normal_hash) AS programs,
       count(DISTINCT normal_hash) FILTER (reward = 0) AS correct
FROM trajectories GROUP BY problem_id ORDER BY problem_id
"""
KEPT = "SELECT problem_id, responses, programs, correct FROM resident.by_problem ORDER BY problem_id"


@pytest.fixture
def readers(store: Warehouse) -> Iterator[Readers]:
    store.append("begun", {"trajectories": [trajectory(1), trajectory(2)]}, run_id="one")
    with Readers.open(str(store.location)) as opened:
        opened.fill()
        yield opened


def assert_shown_as_in_the_lake(readers: Readers, at: int | None = None) -> None:
    with readers.session(at) as session:
        for name in ("trajectories", "quarantine", "audits", *SOME):
            shown = session.rows(f"SELECT * FROM {name} ORDER BY arrival")
            assert shown == session.rows(f"SELECT * FROM lake.main.{name} ORDER BY arrival"), name


@everywhere
def test_every_table_is_shown_as_the_lake_shows_it_at_every_snapshot(store: Warehouse, readers: Readers) -> None:
    store.append("some", SOME, run_id="one")
    assert_shown_as_in_the_lake(readers)
    before = store.snapshot()
    superseded = {"quarantine": [{"bad_batch_id": "some", "reason": "superseded by more"}]}
    store.append("more", SOME | superseded, run_id="two")
    assert_shown_as_in_the_lake(readers, before)
    store.append("wrong", {"quarantine": [{"bad_batch_id": "begun", "reason": "wrong"}]}, run_id="two")
    assert_shown_as_in_the_lake(readers, before)
    assert_shown_as_in_the_lake(readers)


def test_a_commit_names_the_tables_that_it_changed(store: Warehouse) -> None:
    store.append("begun", {"trajectories": [trajectory(1)]}, run_id="one")
    since = store.snapshot()
    store.append("some", SOME, run_id="one")
    connection = store.connection.cursor()
    assert changed_tables(connection, store.location, since, store.snapshot()) == set(SOME)
    assert changed_tables(connection, store.location, 0, store.snapshot()) == {*SOME, "trajectories"}


def counts(readers: Readers, at: int | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    with readers.session(at) as session:
        session.need_responses()
        return session.rows(KEPT), session.rows(COUNTED)


def test_counts_by_problem_follow_what_arrives_and_what_is_left_out(store: Warehouse, readers: Readers) -> None:
    kept, counted = counts(readers)
    assert kept == counted
    before = store.snapshot()
    news = [trajectory(n, problem_id=f"p{n % 2}", normal_hash=f"h{n % 3}", reward=-float(n % 2)) for n in range(10, 20)]
    store.append("news", {"trajectories": news}, run_id="one")
    kept, counted = counts(readers)
    assert kept == counted
    assert sum(row["responses"] for row in kept) == 12
    store.append("wrong", {"quarantine": [{"bad_batch_id": "begun", "reason": "wrong"}]}, run_id="one")
    kept, counted = counts(readers)
    assert kept == counted
    assert sum(row["responses"] for row in kept) == 10
    for at in (before, before + 1, before + 2):
        kept, counted = counts(readers, at)
        assert kept == counted


def test_finds_of_training_are_counted_again_when_more_is_told_of_a_policy(store: Warehouse, readers: Readers) -> None:
    found = trajectory("f", problem_id="p9", normal_hash="new", reward=0.0, source="online")
    sample = {"policy_id": "late", "problem_id": "p9", "sample": 0, "token_ids": [1], "normal_hash": "new"}
    store.append("found", {"trajectories": [found], "eval_samples": [sample | {"reward": 0.0}]}, run_id="one")
    asked = "SELECT found_by_training AS n, later_k AS k FROM resident.by_problem WHERE problem_id = 'p9'"
    for kind, finds, passes in (("evaluated", 0, 1), ("final", 1, 2), ("reference", 0, 1)):
        store.append(f"told {kind}", {"policies": [{"policy_id": "late", "kind": kind}]}, run_id="one")
        with readers.session() as session:
            session.need_responses()
            assert session.rows(asked) == [{"n": finds, "k": passes}], kind


def test_what_training_drew_from_pi_0_is_pi_0s(store: Warehouse, readers: Readers) -> None:
    own = {"problem_id": "p9", "reward": 0.0, "source": "online"}
    rows = [trajectory("f", normal_hash="old", policy_start="base", **own), trajectory("g", normal_hash="new", **own)]
    rows += [trajectory("h", normal_hash="old", **own)]
    store.append("found", {"trajectories": rows}, run_id="one")
    store.append("told", {"policies": [{"policy_id": "base", "kind": "reference"}]}, run_id="one")
    with readers.session() as session:
        session.need_responses()
        asked = "SELECT found_by_training AS n, later_n FROM resident.by_problem WHERE problem_id = 'p9'"
        assert session.rows(asked) == [{"n": 1, "later_n": 2}]
    assert store.rows("SELECT normal_hash FROM new_solutions WHERE problem_id = 'p9'") == [{"normal_hash": "new"}]


def test_which_step_took_which_response_is_kept(store: Warehouse, readers: Readers) -> None:
    store.append("some", SOME, run_id="one")
    with readers.session() as session:
        session.need_responses()
        asked = "SELECT source, count(*) AS n FROM resident.uses WHERE response = hash('t1') GROUP BY source"
        assert session.rows(asked) == [{"source": "online", "n": 2}]


def test_a_warehouse_of_version_2_gets_the_outcomes_of_tests_when_it_is_read(folder: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("some", SOME, run_id="one")
        store.connection.execute("ALTER TABLE stored.verdicts DROP COLUMN outcomes")
        store.connection.execute("ALTER TABLE stored.verdicts DROP COLUMN output")
        store.ledger.put("schema_version", "2")
    with Readers.open(folder) as readers, readers.session() as session:
        assert session.rows("SELECT verdict, outcomes FROM verdicts") == [{"verdict": "accepted", "outcomes": None}]
    with Warehouse.open(folder) as store:
        assert store.rows("SELECT verdict, outcomes, output FROM verdicts") == [
            {"verdict": "accepted", "outcomes": None, "output": None}
        ]
        store.append("later", {"verdicts": [SOME["verdicts"][0] | {"program_hash": "b"}]}, run_id="two")
        assert store.value("SELECT outcomes FROM verdicts WHERE program_hash = 'b'") == "aa"


def test_the_tables_in_memory_are_tables() -> None:
    assert set(SMALL) < set(TABLES)
    assert SMALL[0] == "quarantine"
