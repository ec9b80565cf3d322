"""Places to keep a warehouse in: a folder always, PostgreSQL and an S3 server when they can be started here."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import preload
from warehouse import Warehouse
from warehouse.commit.failpoints import failpoint_hooks
from warehouse.superseding import content, superseded

preload("warehouse.exchange.exporting", "warehouse.exchange.importing_warehouses", "tests.warehouse.preloading")

GUARDED = "guarded"
"""A PostgreSQL user who needs a password, once it is made; the others need none."""
Locate = Callable[[str], str]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _postgres_programs() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server that is started for the tests."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (the extra `postgres`)")
    programs = _postgres_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    user: dict[str, Any] = {}
    folder = Path("/tmp") / f"spo-postgres-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    if os.geteuid() == 0:
        user = {"user": "postgres", "cwd": "/"}
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
    port = free_port()
    initialise = [programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres"]
    subprocess.run(initialise, check=True, capture_output=True, **user)
    rules = folder / "data" / "pg_hba.conf"
    rules.write_text(f"host all {GUARDED} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(folder / "data")]
    subprocess.run([*control, "-o", options, "-l", str(folder / "log"), "-w", "start"], check=True, **user)
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=False, capture_output=True, **user)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The address of a bucket on an S3 server that is started for the tests."""
    program = shutil.which("moto_server") or shutil.which("moto_server", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("no S3 server for tests (pip install 'moto[server]')")
    port = free_port()
    process = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    settings = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    try:
        _wait_for_port(port)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            address = f"http://127.0.0.1:{port}/trajectories"
            urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=30).close()
            yield "s3://trajectories"
    finally:
        process.kill()
        process.wait()


def _wait_for_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on port {port}")


KINDS = [
    pytest.param("folder", id="folder"),
    pytest.param("postgres", id="postgres", marks=pytest.mark.postgres),
    pytest.param("s3", id="s3"),
    pytest.param("postgres+s3", id="postgres+s3", marks=[pytest.mark.postgres, pytest.mark.slow]),
]
OFTEN = [KINDS[0], *(pytest.param(kind.id, id=kind.id, marks=[*kind.marks, pytest.mark.slow]) for kind in KINDS[1:])]
"""In the ordinary run a folder alone."""
everywhere = pytest.mark.parametrize("location", KINDS, indirect=True)
"""The mark of a test that is run on every kind of storage in the ordinary run, too."""


@pytest.fixture(scope="session")
def new_warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse without a row. Copying it takes a hundredth of the time that making another one does."""
    made = tmp_path_factory.mktemp("new") / "warehouse"
    Warehouse.open(made).close()
    return made


@pytest.fixture(params=OFTEN)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty warehouse, on every kind of storage in turn in the slow run."""
    return locate(request, request.param, tmp_path)


@pytest.fixture(params=KINDS)
def unmade(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a warehouse may be made, on every kind of storage in turn."""
    return locate(request, request.param, tmp_path, make=False)


def locate(request: pytest.FixtureRequest, kind: str, tmp_path: Path, *, make: bool = True) -> str:
    """An empty warehouse; in PostgreSQL, or when told not to `make` one, the first opening makes it."""
    name = f"w{uuid.uuid4().hex[:10]}"
    data = f"{request.getfixturevalue('bucket')}/{name}" if "s3" in kind else str(tmp_path / "data")
    if "postgres" in kind:
        return f"{request.getfixturevalue('postgres')}?schema={name}&data={data}"
    if make:
        shutil.copytree(request.getfixturevalue("new_warehouse"), tmp_path / "warehouse")
    return str(tmp_path / "warehouse") + (f"?data={data}" if "s3" in kind else "")


@pytest.fixture
def folder(new_warehouse: Path, tmp_path: Path) -> str:
    """An empty warehouse in a folder."""
    return str(shutil.copytree(new_warehouse, tmp_path / "warehouse"))


@pytest.fixture
def store(location: str) -> Iterator[Warehouse]:
    with Warehouse.open(location) as opened:
        yield opened


@contextmanager
def at_failpoint(label: str, act: Callable[[], None], *, call: int = 1) -> Iterator[None]:
    """Do something when the protocol comes to `label` for the n-th time; expects that it did."""
    calls = 0

    def hook(reached: str) -> None:
        nonlocal calls
        calls += reached == label
        if reached == label and calls == call:
            act()

    failpoint_hooks.append(hook)
    try:
        yield
    finally:
        failpoint_hooks.remove(hook)
    assert calls >= call


class BrokenOff(BaseException):
    """Ends a process halfway."""


@contextmanager
def broken_off_at(label: str, *, call: int = 1) -> Iterator[None]:
    """Break off what is done in here when the protocol comes to `label` for the n-th time."""

    def act() -> None:
        raise BrokenOff

    with pytest.raises(BrokenOff), at_failpoint(label, act, call=call):
        yield


def trajectory(number: int | str, **changes: Any) -> dict[str, Any]:
    """A row of `trajectories`."""
    row: dict[str, Any] = {
        "trajectory_id": f"t{number}",
        "problem_id": "p0",
        "source": "online",
        "policy_start": "policy",
        "temperature": 1.0,
        "token_ids": [1, 2, 3],
        "sampled_logprobs": [-0.5, -1.0, -0.25],
        "logprob_kind": "raw",
        "normal_hash": f"n{number}",
        "text": "print(1)",
        "finish_reason": "stop",
        "reward": 0.0,
        "verdict": "accepted",
    }
    return row | changes


def trajectories(count: int, prefix: str = "", **changes: Any) -> list[dict[str, Any]]:
    return [trajectory(f"{prefix}{number}", **changes) for number in range(count)]


def judge_again(store: Warehouse, batch: str) -> str:
    """Append a batch once more as `spo rejudge` does, with the same verdicts; its new name."""
    new = f"{batch}/rejudged-9"
    tables = {
        table: [
            content(row) for row in store.rows(f"SELECT * FROM {table} WHERE batch_id = ? ORDER BY arrival", [batch])
        ]
        for table in ("trajectories", "reference_counts")
    }
    run_id = store.value("SELECT min(run_id) FROM trajectories WHERE batch_id = ?", [batch])
    store.append(new, tables | {"quarantine": [superseded(batch, new)]}, run_id=run_id)
    return new


def fill(store: Warehouse, batches: int, rows: int = 4) -> list[int]:
    """Append batches `b0`, `b1` ... of trajectories; their snapshots."""
    return [
        store.append(f"b{number}", {"trajectories": trajectories(rows, f"{number}-")}, run_id="run")
        for number in range(batches)
    ]
