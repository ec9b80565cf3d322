from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

from warehouse import Warehouse


def test_run_states_follow_the_newest_event_and_stage(folder: str) -> None:
    def event(run: str, stage: str, kind: str) -> None:
        store.append(f"{run} {stage} {kind}", {"run_events": [{"stage": stage, "kind": kind}]}, run_id=run)

    def done(run: str, stage: str) -> None:
        row = {"stage": stage, "key": "k", "status": "completed"}
        store.append(f"{run} {stage} done", {"stages": [row]}, run_id=run)

    with Warehouse.open(folder) as store:
        for run in ("done", "failed", "continued", "working", "empty"):
            store.append(f"{run} begun", {"runs": [{"recipe": "tiny"}]}, run_id=run)
        for run in ("failed", "continued"):
            event(run, "train", "started")
            event(run, "train", "failed")
        event("continued", "train", "resumed")
        event("done", "evaluate", "cancelled")
        done("done", "evaluate")
        done("working", "q0")
        event("working", "train", "started")
        rows = store.rows("SELECT run_id, state, stage, seen IS NOT NULL AS spoke FROM run_states")
    assert {row["run_id"]: (row["state"], row["stage"], row["spoke"]) for row in rows} == {
        "done": ("finished", "evaluate", True),
        "failed": ("failed", "train", True),
        "continued": ("running", "train", True),
        "working": ("running", "train", True),
        "empty": ("running", None, False),
    }


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
TRAIN = {"stage": "train", "message": "key"}
STARTED = TRAIN | {"kind": "started"}
ENDED = {"stage": "train", "key": "key", "status": "completed", "seconds": 10.0, "rows": 8}
UNBEGUN = TRAIN | {"kind": "failed", "payload_json": '{"begun": false}'}
HISTORIES: dict[str, tuple[list[tuple[int, str, dict[str, object]]], float]] = {
    "failed before it began": (
        [(0, "run_events", STARTED), (5, "run_events", TRAIN | {"kind": "rollout"}), (90_000, "run_events", UNBEGUN)],
        5.0,
    ),
    "killed, and done again": (
        [
            (0, "run_events", STARTED),
            (5, "train_batches", {"step": 1, "trajectory_ids": ["a"], "sources": ["offline"]}),
            (100, "run_events", STARTED),
            (107, "train_batches", {"step": 2, "trajectory_ids": ["b"], "sources": ["offline"]}),
            (110, "stages", ENDED),
        ],
        15.0,
    ),
}
"""When what was appended, and what the stage has cost by then: a killed attempt until its last sign of life."""


def test_cost_by_stage_counts_what_an_attempt_took_until_its_last_sign_of_life(folder: str) -> None:
    with Warehouse.open(folder) as store:
        for run, (history, _) in HISTORIES.items():
            for second, table, row in history:
                store.clock = partial(BEGAN.__add__, timedelta(seconds=second))
                store.append(f"{run} {second}", {table: [row]}, run_id=run)
        found = {row["run_id"]: row["seconds"] for row in store.rows("SELECT run_id, seconds FROM cost_by_stage")}
    assert found == {run: seconds for run, (_, seconds) in HISTORIES.items()}
