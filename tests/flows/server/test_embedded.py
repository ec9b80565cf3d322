"""Stopping the embedded server and worker, whose processes may end by themselves meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.server import embedded, processes, record
from flows.server.processes import record_of


def ended() -> psutil.Process:
    """A process that is gone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    child.communicate(b"\n")
    return process


def test_a_process_that_has_ended_is_stopped() -> None:
    processes.stop(ended())


def test_a_survivor_that_ends_just_before_it_is_killed_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ended()
    monkeypatch.setattr(processes, "_await_end", lambda *_: [gone])
    processes.stop(gone)


@pytest.mark.parametrize("changed", ["tasks/config/train.py", "flows/pipeline.py", "prefect.yaml"])
def test_what_the_deployments_are_made_of_is_deployed_again_once_it_changes(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prefect.yaml", "flows/pipeline.py", "tasks/config/train.py", "tasks/config/tree.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    monkeypatch.setattr(embedded, "PROJECT", tmp_path)
    before = embedded._fingerprint()
    assert embedded._fingerprint() == before
    (tmp_path / changed).write_text("something else", encoding="utf-8")
    assert embedded._fingerprint() != before


def test_the_server_of_a_home_is_left_alone_by_a_copy_of_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        monkeypatch.setenv("SPO_HOME", str(original))
        processes = {"server": record_of(child.pid), "worker": None}
        record.write({"port": embedded.port(), **processes})
        shutil.copytree(original, copy)
        assert embedded.running()["server"]
        assert record.foreign_record() is None

        monkeypatch.setenv("SPO_HOME", str(copy))
        said: list[str] = []
        assert not embedded.running()["server"]
        assert not embedded.usable()
        embedded.down(said.append)
        assert str(original) in said[0]
        assert "left alone" in said[0]
        assert child.poll() is None

        monkeypatch.setenv("SPO_HOME", str(original))
        embedded.down(said.append)
        assert "server stopped" in said
        child.wait(10)
    assert json.loads((copy / "embedded.json").read_text())["home"] == str(original)


def write_running(process: psutil.Process, *, code: Path, deployed: str) -> None:
    """A record in which one process stands for the server and the worker of this home."""
    this = record_of(process.pid)
    state = {"port": embedded.port(), "server": this, "worker": this | {"code": str(code)}}
    record.write(state | {"deployed": deployed})


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose server answers."""
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(embedded, "healthy", lambda *_, **__: True)
    return tmp_path


def test_a_command_is_not_given_to_a_worker_out_of_another_checkout(answering: Path) -> None:
    said: list[str] = []
    this = psutil.Process()
    write_running(this, code=embedded.PROJECT, deployed=embedded._fingerprint())
    embedded.ready(said.append)
    assert said == []

    write_running(this, code=answering / "elsewhere", deployed=embedded._fingerprint())
    with pytest.raises(embedded.OtherCode, match=r"elsewhere.*`spo down`"):
        embedded.ready(said.append)


@pytest.mark.usefixtures("answering")
def test_a_command_deploys_again_what_has_changed_since_the_server_started(monkeypatch: pytest.MonkeyPatch) -> None:
    deployed: list[str] = []
    monkeypatch.setattr(embedded, "_deploy", lambda _: deployed.append("deployed"))
    write_running(psutil.Process(), code=embedded.PROJECT, deployed="of an earlier version")
    for _ in range(2):
        embedded.ready(lambda _: None)
    assert deployed == ["deployed"]


@pytest.mark.usefixtures("answering")
def test_a_clock_that_was_set_leaves_server_and_worker_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    write_running(psutil.Process(), code=embedded.PROJECT, deployed="")
    monkeypatch.setattr(psutil, "boot_time", lambda: time.time() - 7)
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: time.time() + 1000)
    assert embedded.running() == {"server": True, "worker": True}
    this = record_of(os.getpid())
    assert processes.alive(this | {"started": this["started"] + 1}) is None
    assert processes.alive(this | {"boot": "another"}) is None
    assert processes.alive(this | {"pid": 2**22 + 1}) is None


def test_a_record_of_an_earlier_version_is_understood() -> None:
    this = psutil.Process()
    assert processes.alive({"pid": this.pid, "created": this.create_time()}) is not None
    assert processes.alive({"pid": this.pid, "created": this.create_time() - 5}) is None


@pytest.fixture
def started_on_n1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of a home whose server was started on another machine, and wrote just now; no time is waited."""
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)

    def starting(*_: Any, **__: Any) -> None:
        raise embedded.DidNotStart("it would have been started")

    monkeypatch.setattr(embedded, "_start_server", starting)
    there = {"pid": 4711, "boot": "another", "started": 1.0}
    state = {"home": str(tmp_path), "host": "n1", "port": embedded.port(), "server": there, "worker": there}
    (tmp_path / record.NAME).write_text(json.dumps(state))
    database = tmp_path / "prefect" / "prefect.db-wal"
    database.parent.mkdir()
    database.touch()
    return database


def pass_by(database: Path, monkeypatch: pytest.MonkeyPatch, *, writing_for_s: float) -> list[float]:
    """Let time pass by whenever it is waited; another machine's server writes for so long. The seconds that passed."""
    passed, begun, zero = [0.0], time.time(), time.monotonic()

    def sleep(seconds: float) -> None:
        passed[0] += seconds
        if passed[0] <= writing_for_s:
            os.utime(database, (begun + passed[0], begun + passed[0]))

    monkeypatch.setattr(embedded.time, "sleep", sleep)
    monkeypatch.setattr(embedded.time, "time", lambda: begun + passed[0])
    monkeypatch.setattr(embedded.time, "monotonic", lambda: zero + passed[0])
    return passed


def test_no_second_server_is_started_beside_one_that_writes_on_another_machine(
    started_on_n1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, said = pass_by(started_on_n1, monkeypatch, writing_for_s=10_000), list[str]()
    assert embedded.running() == {"server": False, "worker": False}
    assert "on n1" in str(record.foreign_record())
    with pytest.raises(embedded.OtherPlace, match=r"runs on n1 .* one home has one server: .* set SPO_HOME"):
        embedded.up(said.append)
    assert embedded.QUIET_S < passed[0] < embedded.QUIET_S + 10
    assert "started on n1 and wrote to its database" in said[0]


@pytest.mark.parametrize("writing_for_s", [0, 20])
def test_a_server_is_started_once_the_one_on_another_machine_has_been_silent(
    writing_for_s: float, started_on_n1: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed, said = pass_by(started_on_n1, monkeypatch, writing_for_s=writing_for_s), list[str]()
    for waited in (embedded.QUIET_S + writing_for_s, 0):
        began = passed[0]
        with pytest.raises(embedded.DidNotStart, match="would have been"):
            embedded.up(said.append)
        assert passed[0] - began == pytest.approx(waited, abs=5)
    assert sum("is started here once it has been silent for 120 s" in line for line in said) == 1


def test_a_server_is_stopped_after_its_machine_has_got_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        record.write({"port": embedded.port(), "server": record_of(child.pid), "worker": None})
        monkeypatch.setattr(record.socket, "gethostname", lambda: "renamed")
        assert embedded.running()["server"]
        said: list[str] = []
        embedded.down(said.append)
        assert "server stopped" in said
        child.wait(10)


def test_a_container_that_follows_another_on_this_machine_does_not_take_its_processes_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    there = record_of(os.getpid()) | {"started": 1.0}
    record.write({"port": embedded.port(), "server": there, "worker": there})
    monkeypatch.setattr(record.socket, "gethostname", lambda: "another-container")
    assert record.other_machine() is not None
    assert record.read() == {}


def test_a_server_on_another_port_is_named_instead_of_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        record.write({"port": 8, "server": record_of(child.pid), "worker": None})
        with pytest.raises(embedded.PortTaken, match=r"127\.0\.0\.1:8/api"):
            embedded.up(lambda _: None)
        child.kill()


def test_a_server_on_another_machine_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.invalid:4200/api")
    with pytest.raises(embedded.NotAnswering, match=r"prefect\.invalid"):
        embedded.up(lambda _: None)
    assert not (tmp_path / "none").exists()


def test_a_command_is_not_given_to_a_worker_that_writes_to_another_warehouse(
    answering: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPO_WAREHOUSE", raising=False)
    write_running(psutil.Process(), code=embedded.PROJECT, deployed=embedded._fingerprint())
    state = record.read()
    state["worker"]["warehouse"] = str(answering / "warehouse")
    record.write(state)
    embedded.ready(lambda _: None)

    monkeypatch.setenv("SPO_WAREHOUSE", str(answering / "other"))
    with pytest.raises(
        embedded.OtherPlace, match=r"writes to the warehouse .*/warehouse, .* about .*/other: .*`spo down`"
    ):
        embedded.ready(lambda _: None)


@pytest.mark.usefixtures("answering")
def test_what_is_started_is_recorded_with_its_warehouse_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_WAREHOUSE", "postgresql://me:secret@host/base?data=/shared")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: psutil.Process())
    started = embedded._start([], "worker")
    assert str(started["warehouse"]).startswith("postgresql://me@host/base")
    assert "secret" not in json.dumps(started)


def test_a_command_is_not_given_to_the_server_of_another_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listening = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    )
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setenv("SPO_HOME", str(other))
    monkeypatch.setattr(embedded, "healthy", lambda *_, **__: True)
    with subprocess.Popen(
        [sys.executable, "-c", listening], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{port}/api")
        this = record_of(child.pid)
        record.write({"port": port, "server": this, "worker": this, "deployed": embedded._fingerprint()})
        embedded.ready(lambda _: None)
        monkeypatch.setenv("SPO_HOME", str(tmp_path / "mine"))
        with pytest.raises(embedded.OtherPlace, match=r"is that of .*/other, .* home is .*/mine: export SPO_HOME="):
            embedded.ready(lambda _: None)
        child.kill()


def test_no_proxy_stands_before_the_server_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "intranet.example")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.server_port}/api")
        assert embedded.healthy()
        server.shutdown()
    assert asked == ["/api/health"]
    assert embedded.environment()["no_proxy"] == "intranet.example,127.0.0.1,localhost"
