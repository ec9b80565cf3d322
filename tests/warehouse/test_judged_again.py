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
