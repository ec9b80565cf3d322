"""Responses whose batch was judged again stand where they stood: their time of arrival is that of the first batch."""

from __future__ import annotations

from tests.warehouse.conftest import judge_again, trajectory
from warehouse import Warehouse
from warehouse.superseding import superseded


def test_what_was_judged_again_arrived_when_its_first_batch_did(folder: str) -> None:
    with Warehouse.open(folder) as store:
        asked = "SELECT batch_id, snapshot_id, arrival FROM judged_again"
        assert store.rows(asked) == []
        first = store.append("q0/1", {"trajectories": [trajectory(0), trajectory(1)]}, run_id="run")
        arrived = store.value("SELECT min(arrival) FROM trajectories")
        store.append("q0/2", {"trajectories": [trajectory(2)]}, run_id="run")
        once = judge_again(store, "q0/1")
        assert store.rows(asked) == [{"batch_id": once, "snapshot_id": first, "arrival": arrived}]
        twice = judge_again(store, once)
        found = store.rows(f"{asked} WHERE batch_id IN (SELECT batch_id FROM trajectories)")
        assert found == [{"batch_id": twice, "snapshot_id": first, "arrival": arrived}]
        assert store.rows(asked, snapshot=first) == []


def test_counts_of_an_evaluation_that_was_judged_again_stand_where_they_stood(folder: str) -> None:
    """A policy that is pi_0 is evaluated with counts and without trajectories."""
    counts = {
        "problem_id": "p0",
        "reference": "p",
        "sampling": "s",
        "template_id": "t",
        "suite_hash": "h",
        "n": 1,
        "k": 1,
    }
    sample = {"policy_id": "p", "problem_id": "p0", "sample": 0, "token_ids": [1], "reward": 0.0}
    with Warehouse.open(folder) as store:
        tables = {"eval_samples": [sample], "reference_counts": [counts]}
        first = store.append("eval/p/1", tables, run_id="run")
        new = "eval/p/1/rejudged-9"
        store.append(new, tables | {"quarantine": [superseded("eval/p/1", new)]}, run_id="run")
        assert store.rows("FROM judged_again") == [{"batch_id": new, "snapshot_id": first, "arrival": None}]


def test_what_a_step_made_anew_replaces_is_not_judged_again(folder: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("train/1", {"trajectories": [trajectory(0)]}, run_id="run")
        rows = {"trajectories": [trajectory(1)], "quarantine": [superseded("train/1", "train/2")]}
        store.append("train/2", rows, run_id="run")
        assert store.rows("FROM judged_again") == []


def test_who_found_a_program_first_stays_the_first_once_the_batch_was_judged_again(folder: str) -> None:
    with Warehouse.open(folder) as store:
        for run in ("first", "second"):  # of one snapshot
            store.stage(run, {"trajectories": [trajectory(run, normal_hash="new", text=run)]}, run_id=run)
        store.commit()
        judge_again(store, "first")
        (found,) = store.rows("SELECT first_run, text, trajectory_id, times FROM new_solutions")
        assert found == {"first_run": "first", "text": "first", "trajectory_id": "tfirst", "times": 2}


def test_who_asks_for_the_verdicts_of_a_snapshot_sees_them_and_all_else_that_is_newest(folder: str) -> None:
    asked = "SELECT trajectory_id, batch_id FROM trajectories ORDER BY ALL"
    with Warehouse.open(folder) as store, Warehouse.open(folder) as kept:
        for number in range(3):
            store.append(f"b{number}", {"trajectories": [trajectory(number)]}, run_id="run")
        before = judge_again(store, "b0")
        kept.show_judged_until(store.snapshot(), ["trajectories"])
        shown = kept.rows(asked)
        assert [row["batch_id"] for row in shown] == [before, "b1", "b2"]
        newest = [judge_again(store, judge_again(store, before)), judge_again(store, "b1")]
        assert [row["batch_id"] for row in store.rows(asked)] == [*newest, "b2"]
        assert kept.rows(asked) == shown
        store.append("b3", {"trajectories": [trajectory(3)]}, run_id="run")
        assert len(kept.rows(asked)) == 4
        bad = [{"bad_batch_id": name, "reason": "bad"} for name in (newest[1], "b2")]
        store.append("aside", {"quarantine": bad}, run_id="run")
        assert [row["batch_id"] for row in kept.rows(asked)] == [before, "b3"]
