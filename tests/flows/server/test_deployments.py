"""The deployments on a real embedded server: the pipeline, a stage alone, refused parameters, a clean end."""

from __future__ import annotations

import pytest

from tests.flows.conftest import Server
from tests.tasks.conftest import MICRO


@pytest.mark.timeout(900)
def test_the_pipeline_runs_as_a_deployment_and_shows_its_result(server: Server) -> None:
    result = server.spo("run", MICRO)
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ("pass@10", "before", "after", "Warehouse", "learning_curve.png", 'spo sql "SELECT'):
        assert words in result.stdout
    stages = "SELECT string_agg(stage, ' ' ORDER BY created_at) FROM stages WHERE status = 'completed'"
    assert server.value(stages) == "prepare q0 corpus pivotal train evaluate report"
    (run,) = server.flow_runs("micro-1")
    assert {"micro", "full-pipeline"} <= set(run["tags"])
    assert run["state"]["message"].startswith("micro-1: pass@")
    assert sorted(artifact["key"] for artifact in server.artifacts(run["id"])) == ["spo-result", "spo-stages"]


@pytest.mark.timeout(900)
def test_a_stage_runs_alone_and_is_skipped_when_it_is_done(server: Server) -> None:
    before = server.value("SELECT count(*) FROM trajectories")
    result = server.prefect("deployment", "run", "spo/q0", "-p", "run=micro-1", "--watch")
    assert result.returncode == 0, result.stdout + result.stderr
    assert server.value("SELECT count(*) FROM stages WHERE stage = 'q0' AND status = 'skipped'") == 1
    assert server.value("SELECT count(*) FROM trajectories") == before
    assert "artifact.updated" not in result.stdout
    assert {"micro", "q0"} <= set(server.flow_runs("micro-1 q0")[0]["tags"])


@pytest.mark.timeout(900)
def test_a_run_like_another_is_a_new_one_with_its_settings(server: Server) -> None:
    result = server.spo("run", "--like", "micro-1", "--stage", "prepare")
    assert result.returncode == 0, result.stdout + result.stderr
    configs = "SELECT count(DISTINCT config_json) FROM runs WHERE run_id IN ('micro-1', 'micro-2')"
    assert server.value("SELECT count(DISTINCT run_id) FROM runs") == 2
    assert server.value(configs) == 1


def test_a_wrong_field_is_refused_at_submission_by_name(server: Server) -> None:
    result = server.prefect("deployment", "run", "spo/full-pipeline", "-p", 'overrides={"train": {"stepz": 3}}')
    assert result.returncode == 1
    assert "overrides.train" in result.stdout + result.stderr
    assert "stepz" in result.stdout + result.stderr


@pytest.mark.timeout(900)
def test_a_failed_run_names_the_field_and_leaves_no_run_behind(server: Server) -> None:
    overrides = 'overrides={"train": {"batch_size": 7}}'
    result = server.prefect(
        "deployment", "run", "spo/full-pipeline", "-p", f"recipe={MICRO}", "-p", overrides, "--watch"
    )
    assert result.returncode == 1
    assert "batch_size" in result.stdout
    assert server.value("SELECT count(DISTINCT run_id) FROM runs") == 2


def test_starting_again_changes_nothing(server: Server) -> None:
    before = {process.pid for process in server.processes()}
    assert server.spo("up").returncode == 0
    assert {process.pid for process in server.processes()} == before
