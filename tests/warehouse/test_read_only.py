"""A warehouse that this user may not write, or may not even open: the cause is told, and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows import pipeline
from flows.cli.main import app
from tests.refusals import refused
from tests.warehouse.conftest import trajectories
from warehouse import NotWritable, Warehouse
from warehouse.upkeep.maintenance import compact


@contextmanager
def write_protected(folder: Path) -> Iterator[None]:
    """Let nobody write below `folder`: root by a read-only mount, others by the permissions."""
    if os.geteuid() != 0:
        everything = [folder, *folder.rglob("*")]
        modes = {path: path.stat().st_mode for path in everything}
        for path in everything:
            path.chmod(modes[path] & ~0o222)
        try:
            yield
        finally:
            for path in everything:
                path.chmod(modes[path])
        return
    if subprocess.run(["mount", "--bind", folder, folder], capture_output=True).returncode:
        pytest.skip("a folder cannot be mounted read-only here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def protected(folder: str) -> Iterator[str]:
    with Warehouse.open(folder) as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
    with write_protected(Path(folder)):
        yield folder


def test_who_opens_is_told_which_folder_he_may_not_write(protected: str) -> None:
    for act in (Warehouse.open, compact, partial(Warehouse.open, read_only=True)):
        with refused("NotWritable", protected):
            act(protected)


def test_a_catalog_that_may_only_be_read_is_named(folder: str) -> None:
    with Warehouse.open(folder) as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
    with write_protected(Path(folder) / "catalog.sqlite"):
        with refused("NotWritable", f"{folder}/catalog.sqlite"):
            Warehouse.open(folder)
        with Warehouse.open(folder, read_only=True) as store:
            assert store.value("SELECT count(*) FROM trajectories") == 3


def test_a_warehouse_cannot_be_made_in_a_protected_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    with write_protected(tmp_path / "outside"):
        with refused("NotWritable", f"{tmp_path}/outside/warehouse"):
            Warehouse.open(tmp_path / "outside" / "warehouse")


def test_data_that_cannot_be_written_are_named(folder: str, tmp_path: Path) -> None:
    location = f"{folder}?data={tmp_path / 'data'}"
    with Warehouse.open(location) as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
        with write_protected(tmp_path / "data"):
            assert store.value("SELECT sum(len(token_ids)) FROM trajectories") == 9
            with refused("NotWritable", f"{tmp_path}/data/stored/trajectories/"):
                store.append("c", {"trajectories": trajectories(3, "c")}, run_id="run")


@pytest.mark.parametrize("command", [["compact"], ["verify"], ["sql", "SELECT 1"], ["quarantine", "b"]])
def test_a_command_shows_the_cause_and_no_traceback(protected: str, command: list[str]) -> None:
    environment = os.environ | {"SPO_WAREHOUSE": protected, "COLUMNS": "500"}
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *command], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {protected} cannot be written by this user")
    assert "Traceback" not in done.stderr


COMMANDS = [
    *(["status"], ["runs"], ["plan", "tiny"], ["run", "tiny"], ["resume"], ["resume", "tiny-1"], ["clean"]),
    *(["report"], ["compare", "tiny-1", "tiny-2"], ["show", "t1"], ["upgrade"], ["export", "elsewhere"]),
    ["import", "rows.jsonl", "--table", "trajectories"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_refuses_before_it_starts_anything(
    protected: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(trajectories(1)[0]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPO_WAREHOUSE", protected)
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, NotWritable), done.output
    assert not (tmp_path / "home").exists(), "no server was started"
    assert str(done.exception).startswith(f"{protected} cannot be written by this user")
    assert "\n" not in str(done.exception)


def test_a_flow_that_somebody_else_submits_fails_with_the_cause_before_it_makes_a_run(
    protected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_WAREHOUSE", protected)
    with refused("NotWritable", protected):
        pipeline._run_id({}, recipe="tiny")


@pytest.mark.postgres
def test_a_database_user_without_rights_is_told_so(postgres: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
    location = f"{postgres.replace('postgres@', 'guest@')}?schema=guests&data={tmp_path}/data"
    with refused("NotWritable"):
        Warehouse.open(location)
