"""The embedded server and worker: whose they are, and what is refused rather than given to another's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import settings
from flows.server import deployments, embedded, processes, record
from flows.server.processes import record_of
from tests.flows.server.conftest import StandIn

Serves = Callable[..., None]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and no server that the environment names."""
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    for name in ("PREFECT_API_URL", "SPO_PORT", "SPO_WAREHOUSE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def serves(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Serves:
    """Writes a record in which this process is the server that answers, and the worker."""
    monkeypatch.setenv("SPO_PORT", str(stand_in.port))

    def write(deployed: str = embedded.fingerprint(), **worker: str) -> None:
        this = record_of(os.getpid())
        described = {"code": str(embedded.PROJECT), "warehouse": settings.warehouse_shown()} | worker
        state = {"port": embedded.port(), "server": this, "worker": this | described, "deployed": deployed}
        record.write(state)

    return write


class Clock:
    """Time that passes when it is waited for; another machine's server writes to the database for so long."""

    def __init__(self, database: Path, writing_for_s: float) -> None:
        self._begun, self.passed = time.time(), 0.0
        self._database, self._writing_for_s = database, writing_for_s

    def time(self) -> float:
        return self._begun + self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        if self.passed <= self._writing_for_s:
            os.utime(self._database, (self.time(), self.time()))


def test_what_the_deployments_are_made_of_is_known_again_until_it_changes(tmp_path: Path) -> None:
    names = ("prefect.yaml", "flows/pipeline.py", "tasks/config/train.py", "tasks/config/tree.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    known = {embedded.fingerprint(tmp_path), embedded.fingerprint(tmp_path)}
    assert len(known) == 1
    for name in names:
        (tmp_path / name).write_text("something else", encoding="utf-8")
        known.add(embedded.fingerprint(tmp_path))
    assert len(known) == 1 + len(names)


def test_the_server_of_a_home_is_left_alone_by_a_copy_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setenv("SPO_HOME", str(original))
        record.write({"port": embedded.port(), "server": record_of(child.pid), "worker": None})
        shutil.copytree(original, copy)
        assert record.foreign_record() is None

        monkeypatch.setenv("SPO_HOME", str(copy))
        said: list[str] = []
        assert embedded.running() == {"server": False, "worker": False}
        assert not embedded.usable()
        embedded.down(said.append)
        assert str(original) in said[0]
        assert child.poll() is None

        monkeypatch.setenv("SPO_HOME", str(original))
        state = json.loads((original / record.NAME).read_text())
        (original / record.NAME).write_text(json.dumps(state | {"host": "as this machine was called before"}))
        assert embedded.running() == {"server": True, "worker": False}
        embedded.down(said.append)
        child.wait(10)
    assert json.loads((copy / record.NAME).read_text())["home"] == str(original)


def test_commands_are_given_to_a_worker_of_this_code_and_warehouse_alone(
    home: Path, serves: Serves, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    serves()
    embedded.ready(said.append)
    assert said == []
    serves(code=str(home / "elsewhere"))
    with pytest.raises(embedded.OtherCode, match=str(home / "elsewhere")):
        embedded.ready(said.append)
    serves()
    monkeypatch.setenv("SPO_WAREHOUSE", str(home / "other"))
    with pytest.raises(embedded.OtherPlace, match=str(home / "other")):
        embedded.ready(said.append)


def test_what_has_changed_since_the_server_started_is_deployed_again(serves: Serves, stand_in: StandIn) -> None:
    stand_in.answer = lambda _, path: (500 if "work_pools" in path else 200, {})
    serves(deployed="of an earlier version")
    with pytest.raises(deployments.NotDeployed, match=stand_in.api):
        embedded.ready(lambda _: None)
    serves()
    embedded.ready(lambda _: None)


def test_a_process_is_told_from_another_with_its_number(home: Path) -> None:
    this = record_of(os.getpid())
    assert processes.alive(this) is not None
    assert processes.alive({"pid": this["pid"], "created": psutil.Process().create_time()}) is not None, "version 0.1"
    for change in ({"started": this["started"] + 1}, {"boot": "another"}, {"pid": 2**22 + 1}):
        assert processes.alive(this | change) is None
    state = {"port": 1, "server": this | {"started": 1.0}, "worker": None}
    (home / record.NAME).write_text(json.dumps(state | {"home": str(home), "host": "another-container"}))
    assert record.other_machine() == "another-container"
    assert record.read() == {}


@pytest.mark.parametrize("writing_for_s", [0, 20, 10_000])
def test_no_second_server_is_started_beside_one_that_writes_on_another_machine(
    writing_for_s: float, home: Path
) -> None:
    there = {"pid": 4711, "boot": "another", "started": 1.0}
    state = {"home": str(home), "host": "n1", "port": embedded.port(), "server": there, "worker": there}
    (home / record.NAME).write_text(json.dumps(state))
    database = home / "prefect" / "prefect.db-wal"
    database.parent.mkdir()
    database.touch()
    clock, said = Clock(database, writing_for_s), list[str]()
    if writing_for_s > embedded.QUIET_S:
        with pytest.raises(embedded.OtherPlace, match="n1"):
            embedded.await_silence(said.append, clock)
        assert embedded.QUIET_S < clock.passed < embedded.QUIET_S + 10
    else:
        embedded.await_silence(said.append, clock)
        assert clock.passed == pytest.approx(embedded.QUIET_S + writing_for_s, abs=5)
    assert len(said) == 1


def test_a_server_on_another_port_or_machine_is_named_instead_of_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    record.write({"port": 8, "server": record_of(os.getpid()), "worker": None})
    with pytest.raises(embedded.PortTaken, match=r"127\.0\.0\.1:8/api"):
        embedded.up(lambda _: None)
    monkeypatch.setenv("SPO_HOME", str(home / "none"))
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.invalid:4200/api")
    with pytest.raises(embedded.NotAnswering, match=r"prefect\.invalid"):
        embedded.up(lambda _: None)
    assert not (home / "none").exists()


def test_a_port_that_another_program_has_is_not_used_and_a_free_one_is_named(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_PORT", str(stand_in.port))
    assert embedded.healthy()
    assert not embedded.usable()
    with pytest.raises(embedded.PortTaken) as refused:
        embedded.ready(lambda _: None)
    advice = re.search(r"export (PREFECT_API_URL)=(http://127.0.0.1:\d+/api)", str(refused.value))
    assert advice is not None
    monkeypatch.setenv(*advice.groups())
    assert settings.api_url() == advice[2] == f"http://127.0.0.1:{settings.port()}/api"
    assert not settings.server_elsewhere()


LISTENS = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
server = HTTPServer(("127.0.0.1", 0), Healthy)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_a_command_is_not_given_to_the_server_of_another_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = home / "other"
    other.mkdir()
    monkeypatch.setenv("SPO_HOME", str(other))
    with subprocess.Popen([sys.executable, "-c", LISTENS], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{port}/api")
        this: dict[str, Any] = record_of(child.pid)
        record.write({"port": port, "server": this, "worker": this, "deployed": embedded.fingerprint()})
        embedded.ready(lambda _: None)
        monkeypatch.setenv("SPO_HOME", str(home / "mine"))
        with pytest.raises(embedded.OtherPlace, match=str(other)):
            embedded.ready(lambda _: None)
        child.kill()


def test_no_proxy_stands_before_the_server_of_this_machine(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "intranet.example")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("PREFECT_API_URL", stand_in.api)
    assert embedded.healthy()
    assert [path for _, path, _ in stand_in.asked] == ["/api/health"]
    assert embedded.environment()["no_proxy"] == "intranet.example,127.0.0.1,localhost"
