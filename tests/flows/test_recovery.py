"""Killed flows, workers, trainers and servers, cancelled and doubled runs: nothing is lost, repeated or left running.

Every run trains on problems of its own (`problems.seed`), so that it has to sample.
"""

from __future__ import annotations

import signal
from typing import Any

import psutil
import pytest

from flows.server.deployments import SILENT
from flows.server.liveness import GRACE_S
from tests.flows.conftest import Server, until
from tests.tasks.conftest import MICRO

PROBLEMS, SAMPLES, STEPS, ONLINE_PER_STEP, EVALUATED, EVALUATION_SAMPLES = 6, 120, 4, 8, 4, 10
STAGES = "prepare q0 corpus pivotal train evaluate report"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("server"), pytest.mark.timeout(1500)]


def fresh(seed: int, samples: int = SAMPLES) -> dict[str, Any]:
    """Parameters of a run that finds nothing done."""
    overrides = {
        "problems": {"seed": seed},
        "reference": {"pretrain": {"steps": 40}},
        "q0": {"samples": samples, "problems_per_shard": 1},
    }
    return {"recipe": MICRO, "overrides": overrides}


def run_of(server: Server, flow_run_id: str) -> str:
    """Name of the run that a flow run created."""
    created = f"SELECT run_id FROM run_events WHERE kind = 'created' AND message = '{flow_run_id}'"
    return str(server.wait_for(created))


def assert_nothing_lost_or_repeated(server: Server, run: str, samples: int = SAMPLES) -> None:
    """The run is complete, and every sample, rollout, step and evaluation was paid for and stored once.

    `samples`: of Q0, a problem.
    """
    stages = f"SELECT string_agg(stage, ' ' ORDER BY first) FROM (SELECT stage, min(created_at) AS first FROM stages \
        WHERE run_id = '{run}' AND status = 'completed' GROUP BY stage)"
    assert server.value(stages) == STAGES
    once = f"SELECT max(n) FROM (SELECT count(*) AS n FROM stages WHERE run_id = '{run}' AND status = 'completed' \
        GROUP BY stage)"
    assert server.value(once) == 1
    counts = (
        f"SELECT list(n) FROM (SELECT sum(n) AS n FROM reference_counts WHERE run_id = '{run}' "
        f"AND starts_with(batch_id, 'q0/') GROUP BY problem_id)"
    )
    assert server.value(counts) == [samples] * PROBLEMS
    of_run = f"FROM trajectories WHERE run_id = '{run}'"
    assert server.value(f"SELECT count(*) {of_run} AND starts_with(batch_id, 'q0/')") == PROBLEMS * samples
    assert server.value(f"SELECT count(*) - count(DISTINCT trajectory_id) {of_run} AND source <> 'human'") == 0
    paid = server.value(f"SELECT sum(n) FROM token_values WHERE run_id = '{run}' AND starts_with(search_id, 'wave/')")
    assert paid == server.value(f"SELECT count(reward) {of_run} AND source = 'pivotal_rollout'")
    steps = f"SELECT list(step ORDER BY step) FROM train_batches WHERE run_id = '{run}'"
    assert server.value(steps) == list(range(1, STEPS + 1))
    used = f"(SELECT unnest(trajectory_ids) AS id, unnest(sources) AS source FROM train_batches WHERE run_id = '{run}')"
    assert server.value(f"SELECT count(DISTINCT id) FROM {used} WHERE source = 'online'") == STEPS * ONLINE_PER_STEP
    evaluated = f"SELECT list(n) FROM (SELECT count(*) AS n, policy_id FROM eval_samples WHERE run_id = '{run}' \
        GROUP BY policy_id)"
    assert server.value(evaluated) == [EVALUATED * EVALUATION_SAMPLES] * 3
    repeated = f"SELECT count(*) - count(DISTINCT (policy_id, problem_id, sample, seed)) FROM eval_samples \
        WHERE run_id = '{run}'"
    assert server.value(repeated) == 0
    assert server.spo("verify").exit_code == 0


def test_a_killed_flow_is_continued_by_its_stage_by_the_pipeline_and_by_a_retry(server: Server) -> None:
    first = server.submit("full-pipeline", **fresh(11))
    run = run_of(server, first)
    server.wait_for(f"SELECT count(*) FROM reference_counts WHERE run_id = '{run}'")
    server.kill(of=first)
    assert server.wait(first) == "CRASHED"
    assert 0 < server.value(f"SELECT count(*) FROM reference_counts WHERE run_id = '{run}'") < PROBLEMS

    stage = server.prefect("deployment", "run", "spo/q0", "-p", f"run={run}", "--watch")
    assert stage.returncode == 0, stage.stdout + stage.stderr
    assert server.value(f"SELECT count(*) FROM reference_counts WHERE run_id = '{run}'") == PROBLEMS

    second = server.submit("full-pipeline", run=run)
    server.wait_for(f"SELECT count(*) FROM trajectories WHERE run_id = '{run}' AND source = 'online'")
    server.kill(of=second)
    until(lambda: not server.processes(of=second), 90)
    assert server.wait(second) == "CRASHED"

    retried = server.prefect("flow-run", "retry", second)
    assert retried.returncode == 0, retried.stdout + retried.stderr
    server.wait(second, "SCHEDULED", "PENDING", "RUNNING", "COMPLETED")
    assert server.wait(second) == "COMPLETED"
    assert_nothing_lost_or_repeated(server, run)

    rows = "SELECT (SELECT count(*) FROM trajectories) + (SELECT count(*) FROM eval_samples) \
        + (SELECT count(*) FROM verdicts) + (SELECT count(*) FROM train_batches) + (SELECT count(*) FROM token_values)"
    before = server.value(rows)
    assert server.wait(server.submit("full-pipeline", run=run)) == "COMPLETED"
    newest = f"SELECT string_agg(stage, ' ' ORDER BY created_at) FROM (FROM stages WHERE run_id = '{run}' \
        AND status = 'skipped' ORDER BY created_at DESC LIMIT 7)"
    assert server.value(newest) == STAGES
    assert server.value(rows) == before


def test_neither_a_killed_worker_nor_trainer_nor_a_jump_of_the_clock_stops_a_run(server: Server) -> None:
    flow_run = server.submit("full-pipeline", **fresh(12))
    run = run_of(server, flow_run)
    server.wait_for(f"SELECT count(*) FROM reference_counts WHERE run_id = '{run}'")
    state = {"type": "CRASHED", "message": SILENT}
    server.post(f"flow_runs/{flow_run}/set_state", {"state": state, "force": True})
    assert server.wait(flow_run, "RUNNING", timeout_s=2 * GRACE_S) == "RUNNING"
    worker = server.kill(running="worker start")
    server.wait_for(f"SELECT count(*) FROM trajectories WHERE run_id = '{run}' AND source = 'online'")
    server.kill(of=flow_run, running="spo-trainer")
    assert server.wait(flow_run) == "COMPLETED"
    warnings = f"SELECT count(*) FROM run_events WHERE run_id = '{run}' AND kind = 'warning' \
        AND message LIKE 'trainer ended with status -9; starting it again%'"
    assert server.value(warnings) == 1
    assert_nothing_lost_or_repeated(server, run)
    server.told("up")
    assert [p.pid for p in server.processes(running="worker start")] != [worker]


def test_a_run_cancelled_while_it_trains_leaves_no_process_and_submitted_twice_goes_on_once(server: Server) -> None:
    flow_run = server.submit("full-pipeline", **fresh(13))
    run = run_of(server, flow_run)
    server.wait_for(f"SELECT count(*) FROM trajectories WHERE run_id = '{run}' AND source = 'online'")
    started = server.processes(of=flow_run)
    assert {"spo-trainer", "spo-worker"} <= {process.name() for process in started}
    assert server.prefect("flow-run", "cancel", flow_run).returncode == 0
    assert server.wait(flow_run) == "CANCELLED"
    until(lambda: not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE], 90)
    until(lambda: not server.processes(of=flow_run), 30)

    ended = f"SELECT count(*) FROM stages WHERE run_id = '{run}' AND status <> 'cancelled'"
    before = server.value(ended)
    twins = [server.submit("full-pipeline", run=run), server.submit("full-pipeline", run=run)]
    assert [server.wait(twin) for twin in twins] == ["COMPLETED", "COMPLETED"]
    assert_nothing_lost_or_repeated(server, run)
    assert server.value(ended) - before == 2 * len(STAGES.split())


def test_a_killed_server_costs_no_sample(server: Server) -> None:
    flow_run = server.submit("full-pipeline", **fresh(15))
    run = run_of(server, flow_run)
    server.wait_for(f"SELECT count(*) FROM reference_counts WHERE run_id = '{run}'")
    for process in server.processes(running="prefect server start"):
        process.send_signal(signal.SIGKILL)
    until(lambda: not server.processes(running="prefect server start"), 30)
    server.told("up")
    server.told("resume", run)
    until(lambda: not server.processes(of=flow_run), 120)
    assert_nothing_lost_or_repeated(server, run)
