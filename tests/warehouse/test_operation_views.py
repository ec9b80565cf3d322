from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

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


def test_what_was_judged_again_much_later_is_no_sign_of_life_of_a_stage(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, event = datetime(2026, 1, 1, tzinfo=UTC), {"stage": "train", "message": "key"}
    batches = [(0, "a", "started"), (5, "b", "rollout"), (90_000, "b/rejudged-9", "rollout")]
    with Warehouse.open(folder) as store:
        for second, batch, kind in batches:
            monkeypatch.setattr("warehouse.store.utc_now", lambda second=second: began + timedelta(seconds=second))
            store.append(batch, {"run_events": [event | {"kind": kind}]}, run_id="run")
        assert store.value("SELECT seconds FROM cost_by_stage") == 5.0


def test_what_failed_before_it_began_is_no_sign_of_life_of_the_attempt_before_it(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, event = datetime(2026, 1, 1, tzinfo=UTC), {"stage": "train", "message": "", "payload_json": "{}"}
    history = [(0, "started", "{}"), (5, "rollout", "{}"), (90_000, "failed", '{"begun": false}')]
    with Warehouse.open(folder) as store:
        for second, kind, payload in history:
            monkeypatch.setattr("warehouse.store.utc_now", lambda second=second: began + timedelta(seconds=second))
            store.append(kind, {"run_events": [event | {"kind": kind, "payload_json": payload}]}, run_id="run")
        assert store.value("SELECT seconds FROM cost_by_stage") == 5.0


def test_cost_by_stage_counts_what_a_killed_attempt_took_until_its_last_sign_of_life(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, started = datetime(2026, 1, 1, tzinfo=UTC), {"stage": "train", "kind": "started", "message": "key"}
    ended = {"stage": "train", "key": "key", "status": "completed", "seconds": 10.0, "rows": 8}
    history: list[tuple[int, str, dict[str, object]]] = [
        (0, "run_events", started),
        (5, "train_batches", {"step": 1, "trajectory_ids": ["a"], "sources": ["offline"]}),
        (100, "run_events", started),
        (107, "train_batches", {"step": 2, "trajectory_ids": ["b"], "sources": ["offline"]}),
        (110, "stages", ended),
    ]
    with Warehouse.open(folder) as store:
        for second, table, row in history:
            monkeypatch.setattr("warehouse.store.utc_now", lambda second=second: began + timedelta(seconds=second))
            store.append(f"at {second}", {table: [row]}, run_id="run")
        (cost,) = store.rows("SELECT executions, seconds, rows FROM cost_by_stage")
    assert cost == {"executions": 1, "seconds": 15.0, "rows": 8}
