"""Forked processes of a training run are what a start from nothing would have given, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.train.shared import fork_server
from tasks.train.shared.fork_server import ForkedProcess

WORKER = [sys.executable, "-m", "tasks.train.rollout_worker.worker"]
WAITING = [sys.executable, "-m", "tasks.train.shared.fork_server", "0"]
"""A process that waits until its standard input, a socket, closes."""


def started_once() -> psutil.Process:
    before = set(psutil.Process().children())
    fork_server.start()
    fork_server.start()
    (started,) = set(psutil.Process().children()) - before
    return started


@pytest.fixture(scope="module")
def server() -> Iterator[psutil.Process]:
    started = started_once()
    yield started
    fork_server.stop()
    assert not started.is_running()


@pytest.fixture
def stdin() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def forked(command: list[str], stdin: socket.socket, errors: Path) -> ForkedProcess:
    with errors.open("ab") as stream:
        streams = [stdin.fileno(), stream.fileno(), stream.fileno()]
        process = fork_server.forked(command, streams, {**os.environ, "SPO_TEST": "given"})
    assert process is not None
    return process


@pytest.mark.usefixtures("server")
def test_it_ends_as_a_process_started_from_nothing(tmp_path: Path, stdin: tuple[socket.socket, socket.socket]):
    for arguments in (["job.json"], [str(tmp_path / "absent.json"), "--index", "0"]):
        log = tmp_path / "log"
        log.write_bytes(b"")
        process = forked([*WORKER, *arguments], stdin[1], log)
        alone = subprocess.run([*WORKER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert process.wait(30) == process.poll() == alone.returncode
        assert log.read_text().splitlines()[-1] == alone.stdout.decode().splitlines()[-1]


@pytest.mark.usefixtures("server")
def test_it_leads_a_session_of_its_own_with_its_environment_priority_and_name(
    tmp_path: Path, stdin: tuple[socket.socket, socket.socket]
):
    process = forked(["nice", "-n", "3", *WAITING], stdin[1], tmp_path / "log")
    seen = psutil.Process(process.pid)
    wait_until(lambda: os.getsid(process.pid) == process.pid and seen.nice() == psutil.Process().nice() + 3)
    wait_until(lambda: seen.name() == "spo-fork_server")
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


@pytest.mark.usefixtures("server")
def test_it_sees_its_standard_input_close(tmp_path: Path, stdin: tuple[socket.socket, socket.socket]):
    process = forked(WAITING, stdin[1], tmp_path / "log")
    stdin[1].close()
    stdin[0].close()
    assert process.wait(30) == 0, (tmp_path / "log").read_text()


def test_a_stop_of_everything_leaves_it_until_its_processes_have_ended(
    server: psutil.Process, tmp_path: Path, stdin: tuple[socket.socket, socket.socket]
):
    process = forked(WAITING, stdin[1], tmp_path / "log")
    server.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    assert server.is_running()
    stdin[1].close()
    stdin[0].close()
    assert process.wait(30) == 0, "it was not taken for killed"


def test_what_is_imported_starts_no_thread(
    server: psutil.Process, tmp_path: Path, stdin: tuple[socket.socket, socket.socket]
):
    forked([*WORKER, "--help"], stdin[1], tmp_path / "log").wait(60)  # it has imported everything then
    assert server.num_threads() == 1


@pytest.mark.usefixtures("server")
def test_other_commands_are_not_forked(stdin: tuple[socket.socket, socket.socket]):
    for command in (["ssh", "there", *WORKER], [sys.executable, "-m", "torch.distributed.run"], [sys.executable, "-c"]):
        assert fork_server.forked(command, [stdin[1].fileno()] * 3, {}) is None


def test_without_a_server_nothing_is_forked_and_a_dead_one_is_told_from_a_slow_one(
    stdin: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fork_server, "_started", [])
    assert fork_server.forked(WAITING, [stdin[1].fileno()] * 3, {}) is None
    monkeypatch.setattr(fork_server, "PRELOADED", ())
    started_once().kill()
    assert fork_server.forked(WAITING, [stdin[1].fileno()] * 3, {}) is None
    assert fork_server.forked(WAITING, [stdin[1].fileno()] * 3, {}) is None
    fork_server.stop()


def wait_until(condition: object, patience_s: float = 10.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
