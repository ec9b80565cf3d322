"""A container's first process hands a stop on and outlives what it started by a trainer's checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def test_the_status_is_the_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "flows.server.contained", sys.executable, "-c", "import sys; sys.exit(3)"]
    done = subprocess.run(command, cwd=PROJECT, env={**os.environ, "SPO_HOME": str(tmp_path)}, timeout=60, check=False)
    assert done.returncode == 3
