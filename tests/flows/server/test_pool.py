"""The work pool is made once, faults are named, and a server that is busy is asked again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flows.server import deployments, orphans
from tests.flows.server.conftest import StandIn


@pytest.mark.parametrize("status", [201, 409])
def test_a_pool_is_made_or_left_as_it_is(status: int, stand_in: StandIn) -> None:
    """The server answers 409 where there is one, whoever made it, also meanwhile: a worker makes the pool it lacks."""
    stand_in.answer = lambda *_: (status, {})
    deployments.make_pool(stand_in.api)
    assert stand_in.asked == [("POST", "/api/work_pools/", {"name": "spo", "type": "process"})]


def test_deployments_that_are_refused_say_why(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "prefect.py").write_text("raise SystemExit('it says why')\n", encoding="utf-8")
    environment = os.environ | {"PREFECT_API_URL": stand_in.api, "PYTHONPATH": str(tmp_path)}
    with pytest.raises(deployments.NotDeployed, match="it says why"):
        deployments.deploy(lambda _: None, environment, tmp_path)
    stand_in.answer = lambda *_: (500, {})
    with pytest.raises(deployments.NotDeployed, match="500"):
        deployments.deploy(lambda _: None, environment, tmp_path)


def test_a_server_whose_database_is_busy_is_asked_again(stand_in: StandIn) -> None:
    found = [{"id": "1", "name": "left behind", "state_type": "RUNNING"}]
    stand_in.answer = lambda *_: (503, {}) if len(stand_in.asked) == 1 else (200, found)
    assert orphans.end_orphans(stand_in.api) == ["left behind"]
    asked = [path for _, path, _ in stand_in.asked]
    assert asked == ["/api/flow_runs/filter"] * 2 + ["/api/flow_runs/1/set_state"]
