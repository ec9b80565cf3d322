"""A home's processes end with everything that they started, trainers after their checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from flows.server import processes
from tests.flows.conftest import until
from tests.flows.server.test_contained import PROJECT, TRAINER, TREE


def test_a_trainer_writes_its_checkpoint_before_all_is_ended(tmp_path: Path) -> None:
    train, told = tmp_path / "runs" / "a-1" / "train", list[str]()
    command = [sys.executable, "-c", TREE, TRAINER, str(train)]
    environment = {**os.environ, "SPO_HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        (trainer,) = psutil.Process(first.pid).children()
        processes.stop(psutil.Process(first.pid), told.append, timeout_s=0.5)
        until(lambda: not trainer.is_running(), 5)  # whoever adopted it buries it
    assert (train / "checkpoint").exists()
    assert len(told) == 1


def test_a_process_that_has_ended_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = psutil.Process(child.pid)
        child.communicate(b"\n")
    processes.stop(process)


def test_what_does_not_train_is_ended_by_force() -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", TREE, deaf], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "deaf\n"
        (child,) = psutil.Process(first.pid).children()
        began = time.monotonic()
        processes.stop(psutil.Process(first.pid), timeout_s=0.5)
        assert time.monotonic() - began < 10
        until(lambda: not child.is_running(), 5)


def test_who_started_it_need_not_have_noticed_that_it_ended() -> None:
    sleeping = "import time; print('there', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", TREE, sleeping], stdout=subprocess.PIPE, text=True) as inattentive:
        assert inattentive.stdout is not None
        assert inattentive.stdout.readline() == "there\n"
        try:
            (process,) = psutil.Process(inattentive.pid).children()
            record, began = processes.record_of(process.pid), time.monotonic()
            inattentive.send_signal(signal.SIGSTOP)
            processes.stop(process)
            assert time.monotonic() - began < processes.STOP_TIMEOUT_S / 2
            assert process.status() == psutil.STATUS_ZOMBIE
            assert processes.alive(record) is None
        finally:
            inattentive.kill()
