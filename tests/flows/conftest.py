"""One embedded server for the session, in the home of a finished run, and what tests ask of it."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import httpx
import psutil
import pytest
import yaml
from prefect.context import refresh_global_settings_context
from typer.testing import CliRunner, Result

from flows.cli import watch
from flows.cli.main import app
from flows.server import embedded
from flows.server.api import server_client
from tests import fork_server
from tests.tasks.conftest import Lab, copy_home, finished  # noqa: F401  (a fixture)
from tests.tasks.forked_training import trainings_forked
from warehouse import Warehouse

PROJECT = Path(__file__).parents[2]
CALM = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Server:
    """An embedded server in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.environment = {**os.environ, "SPO_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.api = f"http://127.0.0.1:{port}/api"
        self.environment |= {"COLUMNS": "300", "PYTHONPATH": str(PROJECT), "PREFECT_API_URL": self.api}
        for name in ("SPO_PORT", "SPO_WAREHOUSE"):
            self.environment.pop(name, None)

    @contextmanager
    def here(self) -> Generator[None]:
        """Within the block this process is one in which commands for this home are typed."""
        try:
            with patch.dict(os.environ, self.environment | {"PREFECT_HOME": str(self.home / "prefect")}):
                os.environ.pop("SPO_WAREHOUSE", None)
                refresh_global_settings_context()
                yield
        finally:
            refresh_global_settings_context()

    def spo(self, *arguments: str) -> Result:
        """`spo ...` with this home, in this process."""
        with self.here():
            return CliRunner().invoke(app, arguments)

    def told(self, *arguments: str) -> str:
        """Returns the output of `spo ...`; raises what it raises."""
        result = self.spo(*arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`prefect ...` at this server."""
        return self.call("-m", "prefect", *arguments)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A Python process with this home, to its end."""
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=PROJECT, env=self.environment, capture_output=True, text=True, timeout=600)

    @cached_property
    def client(self) -> httpx.Client:
        """What asks it: one for all questions, since to make one costs more than to ask."""
        return server_client(self.api)

    def submit(self, deployment: str, **parameters: Any) -> str:
        """Flow run id of `deployment`, started with these parameters."""
        found = self.client.get(f"/deployments/name/spo/{deployment}").raise_for_status().json()
        asked = self.client.post(f"/deployments/{found['id']}/create_flow_run", json={"parameters": parameters})
        return str(asked.raise_for_status().json()["id"])

    def state(self, flow_run_id: str) -> str:
        """State type of a flow run."""
        return str(self.client.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()["state_type"])

    def wait(self, flow_run_id: str, *states: str, timeout_s: float = 600) -> str:
        """The state of a flow run once it is one of `states` (by default any final one)."""
        return until(lambda: (s := self.state(flow_run_id)) in (states or CALM) and s, timeout_s)

    def flow_runs(self, name: str) -> list[dict[str, Any]]:
        """The flow runs of that name."""
        return self.post("flow_runs/filter", {"flow_runs": {"name": {"any_": [name]}}})

    def artifacts(self, flow_run_id: str) -> list[dict[str, Any]]:
        """The artifacts of a flow run."""
        return self.post("artifacts/filter", {"flow_runs": {"id": {"any_": [flow_run_id]}}})

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """What the server answers."""
        return self.client.post(path, json=body).raise_for_status().json()

    def value(self, sql: str) -> Any:
        """First value of a query."""
        with Warehouse.open(self.home / "warehouse", read_only=True) as store:
            return store.value(sql)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a query."""
        with Warehouse.open(self.home / "warehouse", read_only=True) as store:
            return store.rows(sql)

    def wait_for(self, sql: str, timeout_s: float = 600) -> Any:
        """The first value of a query once it is true."""
        with Warehouse.open(self.home / "warehouse", read_only=True) as store:
            return until(lambda: store.value(sql), timeout_s, pause_s=0.1)

    def processes(self, *, of: str | None = None, running: str = "") -> list[psutil.Process]:
        """Everything alive that was started for this home, or for the flow run `of`, oldest first.

        `running`: in its command, or its name.
        """
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                mine = environment.get("SPO_HOME") == str(self.home) and process.status() != psutil.STATUS_ZOMBIE
                wanted = of is None or environment.get("PREFECT__FLOW_RUN_ID") == of
                if mine and wanted and running in " ".join([process.name(), *process.cmdline()]):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return sorted(found, key=lambda process: process.create_time())

    def kill(self, *, of: str | None = None, running: str = "") -> int:
        """Kill -9 the oldest such process; its number."""
        victim = until(lambda: self.processes(of=of, running=running), 60)[0]
        os.kill(victim.pid, signal.SIGKILL)
        return int(victim.pid)


def until(look: Callable[[], Any], timeout_s: float, *, pause_s: float = 0.3) -> Any:
    """What `look` returns once that is true; TimeoutError when it never is."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing after {timeout_s} s")
        time.sleep(pause_s)
    return found


ENDS_WITH_THE_TESTS = """
import os, sys
sys.stdin.read()
os.execv(sys.executable, [sys.executable, "-m", "flows.cli", "down"])
"""


@contextmanager
def running(home: Path) -> Generator[Server]:
    """A server, started in this home as people do it; `spo down` must leave nothing behind.

    A process that waits for the end of this one stops the server where the tests are killed.
    """
    server = Server(home)
    begun = server.call("-m", "flows.cli", "up")
    assert begun.returncode == 0, begun.stdout + begun.stderr
    waiting = [sys.executable, "-c", ENDS_WITH_THE_TESTS]
    with subprocess.Popen(
        waiting, stdin=subprocess.PIPE, cwd=PROJECT, env=server.environment, start_new_session=True
    ) as guard:
        yield server
        server.told("down")
        guard.kill()
    until(lambda: not server.processes(), 60)


@pytest.fixture(scope="session")
def started(finished: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:  # noqa: F811
    """The session's server, in a copy of the finished home."""
    home = tmp_path_factory.mktemp("server") / "home"
    copy_home(finished.home, home)
    fork_server.start()  # before it could take this home from the environment for its own
    with running(home) as server:
        yield server


@pytest.fixture
def server(started: Server) -> Server:
    """The session's server, up again where a test has stopped a part of it."""
    with started.here():
        embedded.ready(lambda _: None)
    return started


@pytest.fixture
def at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The session's server; flows that commands submit to it run in this process, which has imported everything.

    What they start for training is forked from the tests' fork server.
    """
    listed = yaml.safe_load((PROJECT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    entrypoints = {f"spo/{deployment['name']}": deployment["entrypoint"] for deployment in listed}

    def submit(deployment: str, parameters: Mapping[str, Any]) -> UUID:
        module, _, name = entrypoints[deployment].rpartition(".")
        state = getattr(importlib.import_module(module), name)(**parameters, return_state=True)
        return UUID(str(state.state_details.flow_run_id))

    monkeypatch.setenv("PREFECT_LOGGING_TO_API_ENABLED", "false")  # nobody reads these logs there
    monkeypatch.setattr(watch, "submit", submit)
    with trainings_forked():
        yield server
