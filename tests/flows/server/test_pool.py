"""The work pool is made once; what somebody sets in it afterwards stays."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.server import deployments

API = "http://127.0.0.1:9/api"


@pytest.mark.parametrize(("status", "made"), [(404, True), (200, False)])
def test_a_pool_that_is_there_is_left_as_it_is(status: int, made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command[4:])
        return subprocess.CompletedProcess(command, 0, "", "")

    def asked(address: str, **_: Any) -> httpx.Response:
        assert address == f"{API}/work_pools/spo"
        return httpx.Response(status, request=httpx.Request("GET", address))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(httpx, "get", asked)
    monkeypatch.setattr(deployments, "_watch_heartbeats", lambda _: None)
    deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())
    create = [["work-pool", "create", "spo", "--type", "process"]]
    assert commands == [*(create if made else []), ["deploy", "--all"]]


@pytest.mark.parametrize("there", [True, False])
def test_a_pool_that_a_worker_makes_meanwhile_is_no_failure(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []
    answers = iter([404, 200 if there else 404])

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command[4])
        return subprocess.CompletedProcess(command, int(command[4] == "work-pool"), "", "it says why")

    def asked(address: str, **_: Any) -> httpx.Response:
        return httpx.Response(next(answers), request=httpx.Request("GET", address))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(httpx, "get", asked)
    monkeypatch.setattr(deployments, "_watch_heartbeats", lambda _: None)
    if there:
        deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())
        assert commands == ["work-pool", "deploy"]
    else:
        with pytest.raises(deployments.NotDeployed, match="it says why"):
            deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())


def test_a_server_that_does_not_say_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(address: str, **_: Any) -> httpx.Response:
        return httpx.Response(500, request=httpx.Request("GET", address))

    monkeypatch.setattr(httpx, "get", broken)
    with pytest.raises(deployments.NotDeployed, match="does not say whether it has the pool 'spo'"):
        deployments.deploy(lambda _: None, {"PREFECT_API_URL": API}, Path())
