"""What a Prefect server is told: the work pool, the deployments, and how it notices that a run has died.

Errors
------
NotDeployed
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from flows.server.api import server_client
from flows.settings import POOL
from tasks.errors import CodedError

SILENT_AFTER_S = 90
"""Seconds without a heartbeat (one every 30 s) after which a run counts as dead."""
SILENT = f"no heartbeat for {SILENT_AFTER_S} s: its process is gone"
"""What the server says of such a run."""
IS_THERE = 409
WATCH = "spo: a run without heartbeat has crashed"


class NotDeployed(CodedError):
    """The server refused the work pool, a deployment or the automation."""


def deploy(say: Callable[[str], None], environment: Mapping[str, str], folder: Path) -> None:
    """Put deployments and automation in place, whatever was there before, and the pool if there is none.

    A pool that is there keeps what somebody has set: a limit, a pause, a job template. Raises NotDeployed.
    """
    api, command = environment["PREFECT_API_URL"], ["--no-prompt", "deploy", "--all"]
    make_pool(api)
    asked = [sys.executable, "-m", "prefect", *command]
    result = subprocess.run(asked, env=dict(environment), cwd=folder, capture_output=True, text=True)
    if result.returncode:
        output = (result.stdout + result.stderr)[-3000:]
        raise NotDeployed(f"`prefect {' '.join(command)}` failed:\n{output}")
    _watch_heartbeats(api)
    say("deployments are in place")


def make_pool(api: str) -> None:
    """The pool, if it is not there; the first worker that serves it puts its job template in."""
    try:
        with server_client(api) as client:
            answer = client.post("/work_pools/", json={"name": POOL, "type": "process"})
        if answer.status_code != IS_THERE:
            answer.raise_for_status()
    except httpx.HTTPError as error:
        raise NotDeployed(f"the pool {POOL!r} could not be made at {api}: {error}") from error


def _watch_heartbeats(api: str) -> None:
    """Let the server mark a run as crashed when its process and its worker are gone: nobody else can tell."""
    with server_client(api) as client:
        try:
            found = client.post("/automations/filter", json={"limit": 200}).raise_for_status().json()
            if all(automation["name"] != WATCH for automation in found):
                client.post("/automations/", json=automation()).raise_for_status()
        except httpx.HTTPError as error:
            raise NotDeployed(f"the automation {WATCH!r} could not be made at {api}: {error}") from error


def automation() -> dict[str, Any]:
    """After a flow run's heartbeat another one, or its end, is expected; else it is marked as crashed."""
    ends = ("Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended", "AwaitingRetry")
    return {
        "name": WATCH,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "match": {"prefect.resource.id": ["prefect.flow-run.*"]},
            "for_each": ["prefect.resource.id"],
            "after": ["prefect.flow-run.heartbeat"],
            "expect": ["prefect.flow-run.heartbeat", *(f"prefect.flow-run.{end}" for end in ends)],
            "threshold": 1,
            "within": SILENT_AFTER_S,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": SILENT,
            }
        ],
    }
