"""Shards on a Ray cluster of two nodes: the same samples as in one process, on both nodes, once."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.ray_shards import divided, executor_of, fan_out, remote_task
from tasks.config import ShardsConfig
from tasks.run.stage import run_locally
from tests.flows.conftest import Server, running
from tests.ray_cluster import cluster  # noqa: F401  (a fixture)
from tests.tasks.conftest import MICRO, Lab
from warehouse import Warehouse


def test_work_is_divided_into_nearly_equal_parts_and_each_unit_once() -> None:
    work = {f"p{i}": amount for i, amount in enumerate([800, 10, 10, 400, 400, 790])}
    parts = divided(work, 3)
    assert sorted(sum(part.values()) for part in parts) == [800, 800, 810]
    assert {unit: amount for part in parts for unit, amount in part.items()} == work
    assert divided({"p": 1, "q": 2}, 8) == [{"q": 2}, {"p": 1}]
    assert divided({}, 4) == []


def test_the_recipe_chooses_who_does_the_shards() -> None:
    assert executor_of(ShardsConfig()) is run_locally


def test_what_prefect_keeps_of_the_shards_holds_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_WAREHOUSE", "postgresql://spo:SECRET@host/db?data=/shared")
    context: Any = SimpleNamespace(run_id="tiny-1", pin=None)
    remote = remote_task(lambda _: nullcontext(lambda *_: 0), context)
    assert "spo@host/db" in remote.warehouse
    assert "SECRET" not in json.dumps(fan_out.serialize_parameters({"remote": remote}), default=repr)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_q0_on_two_ray_nodes_draws_the_same_samples_as_one_process(
    cluster: str,  # noqa: F811
    finished: Lab,
    tmp_path: Path,
) -> None:
    shards = {"runner": "ray", "address": cluster, "tasks": 2}
    drawn = "SELECT list(trajectory_id ORDER BY trajectory_id) FROM trajectories WHERE starts_with(batch_id, 'q0/')"
    counts = "SELECT list((problem_id, n, k) ORDER BY problem_id) FROM (SELECT problem_id, sum(n) AS n, sum(k) AS k \
        FROM reference_counts WHERE starts_with(batch_id, 'q0/') GROUP BY problem_id)"
    Warehouse.open(tmp_path / "warehouse").close()
    with running(tmp_path) as server:
        flow_run = server.submit("q0", recipe=MICRO, overrides={"shards": shards})
        assert server.wait(flow_run, timeout_s=400) == "COMPLETED"
        assert server.value(drawn) == finished.value(drawn)
        assert server.value(counts) == finished.value(counts)
        assert len(nodes_used(server)) == 2


def nodes_used(server: Server) -> set[str]:
    """Nodes that the logs of the parts name."""
    logs = server.post("logs/filter", {"limit": 200})
    return {line["message"].rsplit(" ", 1)[-1] for line in logs if " units on node " in line["message"]}
