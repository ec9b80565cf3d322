"""Flow runs whose process ended while no server was there to notice: after `spo down`, a kill, a restart.

A run is marked as crashed when its heartbeats cease, by an automation whose clock starts with the last heartbeat that
a server heard. One that was not running then never does so.
"""

from __future__ import annotations

from typing import Any

import psutil

from flows.server.api import server_client
from flows.server.deployments import SILENT
from flows.settings import POOL

UNDER_WAY = ("PENDING", "RUNNING", "CANCELLING")


def end_orphans(api: str) -> list[str]:
    """End the flow runs that are said to be under way and have no process on this machine; their names.

    What was being cancelled is cancelled, the rest has crashed. One that lives elsewhere puts itself back
    (`flows.server.liveness`).
    """
    asked = {
        "flow_runs": {"state": {"type": {"any_": list(UNDER_WAY)}}},
        "work_pools": {"name": {"any_": [POOL]}},
    }
    ended: list[str] = []
    with server_client(api) as client:
        said: list[dict[str, Any]] = client.post("/flow_runs/filter", json=asked).raise_for_status().json()
        alive = _alive() if said else set[str]()
        for run in said:
            if run["id"] in alive:
                continue
            kind = "CANCELLED" if run["state_type"] == "CANCELLING" else "CRASHED"
            change = {"state": {"type": kind, "name": kind.title(), "message": SILENT}, "force": True}
            client.post(f"/flow_runs/{run['id']}/set_state", json=change).raise_for_status()
            ended.append(str(run["name"]))
    return ended


def _alive() -> set[str]:
    """Ids of the flow runs that processes of this machine work on."""
    found: set[str] = set()
    for process in psutil.process_iter():
        try:
            found.add(process.environ().get("PREFECT__FLOW_RUN_ID", ""))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
