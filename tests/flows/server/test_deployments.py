"""The deployments on the session's server: the pipeline, killed on its way, refused parameters, the next start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Completed, Failed, Running, State

from flows import pipeline
from flows.cli import watch
from flows.server import retention
from tests.flows.conftest import Server
from tests.flows.test_recovery import assert_nothing_lost_or_repeated, fresh, run_of
from tests.tasks.conftest import MICRO

pytestmark = [pytest.mark.xdist_group("server"), pytest.mark.timeout(600)]


def test_starting_again_changes_nothing(server: Server) -> None:
    before = {process.pid for process in server.processes()}
    assert len(before) >= 2
    server.told("up")
    assert {process.pid for process in server.processes()} == before


def test_a_killed_pipeline_goes_on_to_its_result_while_one_of_its_stages_is_asked_for_a_second_time(
    server: Server,
) -> None:
    """It is killed in Q0; then the pipeline and, in this process, Q0 alone do the same key at once: it is done once."""
    killed = server.submit("full-pipeline", **fresh(11, samples=96))
    run = run_of(server, killed)
    server.wait_for(f"SELECT count(*) FROM reference_counts WHERE run_id = '{run}'")
    server.kill(of=killed)
    assert server.wait(killed) == "CRASHED"
    ended = f"SELECT list(status ORDER BY created_at) FROM stages WHERE run_id = '{run}' AND stage = 'q0'"
    assert "completed" not in (server.value(ended) or [])

    resumed = server.submit("full-pipeline", run=run)
    server.wait(resumed, "RUNNING")
    assert f"{run}: running" in server.told("status")
    with server.here():
        pipeline.q0(run=run)
    assert server.wait(resumed) == "COMPLETED"
    assert sorted(server.value(ended))[-2:] == ["completed", "skipped"]
    assert_nothing_lost_or_repeated(server, run, samples=96)
    (shown,) = (found for found in server.flow_runs(run) if found["id"] == resumed)
    assert {"micro", "full-pipeline"} <= set(shown["tags"])
    assert shown["state"]["message"].startswith(f"{run}: pass@")
    assert sorted(artifact["key"] for artifact in server.artifacts(resumed)) == ["spo-result", "spo-stages"]

    before = server.value("SELECT count(*) FROM stages"), len(server.flow_runs(run))
    told = server.told("resume", run)
    assert "pass@10" in told
    assert str(server.home / "runs" / run) in told.replace("\n", "")
    assert (server.value("SELECT count(*) FROM stages"), len(server.flow_runs(run))) == before


def test_what_the_server_refuses_makes_no_flow_run(server: Server) -> None:
    with server.here():
        with pytest.raises(watch.NotDeployed):
            watch.submit("spo/absent", {})
        with pytest.raises(watch.NotAccepted, match="stepz"):
            watch.submit("spo/full-pipeline", {"overrides": {"train": {"stepz": 3}}})
    with pytest.raises(httpx.HTTPStatusError):
        server.submit("full-pipeline", recipe=MICRO, overrides={"train": {"steps": "many"}})
    assert server.value("SELECT count(*) FROM runs WHERE recipe <> 'micro'") == 0


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
    server.told("up")
    found = {name: server.flow_runs(name)[0]["state"]["type"] for name in wanted}
    assert found == {"running": "CRASHED", "stopping": "CANCELLED", "waiting": "SCHEDULED"}


@flow(name="nothing")
def nothing() -> None:
    """A flow that is only recorded."""


def test_flow_runs_that_ended_before_a_moment_are_found_and_forgotten_and_no_others(server: Server) -> None:
    def flow_run(state: State[Any]) -> UUID:
        found = client.create_flow_run(nothing).id
        client.set_flow_run_state(found, state, force=True)
        return found

    with server.here(), get_client(sync_client=True) as client:
        under_way, old = flow_run(Running()), {flow_run(Completed()), flow_run(Failed())}
        moment = datetime.now(UTC)
        newer = flow_run(Completed())
        found = set(retention.ended_before(client, moment))
        assert (old & found, {under_way, newer} & found) == (old, set())
        for _ in range(2):
            retention.forget(client, sorted(old))
        assert not old & set(retention.ended_before(client, moment))
        assert [client.read_flow_run(one).state.type.value for one in (under_way, newer)] == ["RUNNING", "COMPLETED"]
        retention.forget(client, [under_way, newer])
