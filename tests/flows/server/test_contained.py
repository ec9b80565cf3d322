"""A container's first process hands a stop on and outlives what it started by a trainer's checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tasks.train.shared import trainer_lock

PROJECT = Path(__file__).parents[3]
TREE = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
time.sleep(60)
"""
TRAINER = """
import signal, sys, time
from pathlib import Path
from tasks.train.shared import trainer_lock
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
with trainer_lock.held(Path(sys.argv[1]), 0, print):
    print("held", flush=True)
    while not asked:
        time.sleep(0.05)
    time.sleep(2)
    (Path(sys.argv[1]) / "checkpoint").touch()
"""


def test_a_stop_reaches_the_trainer_and_is_over_when_its_checkpoint_is_there(tmp_path: Path) -> None:
    train = tmp_path / "runs" / "a-1" / "train"
    command = [sys.executable, "-m", "flows.server.contained", sys.executable, "-c", TREE, TRAINER, str(train)]
    environment = {**os.environ, "SPO_HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        began = time.monotonic()
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == 128 + signal.SIGTERM
        assert 1.5 < time.monotonic() - began < 20
    assert (train / "checkpoint").exists()


WORKER = """
import os, signal, subprocess, sys, time
flow = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
trainer = int(flow.stdout.readline())
flow.kill()
flow.wait()
print(trainer, flush=True)
time.sleep(60)
"""
FLOW = """
import subprocess, sys, time
trainer = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
trainer.stdout.readline()
print(trainer.pid, flush=True)
time.sleep(60)
"""


def test_a_trainer_whose_flow_was_killed_is_asked_to_stop_and_waited_for(tmp_path: Path) -> None:
    train = tmp_path / "runs" / "a-1" / "train"
    command = [sys.executable, "-m", "flows.server.contained", sys.executable, "-c", WORKER, FLOW, TRAINER, str(train)]
    environment = {**os.environ, "SPO_HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        trainer = psutil.Process(int(first.stdout.readline()))
        assert trainer.ppid() == first.pid
        first.send_signal(signal.SIGTERM)
        assert first.wait(30) == 128 + signal.SIGTERM
    assert (train / "checkpoint").exists()


def test_a_trainer_that_another_container_started_in_the_home_is_not_waited_for(tmp_path: Path) -> None:
    left_behind = "import os, time; os.fork() or time.sleep(20)"  # it lives on, and is no trainer
    command = [sys.executable, "-m", "flows.server.contained", sys.executable, "-c", left_behind]
    began = time.monotonic()
    with trainer_lock.held(tmp_path / "runs" / "a-1" / "train", 0, print):
        done = subprocess.run(command, cwd=PROJECT, env={**os.environ, "SPO_HOME": str(tmp_path)}, check=False)
    assert done.returncode == 0
    assert time.monotonic() - began < 15


def test_orphans_that_have_ended_do_not_stay_as_zombies_and_the_status_is_the_commands(tmp_path: Path) -> None:
    orphan = "import os, time; os.fork() or (time.sleep(1), os._exit(0))"
    script = f"""
import subprocess, sys, time, psutil
subprocess.run([sys.executable, "-c", {orphan!r}])
above = psutil.Process().parent()
deadline = time.monotonic() + 20
while len(above.children()) == 1 and time.monotonic() < deadline:
    time.sleep(0.01)
while len(above.children()) > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
sys.exit(3 if len(above.children()) == 1 and time.monotonic() < deadline else 1)
"""
    command = [sys.executable, "-m", "flows.server.contained", sys.executable, "-c", script]
    done = subprocess.run(command, cwd=PROJECT, env={**os.environ, "SPO_HOME": str(tmp_path)}, timeout=60, check=False)
    assert done.returncode == 3
