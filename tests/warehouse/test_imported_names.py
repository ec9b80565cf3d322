"""What batches of another warehouse are called here: equal work counts once, whichever way it came."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.conftest import broken_off_at
from warehouse import Warehouse
from warehouse.exchange.importing_warehouses import import_warehouse
from warehouse.superseding import superseded
from warehouse.upkeep.verification import verify


def test_batches_that_say_what_they_hold_keep_their_ids_and_come_once(folder: str, tmp_path: Path) -> None:
    """Two who drew the same samples have them once; manifests name problems and prompts by their batches."""
    target = str(tmp_path / "target")
    counts = [
        {"problem_id": "p0", "reference": "r", "sampling": "s", "suite_hash": "h", "template_id": "t", "n": 4, "k": 2}
    ]
    for location, run in ((folder, "one"), (target, "two")):
        with Warehouse.open(location) as store:
            store.append("q0/r/s/same", {"reference_counts": counts}, run_id=run)
            store.append(f"q0/r/s/of-{run}", {"reference_counts": counts}, run_id=run)
            store.append("named-by-hand", {"run_events": [{"kind": run}]}, run_id=run)
    found = import_warehouse(target, folder)
    assert (found.batches, found.skipped) == (2, 1)
    with Warehouse.open(target) as store:
        rows = store.rows("SELECT batch_id, run_id FROM reference_counts ORDER BY batch_id")
        assert [tuple(row.values()) for row in rows] == [
            ("q0/r/s/of-one", "one"),
            ("q0/r/s/of-two", "two"),
            ("q0/r/s/same", "two"),
        ]
        assert store.value("SELECT count(*) FROM run_events") == 2
    assert import_warehouse(target, folder).batches == 0
    assert import_warehouse(folder, target).batches == 2


def test_what_was_imported_under_another_name_is_not_taken_again(folder: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    with Warehouse.open(folder) as store:
        store.append("q0/r/s/unit", {"run_events": [{"kind": "once"}]}, run_id="one")
        origin = store.ledger.get("warehouse_id")
    with Warehouse.open(target) as store:
        store.append(f"warehouse/{origin}/q0/r/s/unit", {"run_events": [{"kind": "once"}]}, run_id="one")
    assert import_warehouse(target, folder).batches == 0


@pytest.mark.parametrize("own", [False, True])
def test_equal_work_counts_once_whoever_took_it_in_and_under_which_name(folder: str, tmp_path: Path, own: bool) -> None:
    between, target = str(tmp_path / "between"), str(tmp_path / "target")
    counts = {
        "reference_counts": [
            {
                "problem_id": "p",
                "reference": "r",
                "sampling": "s",
                "template_id": "t",
                "suite_hash": "u",
                "n": 4,
                "k": 1,
            }
        ]
    }
    with Warehouse.open(folder) as store:
        store.append("q0/r/s/unit", counts, run_id="one")
        origin = store.ledger.get("warehouse_id")
    with Warehouse.open(between) as store:  # as imports named such batches before
        store.append(f"warehouse/{origin}/q0/r/s/unit", counts, run_id="one")
        if own:
            store.append("q0/r/s/unit", counts, run_id="two")
    for source in (folder, between) if not own else (between, folder):
        import_warehouse(target, source)
    with Warehouse.open(target) as store:
        assert store.rows("SELECT batch_id, n FROM reference_counts") == [{"batch_id": "q0/r/s/unit", "n": 4}]
    assert import_warehouse(target, between).batches == 0
    assert verify(target).clean


def test_a_batch_without_rows_is_known_after_an_import(folder: str, tmp_path: Path) -> None:
    with Warehouse.open(folder) as store:
        store.append("q0/r/s/nothing", {"run_events": []}, run_id="one")
    assert import_warehouse(tmp_path / "target", folder).batches == 1
    assert import_warehouse(tmp_path / "target", folder).batches == 0
    with Warehouse.open(tmp_path / "target") as store:
        assert store.committed(["q0/r/s/nothing"]) == {"q0/r/s/nothing"}


def test_an_import_that_was_broken_off_gives_the_snapshots_that_one_in_one_go_gives(
    folder: str, tmp_path: Path
) -> None:
    with Warehouse.open(folder) as theirs:
        for kind in ("first", "read"):
            theirs.append(kind, {"run_events": [{"kind": kind}]}, run_id="run")
        read = theirs.snapshot()
        theirs.append("later", {"run_events": [{"kind": "later"}]}, run_id="run")
        stage = {"stage": "q0", "key": "k", "status": "completed", "manifest_json": "{}", "snapshot_in": read}
        theirs.append("stage/1", {"stages": [stage]}, run_id="run")
    target = str(tmp_path / "target")
    with broken_off_at("lock-taken", call=3):
        import_warehouse(target, folder)
    with Warehouse.open(target) as ours:
        ours.append("between", {"run_events": [{"kind": "of here"}]}, run_id="own")
    import_warehouse(target, folder)
    with Warehouse.open(target) as ours:
        at = ours.value("SELECT snapshot_in FROM stages")
        seen = ours.rows("SELECT kind FROM run_events WHERE snapshot_id <= ? ORDER BY arrival", [at])
    assert [row["kind"] for row in seen] == ["first", "read"]


@pytest.mark.parametrize("judged_again", [False, True])
def test_what_was_put_aside_there_stays_here_where_a_run_of_here_made_it(
    folder: str, tmp_path: Path, judged_again: bool
) -> None:
    target = str(tmp_path / "target")
    for location, run in ((folder, "one"), (target, "two")):
        with Warehouse.open(location) as store:
            store.append("q0/r/s/same", {"run_events": [{"kind": run}]}, run_id=run)
            store.append(f"q0/r/s/of-{run}", {"run_events": [{"kind": f"alone {run}"}]}, run_id=run)
    by_hand = "q0/r/s/same/rejudged-9" if judged_again else "q0/r/s/same"
    with Warehouse.open(folder) as store:
        if judged_again:
            rows = {"run_events": [{"kind": "one"}], "quarantine": [superseded("q0/r/s/same", by_hand)]}
            store.append(by_hand, rows, run_id="one")
        for bad in (by_hand, "q0/r/s/of-one"):
            row = {"bad_batch_id": bad, "reason": "bad data"}
            store.append(f"quarantine/{bad}", {"quarantine": [row]}, run_id="quarantine")
    found = import_warehouse(target, folder)
    assert found.still_shown == ("q0/r/s/same",)
    assert (found.batches, found.rows["quarantine"]) == ((4, 2) if judged_again else (2, 1))
    with Warehouse.open(target) as store:
        assert store.rows("SELECT kind FROM run_events ORDER BY kind") == [{"kind": "alone two"}, {"kind": "two"}]
        store.append("q", {"quarantine": [{"bad_batch_id": "q0/r/s/same", "reason": "bad here, too"}]}, run_id="q")
    again = import_warehouse(target, folder)
    assert (again.batches, again.still_shown) == (0, ())
    assert import_warehouse(folder, target).still_shown == ()
    assert verify(target).clean
