"""Training on several machines: the hostfile, the commands, and two torchruns that meet."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.train import hosts
from tasks.train.shared import time_limits
from tasks.train.shared.errors import TrainerError
from tasks.train.supervisor import trainer_command
from tests.tasks.train.conftest import config, fill, make_job
from tests.tasks.train.shared.test_trainer_lock import holder
from tests.tasks.train.trainer.test_runs import assert_close, outcome


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_hosts_are_read_like_a_hostfile() -> None:
    assert hosts.hosts(["one slots=8", "two"]) == [hosts.Host("one", 8), hosts.Host("two", 1)]
    for wrong in ("one slots=many", "one gpus=8"):
        with pytest.raises(TrainerError):
            hosts.hosts([wrong])


def test_only_the_other_hosts_are_reached_over_the_remote_shell_and_get_no_secret(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("SPO_HOME", "/shared/spo")
    job = make_job(tmp_path, reference, config(hosts=("one slots=2", "two slots=2"), rendezvous_port=4711))
    here, there = (hosts.command(job, tmp_path / "job.json", rank) for rank in (0, 1))
    assert here[1:3] == ["-m", "torch.distributed.run"]
    assert there[:3] == ["ssh", "-oBatchMode=yes", "two"]
    for words in ("--nnodes 2 --node-rank 1 --nproc-per-node 2", "--master-addr one --master-port 4711"):
        assert words in there[3]
    assert "SPO_HOME=/shared/spo" in there[3]
    assert "hush" not in " ".join(there)


TORCHRUN = """
import socket, sys
open(sys.argv[1] + "/started", "w").close()
socket.create_server(("127.0.0.1", int(sys.argv[2]))).close()
from pathlib import Path
from tasks.train.shared import trainer_lock
sys.exit(trainer_lock.is_held(Path(sys.argv[1])))
"""
"""Stands for torchrun: it fails beside another trainer of the run, and where its port is taken."""


@pytest.fixture
def on_two_hosts(tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The job file of a run on two hosts whose torchruns are stand-ins."""
    job = make_job(tmp_path, reference, config(hosts=("one", "two"), rendezvous_port=free_port()))
    job.run_dir.mkdir(parents=True, exist_ok=True)
    torchrun = [sys.executable, "-c", TORCHRUN, str(job.run_dir), str(job.train.rendezvous_port)]
    monkeypatch.setattr(hosts, "command", lambda _job, _file, rank: ["true"] if rank else torchrun)
    before = signal.getsignal(signal.SIGTERM)
    yield job.write(tmp_path / "job.json")
    signal.signal(signal.SIGTERM, before)


def test_torchrun_starts_once_the_runs_earlier_trainer_has_ended_and_its_port_is_free(
    on_two_hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = hosts.TrainJob.read(on_two_hosts)
    taken = socket.create_server(("127.0.0.1", job.train.rendezvous_port))
    with holder(job.run_dir, 1.0) as child:
        child.release()
        threading.Timer(2.5, taken.close).start()
        assert hosts.main([str(on_two_hosts)]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert str(job.run_dir) in line["warning"]


def test_a_trainer_that_does_not_end_is_named_and_no_torchrun_starts_beside_it(
    on_two_hosts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "patience_s", lambda *_: 1)
    with holder(hosts.TrainJob.read(on_two_hosts).run_dir):
        assert hosts.main([str(on_two_hosts)]) == 1
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[-1]["kind"] == "TrainerError"
    assert not (hosts.TrainJob.read(on_two_hosts).run_dir / "started").exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_nodes_train_as_one_process_does_and_end_with_their_starter(tmp_path: Path, reference: Path) -> None:
    results = []
    for name, train in (
        ("alone", {}),
        ("nodes", {"hosts": ("127.0.0.1", "127.0.0.1"), "remote_shell": (), "rendezvous_port": free_port()}),
    ):
        fill(tmp_path / name / "warehouse", reference, online=24)
        job = make_job(tmp_path / name, reference, config(**train))
        line = trainer_command(job, job.write(tmp_path / name / "job.json"))
        done = subprocess.run(line, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=250)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        results.append(outcome(job))
    assert_close(*results)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_when_one_node_is_killed_the_others_end_and_the_run_continues(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=24)
    train = {"hosts": ("127.0.0.1", "127.0.0.1"), "remote_shell": (), "rendezvous_port": free_port()}
    job = make_job(tmp_path, reference, config(**train))
    line = trainer_command(job, job.write(tmp_path / "job.json"))
    process = subprocess.Popen(line, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    process.stdout.readline()
    family = psutil.Process(process.pid).children(recursive=True)
    node = next(p for p in family if "--node-rank 1" in " ".join(p.cmdline()))
    for victim in [*node.children(recursive=True), node]:
        victim.kill()
    process.communicate(timeout=120)
    assert process.returncode != 0
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    done = subprocess.run(line, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=250)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert sorted(outcome(job)["batches"]) == [1, 2, 3, 4, 5, 6]
