"""Training on several machines: the hostfile, the commands, and two torchruns that meet."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tasks.train import hosts
from tasks.train.shared.errors import TrainerError
from tasks.train.supervisor import trainer_command
from tests.tasks.train.conftest import config, fill, make_job
from tests.tasks.train.trainer.test_runs import assert_close, outcome


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_hosts_are_read_like_a_hostfile() -> None:
    assert hosts.hosts(["one slots=8", "two"]) == [hosts.Host("one", 8), hosts.Host("two", 1)]
    for wrong in ("one slots=many", "one gpus=8"):
        with pytest.raises(TrainerError, match="hostfile"):
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
