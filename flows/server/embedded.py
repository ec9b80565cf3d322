"""The embedded Prefect server and worker: started, found again, and stopped; nothing is installed.

Errors
------
EmbeddedError
    PortTaken, DidNotStart, NotAnswering, OtherCode, OtherPlace
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from flows.server import record
from flows.server.orphans import end_orphans
from flows.server.owner import home_served_at
from flows.server.processes import alive, record_of, stop
from flows.settings import (
    DEFAULT_PORT,
    POOL,
    api_url,
    home,
    port,
    recipe_names,
    server_elsewhere,
    warehouse_location,
    warehouse_shown,
    without_proxy,
)
from tasks.errors import CodedError

START_TIMEOUT_S = 180.0
QUIET_S = 120.0
"""A server writes to its database far more often than that."""
LOOK_EVERY_S = 2.0
"""Time between two looks at a database that another machine's server may still write to."""
PROJECT = Path(__file__).parents[2]

Say = Callable[[str], None]


class Clock(Protocol):
    """Tells the time and lets it pass; the module `time` is one."""

    def time(self) -> float:
        """Seconds since 1970."""
        ...

    def sleep(self, seconds: float, /) -> None:
        """Let so much time pass."""
        ...


class EmbeddedError(CodedError):
    """The embedded server cannot be used; the message says why and what to do."""


class PortTaken(EmbeddedError):
    """Something else listens on the port."""


class DidNotStart(EmbeddedError):
    """A process ended or did not answer in time."""


class NotAnswering(EmbeddedError):
    """The server on another machine that PREFECT_API_URL names does not answer."""


class OtherCode(EmbeddedError):
    """The worker of this home runs flows out of another checkout of the project."""


class OtherPlace(EmbeddedError):
    """The worker writes into another home or warehouse than the command is about."""


def ready(say: Say) -> None:
    """What `up` does, in silence and at once where there is nothing to do. Raises EmbeddedError.

    Everything that submits a flow calls this first, so what runs is what this checkout holds.
    """
    if usable():
        if not running()["server"]:
            _check_home()
            return
        if _complete():
            return
    up(say)


def up(say: Say) -> None:
    """Server, worker and deployments, each started only if it is not there already.

    A server that PREFECT_API_URL names and that somebody else has started is deployed to; none is started beside it.
    """
    if os.environ.get("PREFECT_API_URL") and not running()["server"] and (healthy() or server_elsewhere()):
        if not healthy(timeout_s=10):
            raise NotAnswering(f"PREFECT_API_URL names the Prefect server at {api_url()}, which does not answer")
        say(f"using the Prefect server at {api_url()} (PREFECT_API_URL is set); deploying to it")
        _deploy(say)
        return
    with _alone():
        _up(say)


def _complete() -> bool:
    """Whether the worker is there and the deployments are those of today. Raises what `_check_worker` does."""
    state = record.read()
    worker = state.get("worker")
    if worker is None or alive(worker) is None:
        return False
    _check_worker(worker)
    return bool(state.get("deployed") == fingerprint())


def _up(say: Say) -> None:
    await_silence(say)
    if note := record.foreign_record():
        say(note)
    state = record.read()
    if alive(state.get("server")) and state["port"] != port():
        raise PortTaken(
            f"the server of this home runs on port {state['port']}, not {port()}; "
            f"{_choose(state['port'])}, or stop it with `spo down`"
        )
    if not alive(state.get("server")):
        state = _start_server(say, worker=state.get("worker"))  # which outlives a killed server
    _await_health(state["server"])
    if alive(state.get("worker")):
        _check_worker(state["worker"])
    else:
        for name in end_orphans(api_url()):
            say(f"{name} was under way when its process ended; it can be continued")
        state["worker"] = _start(
            ["worker", "start", "--pool", POOL, "--type", "process", "--name", "embedded"], "worker"
        )
        record.write(state)
        say("worker started")
    today = fingerprint()
    if state.get("deployed") != today:
        _deploy(say)
        record.write(state | {"deployed": today})
    say(f"ready: {api_url().removesuffix('/api')} (logs in {_logs()})")
    if port() != DEFAULT_PORT and not os.environ.get("PREFECT_API_URL"):
        say(f"for `prefect` commands, too: export PREFECT_API_URL={api_url()}")


def down(say: Say) -> None:
    """Stop this home's worker and server, with every process they started."""
    if note := record.foreign_record():
        say(note)
        return
    with _alone() if record.stored(home()) else nullcontext():
        state = record.read()
        for name in ("worker", "server"):
            process = alive(state.get(name))
            if process is None:
                say(f"{name} was not running")
                continue
            stop(process, say)
            say(f"{name} stopped")
        record.remove()


def running() -> dict[str, bool]:
    """Whether the embedded server and worker are there."""
    state = record.read()
    return {name: alive(state.get(name)) is not None for name in ("server", "worker")}


def usable() -> bool:
    """Whether the server of this home answers, or the one that PREFECT_API_URL names. Another home's is not used."""
    return (bool(os.environ.get("PREFECT_API_URL")) or own_port() == port()) and healthy()


def own_port() -> int | None:
    """The port that this home's server listens on; None when it does not run."""
    return record.read()["port"] if running()["server"] else None


def healthy(timeout_s: float = 2.0) -> bool:
    """Whether an API answers, whoever started it; from here on no proxy stands before this machine's."""
    os.environ.update(without_proxy())
    try:
        with urllib.request.urlopen(f"{api_url()}/health", timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def environment() -> dict[str, str]:
    """Environment of everything that talks to the embedded server."""
    return {
        **os.environ,
        **without_proxy(),
        "PREFECT_HOME": str(home() / "prefect"),
        "PREFECT_API_URL": api_url(),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_SERVER_EVENTS_RETENTION_PERIOD": "P2D",  # two days: most of the database is events, which age fast
        "PREFECT_WORKER_QUERY_SECONDS": "2",  # not 10: on one machine asking is cheap, and a person waits
        "SPO_HOME": str(home()),
        "SPO_WAREHOUSE": warehouse_location(),
        "SPO_ROOT": os.getcwd(),
        "DO_NOT_TRACK": "1",
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),  # spinning threads starve a shared machine
    }


def use_server() -> None:
    """Let Prefect, which reads its settings when it is imported, use the same server and folder as everything else."""
    settings = {name: value for name, value in environment().items() if name.startswith("PREFECT_")} | without_proxy()
    Path(settings["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
    os.environ.update(settings)


def _start_server(say: Say, *, worker: dict[str, Any] | None) -> dict[str, Any]:
    """The state with a new server, once it answers; it is written from the server's first moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port()))
        except OSError:
            raise PortTaken(
                f"port {port()} is taken by another program; stop it, or choose another port: {_choose(_free_port())}"
            ) from None
    say(f"starting the Prefect server on port {port()} ...")
    started = _start(["server", "start", "--host", "127.0.0.1", "--port", str(port())], "server")
    state: dict[str, Any] = {"port": port(), "server": started, "worker": worker}
    record.write(state)
    _await_health(started)
    say("server is healthy")
    return state


def _choose(number: int) -> str:
    """What lets `spo` and `prefect` alike use another port."""
    return f"export PREFECT_API_URL=http://127.0.0.1:{number}/api"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_health(server: dict[str, Any]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not healthy():
        if alive(server) is None:
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
    return {**record_of(process.pid), "code": str(PROJECT), "warehouse": warehouse_shown()}


def _check_worker(worker: dict[str, Any]) -> None:
    """Raise OtherCode or OtherPlace unless it is of this checkout and warehouse; old records say neither."""
    again = "stop it with `spo down` once nothing is under way (`spo status`) and try again"
    code, place = worker.get("code", str(PROJECT)), worker.get("warehouse", warehouse_shown())
    if code != str(PROJECT):
        raise OtherCode(
            f"the worker of {home()} runs the code in {code}, and this is {PROJECT}: {again}, or choose another home "
            f"with SPO_HOME"
        )
    if place != warehouse_shown():
        raise OtherPlace(
            f"the worker of {home()} writes to the warehouse {place}, and this command is about {warehouse_shown()}: "
            f"set SPO_WAREHOUSE to the former, or {again}, or choose another home with SPO_HOME"
        )


def _check_home() -> None:
    """Raise OtherPlace when the server that PREFECT_API_URL names was started for another home of this machine."""
    owner = home_served_at(port()) if not server_elsewhere() else None
    if owner is not None and record.identity(owner) != record.identity(home()):
        raise OtherPlace(
            f"the Prefect server at {api_url()} (PREFECT_API_URL) is that of {owner}, where its worker would make the "
            f"run, and this command's home is {home()}: export SPO_HOME={owner}, or let PREFECT_API_URL name a free "
            f"port ({_choose(_free_port())}) for a server of this home"
        )


def await_silence(say: Say, clock: Clock = time) -> None:
    """Wait until a server of this home that was started on another machine is gone: two would write to one database.

    Raises OtherPlace when that one goes on writing.
    """
    host, began, told = record.other_machine(), clock.time(), False
    while host is not None and (quiet := clock.time() - _written()) < QUIET_S:
        if clock.time() - began > QUIET_S and quiet < QUIET_S / 2:  # more than what an ending one still writes
            raise OtherPlace(
                f"the server of {home()} runs on {host} (it wrote to its database {max(quiet, 0):.0f} s ago), and one "
                f"home has one server: stop it there with `spo down`, or set SPO_HOME to another folder here (with the "
                f"same SPO_WAREHOUSE both have the same data)"
            )
        if not told:
            say(
                f"the server of {home()} was started on {host} and wrote to its database {max(quiet, 0):.0f} s ago; "
                f"one is started here once it has been silent for {QUIET_S:.0f} s"
            )
            told = True
        clock.sleep(LOOK_EVERY_S)


def _written() -> float:
    """When a server last wrote to the database of this home, in seconds since 1970."""
    return max((path.stat().st_mtime for path in (home() / "prefect").glob("prefect.db*")), default=0.0)


def fingerprint(project: Path = PROJECT) -> str:
    """Identity of everything that the deployments are made of; recipes count by name."""
    modules = [path for folder in ("tasks/config", "flows") for path in sorted((project / folder).rglob("*.py"))]
    files = [project / "prefect.yaml", *modules]
    content = b"".join(path.read_bytes() for path in files) + "\n".join(recipe_names()).encode()
    return hashlib.sha256(content).hexdigest()


def _deploy(say: Say) -> None:
    from flows.server import deployments

    deployments.deploy(say, environment(), PROJECT)


def _logs() -> Path:
    return home() / "logs"
