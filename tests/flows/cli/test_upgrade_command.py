"""`spo upgrade` moves what it changes to a new snapshot: not where runs would go on."""

from __future__ import annotations

from pathlib import Path

from tests.flows.cli.conftest import Spo, code
from warehouse import Warehouse


def test_it_does_not_take_their_past_from_runs_that_are_not_finished(tmp_path: Path, spo: Spo) -> None:
    old = {"trajectory_id": "t", "problem_id": "p", "source": "online", "token_ids": [1], "text": "print(1)"}
    old["program_hash"] = "old"
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("run/a", {"runs": [{"recipe": "tiny", "config_json": "{}"}]}, run_id="tiny-1")
        then = store.append("t", {"trajectories": [old]}, run_id="tiny-1")
    refused = spo("upgrade")
    assert refused.exit_code == 1
    assert "tiny-1" in refused.output
    with Warehouse.open(tmp_path / "warehouse") as store:
        assert store.value(f"SELECT count(*) FROM trajectories WHERE snapshot_id <= {then}") == 1
        ended = {"stage": "evaluate", "key": "k", "status": "completed", "manifest_json": "{}"}
        store.append("ended", {"stages": [ended]}, run_id="tiny-1")
    assert code(spo("upgrade")) == ""
    with Warehouse.open(tmp_path / "warehouse") as store:
        assert store.value("SELECT count(*) FROM trajectories WHERE program_hash <> 'old'") == 1
