"""Responses that came from a file, of several runs in one batch, are judged again as others are."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import sandbox
from flows.cli.main import app
from tasks.problems.problem import Problem, rows
from tasks.rejudge import look, rejudge
from tests.warehouse.conftest import trajectory
from warehouse import Warehouse
from warehouse.exporting import export
from warehouse.importing_files import import_file


def test_a_replaced_batch_keeps_the_runs_of_its_rows_and_is_left_out_under_its_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    problem = Problem("p0", "set", "train", "p", "p", hidden_tests=(sandbox.TestCase("1\n", "1\n"),))
    judged = {"suite_hash": problem.suite_hash, "reward": -1.0, "verdict": "compile_error", "text": "print(input())"}
    with Warehouse.open(here) as store:
        for run in ("a", "b"):
            store.append(run, {"trajectories": [trajectory(run, **judged)]}, run_id=run)
    export(here, tmp_path / "out", "trajectories")
    import_file(there, tmp_path / "out" / "trajectories.parquet", "trajectories")
    with Warehouse.open(there) as store:
        store.append("problems", rows([problem]), run_id="hand")
        batch = store.value("SELECT any_value(batch_id) FROM trajectories")
        assert rejudge(store, look(store, ["compile_error"])).batches == 1
        found = store.rows("SELECT run_id, verdict FROM trajectories ORDER BY run_id")
        assert found == [{"run_id": run, "verdict": "accepted"} for run in ("a", "b")]
    monkeypatch.setenv("SPO_WAREHOUSE", str(there))
    said = CliRunner().invoke(app, ["quarantine", str(batch)]).output
    assert said == (
        f"{batch}/rejudged-{sandbox.VERSION} holds what one of them held, so it is left out, too\n"
        "2 batches left out from now on\n"
    )
    with Warehouse.open(there) as store:
        assert store.value("SELECT count(*) FROM trajectories") == 0
