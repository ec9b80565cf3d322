"""What a Prefect server says is under way, asked over its plain HTTP interface.

Prefect's client takes a second to import, which is most of what `spo status` may take; so it is used for a server on
another machine alone, where it knows keys and certificates.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from flows.progress import ARTIFACT_KEY, StageRow
from flows.server.embedded import use_server
from flows.settings import api_url, server_elsewhere

GOING = ["SCHEDULED", "PENDING", "RUNNING", "CANCELLING"]
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Active:
    """A flow run that has not ended."""

    run_id: str
    """Run of the pipeline that it works on; empty before its first stage, and for studies."""
    name: str
    state: str
    lines: list[StageRow]


def active() -> list[Active]:
    """The flow runs of this project that wait or run, oldest first."""
    found = _post(
        "/flow_runs/filter", {"flows": {"name": {"any_": ["spo"]}}, "flow_runs": {"state": {"type": {"any_": GOING}}}}
    )
    return [_with_table(run) for run in sorted(found, key=lambda run: str(run["created"]))]


def _with_table(run: dict[str, Any]) -> Active:
    wanted = {"flow_run_id": {"any_": [run["id"]]}, "key": {"any_": [ARTIFACT_KEY]}}
    tables = _post("/artifacts/filter", {"artifacts": wanted})
    table = max(tables, key=lambda artifact: str(artifact["created"]), default={})
    lines = [StageRow(**line) for line in json.loads(table.get("data") or "[]")]
    title = table.get("description") or ""
    return Active(title.removeprefix("run "), run["name"], run["state_name"] or "", lines)


def _post(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    if server_elsewhere():
        use_server()
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            return client.request("POST", path, json=body).json()  # pyright: ignore[reportArgumentType]
    asked = urllib.request.Request(
        f"{api_url()}{path}", data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
        return json.load(answer)
