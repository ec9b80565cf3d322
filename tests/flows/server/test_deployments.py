"""The deployments on a real embedded server: the pipeline, killed on its way, a stage, refused parameters, the end."""

from __future__ import annotations

import subprocess
import sys
from subprocess import PIPE, STDOUT

import pytest

from tests.flows.conftest import PROJECT, Server
from tests.flows.test_recovery import assert_nothing_lost_or_repeated
from tests.tasks.conftest import MICRO


@pytest.mark.timeout(900)
def test_a_killed_pipeline_says_how_to_go_on_and_does_so_to_its_result(server: Server) -> None:
    command = [sys.executable, "-m", "flows.cli", "run", MICRO]
    with subprocess.Popen(command, cwd=PROJECT, env=server.environment, stdout=PIPE, stderr=STDOUT, text=True) as run:
        flow_run = server.wait_for("SELECT message FROM run_events WHERE kind = 'created'")
        under_way = server.spo("status").stdout
        server.wait_for("SELECT count(*) FROM reference_counts")
        server.kill(of=flow_run)
        said, _ = run.communicate(timeout=300)
    assert run.returncode == 1, said
    assert "micro-1: running, flow run micro-1" in under_way
    assert "Under way  nothing" in server.spo("status").stdout
    assert "micro-1 ended as CRASHED" in said
    assert "spo resume micro-1" in said
    assert server.value("SELECT count(*) FROM stages WHERE stage = 'q0' AND status = 'completed'") == 0

    result = server.spo("resume", "micro-1")
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ("pass@10", "before", "after", "Warehouse", "learning_curve.png", 'spo sql "SELECT'):
        assert words in result.stdout
    assert_nothing_lost_or_repeated(server, "micro-1", samples=24)
    (run,) = (run for run in server.flow_runs("micro-1") if run["state"]["type"] == "COMPLETED")
    assert {"micro", "full-pipeline"} <= set(run["tags"])
    assert run["state"]["message"].startswith("micro-1: pass@")
    assert sorted(artifact["key"] for artifact in server.artifacts(run["id"])) == ["spo-result", "spo-stages"]


def test_continuing_what_is_done_shows_the_result_and_starts_nothing(server: Server) -> None:
    before = len(server.flow_runs("micro-1"))
    result = server.spo("resume", "micro-1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "every stage of micro-1 is done" in result.stdout
    assert "pass@10" in result.stdout
    assert len(server.flow_runs("micro-1")) == before


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


def test_a_server_without_the_deployment_is_named_with_the_way_on(server: Server) -> None:
    command = [sys.executable, "-c", "from flows.cli import watch; watch.submit('spo/absent', {})"]
    result = subprocess.run(command, cwd=PROJECT, env=server.environment, capture_output=True, text=True, check=False)
    assert f"the Prefect server at {server.api} has no deployment 'spo/absent'; `spo up` deploys to it" in result.stderr


def test_a_wrong_field_is_refused_at_submission_by_name(server: Server) -> None:
    result = server.prefect("deployment", "run", "spo/full-pipeline", "-p", 'overrides={"train": {"stepz": 3}}')
    assert result.returncode == 1
    assert "overrides.train" in result.stdout + result.stderr
    assert "stepz" in result.stdout + result.stderr


@pytest.mark.timeout(900)
def test_a_failed_run_names_the_field_and_leaves_no_run_behind(server: Server) -> None:
    overrides, runs = 'overrides={"train": {"batch_size": 7}}', "SELECT count(DISTINCT run_id) FROM runs"
    before = server.value(runs)
    result = server.prefect(
        "deployment", "run", "spo/full-pipeline", "-p", f"recipe={MICRO}", "-p", overrides, "--watch"
    )
    assert result.returncode == 1
    assert "batch_size" in result.stdout
    assert server.value(runs) == before


def test_starting_again_changes_nothing(server: Server) -> None:
    before = {process.pid for process in server.processes()}
    assert server.spo("up").returncode == 0
    assert {process.pid for process in server.processes()} == before


@pytest.mark.timeout(300)
def test_a_run_whose_process_ended_while_nothing_ran_is_ended_by_the_next_start(server: Server) -> None:
    (deployment,) = server.post("deployments/filter", {"deployments": {"name": {"any_": ["q0"]}}})
    wanted = {"running": "RUNNING", "stopping": "CANCELLING", "waiting": "SCHEDULED"}
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": "2999-01-01T00:00:00Z"}}
    for name, kind in wanted.items():
        path = f"deployments/{deployment['id']}/create_flow_run"
        run = server.post(path, {"name": name, "state": later})
        if kind != "SCHEDULED":
            server.post(f"flow_runs/{run['id']}/set_state", {"state": {"type": kind}, "force": True})
    server.kill(running="worker start")
    said = server.spo("up").stdout
    assert "running was under way when its process ended" in said
    found = {name: server.flow_runs(name)[0]["state"]["type"] for name in wanted}
    assert found == {"running": "CRASHED", "stopping": "CANCELLED", "waiting": "SCHEDULED"}
