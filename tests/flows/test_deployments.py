"""The deployments on a real embedded server: the pipeline, a stage alone, refused parameters, a clean end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.stages.conftest import MICRO, Lab, finished  # noqa: F401  (a fixture)
from warehouse import Warehouse

PROJECT = Path(__file__).parents[2]


class Server:
    """An embedded server in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.environment = {**os.environ, "SPO_HOME": str(home), "SPO_PORT": str(port), "OMP_NUM_THREADS": "1"}
        self.environment |= {"COLUMNS": "300", "PYTHONPATH": str(PROJECT)}
        for name in ("PREFECT_API_URL", "SPO_WAREHOUSE"):
            self.environment.pop(name, None)
        self.api = f"http://127.0.0.1:{port}/api"

    def spo(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._call(["-m", "flows.cli", *arguments])

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._call(["-m", "prefect", *arguments], PREFECT_API_URL=self.api)

    def _call(self, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        environment = self.environment | more
        return subprocess.run(
            [sys.executable, *command], cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=600
        )

    def value(self, sql: str) -> Any:
        with Warehouse.open(self.home / "warehouse", read_only=True) as store:
            return store.value(sql)

    def processes(self) -> list[psutil.Process]:
        """Everything alive that was started for this home."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("SPO_HOME") == str(self.home) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


@pytest.fixture(scope="module")
def server(finished: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:  # noqa: F811
    home = tmp_path_factory.mktemp("server")
    shutil.copytree(finished.home / "models", home / "models")
    running = Server(home)
    result = running.spo("up")
    assert result.returncode == 0, result.stdout + result.stderr
    yield running
    assert running.spo("down").returncode == 0
    deadline = time.monotonic() + 30
    while running.processes() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert running.processes() == []


@pytest.mark.timeout(900)
def test_the_pipeline_runs_as_a_deployment_and_shows_its_result(server: Server) -> None:
    result = server.spo("run", MICRO)
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ("pass@10", "before", "after", "Warehouse", "learning_curve.png", 'spo sql "SELECT'):
        assert words in result.stdout
    stages = "SELECT string_agg(stage, ' ' ORDER BY created_at) FROM stages WHERE status = 'completed'"
    assert server.value(stages) == "prepare q0 corpus pivotal train evaluate report"


@pytest.mark.timeout(900)
def test_a_stage_runs_alone_and_is_skipped_when_it_is_done(server: Server) -> None:
    before = server.value("SELECT count(*) FROM trajectories")
    result = server.prefect("deployment", "run", "spo/q0", "-p", "run=micro-1", "--watch")
    assert result.returncode == 0, result.stdout + result.stderr
    assert server.value("SELECT count(*) FROM stages WHERE stage = 'q0' AND status = 'skipped'") == 1
    assert server.value("SELECT count(*) FROM trajectories") == before


def test_a_wrong_field_is_refused_at_submission_by_name(server: Server) -> None:
    result = server.prefect("deployment", "run", "spo/full-pipeline", "-p", 'overrides={"train": {"stepz": 3}}')
    assert result.returncode == 1
    assert "overrides.train" in result.stdout + result.stderr
    assert "stepz" in result.stdout + result.stderr


@pytest.mark.timeout(900)
def test_a_failed_run_names_the_field_and_leaves_no_run_behind(server: Server) -> None:
    overrides = 'overrides={"train": {"batch_size": 7}}'
    result = server.prefect(
        "deployment", "run", "spo/full-pipeline", "-p", f"recipe={MICRO}", "-p", overrides, "--watch"
    )
    assert result.returncode == 1
    assert server.value("SELECT count(*) FROM runs") == 1


def test_starting_again_changes_nothing(server: Server) -> None:
    before = {process.pid for process in server.processes()}
    assert server.spo("up").returncode == 0
    assert {process.pid for process in server.processes()} == before
