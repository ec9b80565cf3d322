"""`spo clean` shows first and removes when asked; what a run that is not finished needs stays."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from flows.server import record
from flows.server.processes import record_of
from tasks.train.shared import published_weights, trainer_lock
from tests.flows.cli.conftest import Spo, code
from warehouse import Warehouse

CHECKPOINT = "runs/tiny-1/train/checkpoints/step-4/state.bin"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a finished and an unfinished run, a log and a database with room in it."""
    for run in ("tiny-1", "tiny-2"):
        for part in ("checkpoints/step-4", "weights/step-4"):
            (tmp_path / "runs" / run / "train" / part).mkdir(parents=True)
            (tmp_path / "runs" / run / "train" / part / "state.bin").write_bytes(bytes(3 << 20))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").write_text("said\n", encoding="utf-8")
    (tmp_path / "prefect").mkdir()
    with sqlite3.connect(tmp_path / "prefect" / "prefect.db") as database:
        database.execute("CREATE TABLE rows (text TEXT)")
        database.execute("INSERT INTO rows VALUES (hex(zeroblob(1000000)))")
        database.execute("DELETE FROM rows")
    stage = {"stage": "train", "stage_version": "1", "key": "k", "seconds": 1.0, "rows": 0, "manifest_json": "{}"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        ended = stage | {"status": "completed", "snapshot_in": 0, "snapshot_out": 0}
        store.append("stage/tiny-1", {"stages": [ended]}, run_id="tiny-1")
    return tmp_path


def files(home: Path) -> dict[str, int]:
    parts = [path for part in ("runs", "logs", "prefect") for path in (home / part).rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): path.stat().st_size for path in parts}


def test_what_is_listed_goes_with_apply_alone_and_the_rest_stays(home: Path, spo: Spo) -> None:
    before = files(home)
    shown = spo("clean")
    assert code(shown) == ""
    assert files(home) == before
    for name in ("runs/tiny-1/train/checkpoints", "logs/worker.log", "prefect.db"):
        assert name in shown.output
    assert "tiny-2" not in shown.output
    assert code(spo("clean", "--apply")) == ""
    after = files(home)
    assert set(before) - set(after) == {CHECKPOINT, "logs/worker.log"}
    assert after["prefect/prefect.db"] < before["prefect/prefect.db"] / 10
    assert "prefect.db" not in spo("clean").output


def test_checkpoints_of_a_training_under_way_stay_though_one_of_that_name_has_completed(home: Path, spo: Spo) -> None:
    with trainer_lock.held(home / "runs" / "tiny-1" / "train", 1.0, print):
        assert code(spo("clean", "--apply")) == ""
    assert CHECKPOINT in files(home)


@pytest.mark.skipif(not published_weights.SHARED_MEMORY.is_dir(), reason="this system has no /dev/shm")
def test_weights_that_a_killed_training_left_in_memory_go(home: Path, spo: Spo) -> None:
    runs = [home / "runs" / name / "train" for name in ("tiny-1", "tiny-2")]
    folders = [published_weights.memory_folder(run) for run in runs]
    try:
        for folder in folders:
            folder.mkdir(parents=True)
            (folder / "model.safetensors").write_bytes(bytes(3 << 20))
        with trainer_lock.held(runs[0], 1.0, print):
            shown = spo("clean").output
            assert [folder.name in shown for folder in folders] == [False, True]
            assert code(spo("clean", "--apply")) == ""
        assert [folder.exists() for folder in folders] == [True, False]
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def test_what_a_running_server_writes_is_left_alone(home: Path, spo: Spo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPO_HOME", str(home))
    record.write({"port": 9, "server": record_of(os.getpid()), "worker": None})
    assert code(spo("clean", "--apply")) == ""
    assert (home / "logs" / "worker.log").exists()
    assert not (home / "runs" / "tiny-1" / "train" / "checkpoints").exists()
