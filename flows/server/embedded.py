"""The embedded Prefect server and worker: started, found again, and stopped; nothing is installed.

Errors
------
EmbeddedError
    PortTaken, DidNotStart
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from flows.settings import POOL, api_url, home, port, recipe_names, warehouse_location

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0
PROJECT = Path(__file__).parents[2]

Say = Callable[[str], None]


class EmbeddedError(Exception):
    """The embedded server cannot be used; the message says why and what to do."""


class PortTaken(EmbeddedError):
    """Something else listens on the port."""


class DidNotStart(EmbeddedError):
    """A process ended or did not answer in time."""


def up(say: Say) -> None:
    """Server, worker and deployments, each started only if it is not there already."""
    if os.environ.get("PREFECT_API_URL"):
        say(f"using the Prefect server at {api_url()} (PREFECT_API_URL is set); deploying to it")
        _deploy(say)
        return
    with _alone():
        _up(say)


def _up(say: Say) -> None:
    state = _read_state()
    if not _alive(state.get("server")):
        state = _start_server(say, worker=state.get("worker"))  # which outlives a killed server
    _await_health(state["server"])
    if not _alive(state.get("worker")):
        state["worker"] = _start(
            ["worker", "start", "--pool", POOL, "--type", "process", "--name", "embedded"], "worker"
        )
        _write_state(state)
        say("worker started")
    fingerprint = _fingerprint()
    if state.get("deployed") != fingerprint:
        _deploy(say)
        _write_state(state | {"deployed": fingerprint})
    say(f"ready: {api_url().removesuffix('/api')} (logs in {_logs()})")


def down(say: Say) -> None:
    """Stop worker and server, with every process they started."""
    state = _read_state()
    for name in ("worker", "server"):
        process = _alive(state.get(name))
        if process is None:
            say(f"{name} was not running")
            continue
        _stop(process)
        say(f"{name} stopped")
    _state_file().unlink(missing_ok=True)


def running() -> dict[str, bool]:
    """Whether the embedded server and worker are there."""
    state = _read_state()
    return {name: _alive(state.get(name)) is not None for name in ("server", "worker")}


def usable() -> bool:
    """Whether the server of this home answers, or the one that PREFECT_API_URL names. Another home's is not used."""
    return (bool(os.environ.get("PREFECT_API_URL")) or running()["server"]) and healthy()


def healthy(timeout_s: float = 2.0) -> bool:
    """Whether an API answers, whoever started it."""
    try:
        with urllib.request.urlopen(f"{api_url()}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def environment() -> dict[str, str]:
    """Environment of everything that talks to the embedded server."""
    return {
        **os.environ,
        "PREFECT_HOME": str(home() / "prefect"),
        "PREFECT_API_URL": api_url(),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_WORKER_QUERY_SECONDS": "2",  # not 10: on one machine asking is cheap, and a person waits
        "SPO_HOME": str(home()),
        "SPO_WAREHOUSE": warehouse_location(),
        "SPO_ROOT": os.getcwd(),
        "DO_NOT_TRACK": "1",
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),  # spinning threads starve a shared machine
    }


def _start_server(say: Say, *, worker: dict[str, Any] | None) -> dict[str, Any]:
    """The state with a new server, once it answers; it is written from the server's first moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port()))
        except OSError:
            raise PortTaken(
                f"port {port()} is taken by another program; stop it, or choose another port with SPO_PORT=... "
                f"(then also export PREFECT_API_URL=http://127.0.0.1:.../api for `prefect` commands)"
            ) from None
    say(f"starting the Prefect server on port {port()} ...")
    started = _start(["server", "start", "--host", "127.0.0.1", "--port", str(port())], "server")
    state: dict[str, Any] = {"server": started, "worker": worker}
    _write_state(state)
    _await_health(started)
    say("server is healthy")
    return state


def _await_health(server: dict[str, Any]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not healthy():
        if _alive(server) is None:
            raise DidNotStart(f"the Prefect server ended while starting; see {_logs() / 'server.log'}")
        if time.monotonic() > deadline:
            raise DidNotStart(
                f"the Prefect server did not answer in {START_TIMEOUT_S:.0f} s; see {_logs()}/server.log, "
                f"or start anew with `spo down` and `spo up`"
            )
        time.sleep(0.3)


@contextmanager
def _alone() -> Generator[None]:
    """Let one `spo up` of this home work at a time: the next one then finds everything done."""
    home().mkdir(parents=True, exist_ok=True)
    with (home() / "embedded.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(arguments: list[str], name: str) -> dict[str, Any]:
    _logs().mkdir(parents=True, exist_ok=True)
    with (_logs() / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(),
            cwd=PROJECT,
            start_new_session=True,
        )
    return {"pid": process.pid, "created": psutil.Process(process.pid).create_time()}


def _fingerprint() -> str:
    """Identity of everything that the deployments are made of; recipes count by name."""
    modules = [path for folder in ("tasks/config", "flows") for path in sorted((PROJECT / folder).rglob("*.py"))]
    files = [PROJECT / "prefect.yaml", *modules]
    content = b"".join(path.read_bytes() for path in files) + "\n".join(recipe_names()).encode()
    return hashlib.sha256(content).hexdigest()


def _deploy(say: Say) -> None:
    from flows.server import deployments

    deployments.deploy(say, environment(), PROJECT)


def _alive(record: dict[str, Any] | None) -> psutil.Process | None:
    """The process of a record, unless it has ended or its number now belongs to another one."""
    if record is None:
        return None
    try:
        process = psutil.Process(record["pid"])
        same = abs(process.create_time() - record["created"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return process if same else None


def _stop(process: psutil.Process) -> None:
    family = [process]
    with suppress(psutil.NoSuchProcess):
        family += process.children(recursive=True)
        process.terminate()
    _, left = psutil.wait_procs(family, timeout=STOP_TIMEOUT_S)
    for survivor in left:
        with suppress(psutil.NoSuchProcess):  # it ended as it was given up
            survivor.kill()
    psutil.wait_procs(left, timeout=5)


def _logs() -> Path:
    return home() / "logs"


def _state_file() -> Path:
    return home() / "embedded.json"


def _read_state() -> dict[str, Any]:
    try:
        return json.loads(_state_file().read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def _write_state(state: dict[str, Any]) -> None:
    temporary = _state_file().with_suffix(".tmp")
    temporary.write_text(json.dumps(state))
    temporary.replace(_state_file())
