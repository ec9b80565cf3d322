"""The work pool is made once; what somebody sets in it afterwards stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.server import api, deployments, orphans

API = "http://127.0.0.1:9/api"


def answer_with(monkeypatch: pytest.MonkeyPatch, handler: Callable[[httpx.Request], httpx.Response]) -> None:
    """Let a function answer in the server's place."""
    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda _, request: handler(request))
    monkeypatch.setattr(api, "PAUSES_S", (0, 0))


@pytest.mark.parametrize("status", [201, 409])
def test_a_pool_is_made_or_left_as_it_is(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers 409 where there is one, whoever made it, also meanwhile: a worker makes the pool it lacks."""
    commands: list[list[str]] = []
    asked: list[tuple[str, str, Any]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command[3:])
        return subprocess.CompletedProcess(command, 0, "", "")

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, str(request.url), json.loads(request.content)))
        return httpx.Response(status)

    monkeypatch.setattr(subprocess, "run", run)
    answer_with(monkeypatch, answer)
    monkeypatch.setattr(deployments, "_watch_heartbeats", lambda _: None)
    deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())
    assert asked == [("POST", f"{API}/work_pools/", {"name": "spo", "type": "process"})]
    assert commands == [["--no-prompt", "deploy", "--all"]]


def test_a_server_that_makes_no_pool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, lambda _: httpx.Response(500))
    with pytest.raises(deployments.NotDeployed, match=f"the pool 'spo' could not be made at {API}: .*500"):
        deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())


def test_deployments_that_are_refused_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, lambda _: httpx.Response(201))
    refused = subprocess.CompletedProcess([""], 1, "", "it says why")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(deployments.NotDeployed, match=r"(?s)`prefect .*deploy --all` failed.*it says why"):
        deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())


def test_a_server_whose_database_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def busy_at_first(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 1:
            return httpx.Response(503)
        return httpx.Response(200, json=[{"id": "1", "name": "left behind", "state_type": "RUNNING"}])

    answer_with(monkeypatch, busy_at_first)
    assert orphans.end_orphans(API) == ["left behind"]
    assert asked == ["/api/flow_runs/filter"] * 2 + ["/api/flow_runs/1/set_state"]


def test_starting_a_server_does_not_fix_the_settings_of_prefects_client() -> None:
    """It reads the server's address once, when it is imported, and a command that submits a run says it afterwards."""
    code = f"""
import sys
import httpx
from flows.server.orphans import end_orphans
try:
    end_orphans("{API}")
except httpx.ConnectError:
    print("prefect" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
