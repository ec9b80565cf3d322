"""Quarantined batches of a stage are part of what it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tasks.run.put_aside import put_aside
from tasks.run.stage import Context
from tasks.run.stage_names import StageName
from tests.tasks.conftest import Lab
from warehouse import Warehouse
from warehouse.superseding import superseded

REFERENCE = "SELECT policy_id FROM policies WHERE kind = 'reference'"


def test_own_quarantined_batches_are_named_and_those_that_others_stand_for_are_not(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:

        def leave_out(*rows: dict[str, Any]) -> None:
            store.append(f"out/{rows[0]['bad_batch_id']}", {"quarantine": list(rows)}, run_id="by hand")

        context = cast(Context, SimpleNamespace(warehouse=store))
        assert put_aside(context, "q0/a/") == {}
        leave_out({"bad_batch_id": "q0/b/1", "reason": "wrong"})
        leave_out(superseded("q0/a/1", "q0/a/1/rejudged-9"))
        assert put_aside(context, "q0/a/") == {}
        leave_out({"bad_batch_id": "q0/a/2", "reason": "wrong"})
        one = put_aside(context, "eval/a/", "q0/a/")
        assert list(one) == ["put_aside"]
        assert put_aside(context, "q0/a/") == one
        leave_out({"bad_batch_id": "q0/a/3", "reason": "wrong"})
        assert put_aside(context, "q0/a/") != one
        assert put_aside(context, "eval/a/") == {}


def again_without(lab: Lab, run_id: str, name: StageName, table: str, prefix: str = "") -> None:
    """Put a batch of a stage that is done aside: it draws what is lacking, and is done again."""
    assert lab.run(run_id, name)[name].skipped
    counted = f"SELECT count(*) FROM {table}"
    batch = lab.value(f"SELECT min(batch_id) FROM {table} WHERE starts_with(batch_id, '{prefix}')")
    before = lab.value(counted)
    with lab.store() as store:
        bad = [{"bad_batch_id": batch, "reason": "by hand"}]
        store.append(f"bad/{batch}", {"quarantine": bad}, run_id="by hand")
    left = lab.value(counted)
    assert left < before
    assert not lab.run(run_id, name)[name].skipped
    assert lab.value(counted) > left
    assert lab.run(run_id, name)[name].skipped


def test_evaluation_samples_that_were_put_aside_are_drawn_again(copied: Callable[[], Lab]) -> None:
    again_without(copied(), "micro-1", "evaluate", "eval_samples")


def test_rollouts_of_a_search_that_were_put_aside_before_training_are_drawn_again(with_models: Lab) -> None:
    run_id = with_models.start("first")
    with_models.run(run_id, "prepare", "q0", "corpus", "pivotal")
    again_without(with_models, run_id, "pivotal", "token_values", f"pivotal/{with_models.value(REFERENCE)}/")


def test_what_a_stage_had_ended_with_is_stored_again_once_it_was_put_aside(with_models: Lab) -> None:
    lab, run_id = with_models, with_models.start("first")
    lab.run(run_id, "prepare", "q0", "corpus", "pivotal")
    members = lab.value("SELECT list(trajectory_id ORDER BY trajectory_id) FROM corpus")
    for _ in range(2):
        again_without(lab, run_id, "corpus", "corpus")
        assert lab.value("SELECT list(trajectory_id ORDER BY trajectory_id) FROM corpus") == members
    assert lab.run(run_id, "pivotal")["pivotal"].skipped
    again = lab.run(lab.start("second"), "prepare", "q0", "corpus")["corpus"].manifest
    assert lab.value(f"SELECT count(*) FROM corpus WHERE corpus_id = '{again.corpus_id}'") == len(members)
    annotated = lab.value("SELECT count(*) FROM token_values WHERE starts_with(search_id, 'annotation/')")
    again_without(lab, run_id, "pivotal", "token_values", "pivotal/annotation/")
    assert lab.value("SELECT count(*) FROM token_values WHERE starts_with(search_id, 'annotation/')") == annotated
