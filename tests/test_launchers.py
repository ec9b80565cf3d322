"""Starting runs under SLURM and Kubernetes, without either: the script against stand-ins, the template rendered."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from prefect.utilities.templating import apply_values

from flows.cli.run_commands import overrides
from flows.settings import RECIPES
from tasks import config as configuration
from tasks.config.placeholders import filled
from tasks.run import placement
from tasks.train import hosts, supervisor
from tests.tasks.train.conftest import make_job, save_reference

PROJECT = Path(__file__).parents[1]


def commanded(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What scripts/slurm.sh says on the first of three nodes; `scontrol` is a stand-in that lists them."""
    folder.mkdir(exist_ok=True)
    stand_in = folder / "scontrol"
    stand_in.write_text("#!/bin/sh\nprintf '%s\\n' n1 n2 n3\n")
    stand_in.chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n[1-3]"} | environment
    command = ["bash", str(PROJECT / "scripts" / "slurm.sh"), "--dry-run", *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)


def configured(said: str) -> configuration.RunConfig:
    """The configuration that the printed command asks for."""
    program, verb, recipe, *rest = said.splitlines()
    assert (program, verb) == ("spo", "run")
    return configuration.load(recipe, overrides([value for value in rest if value != "--set"]), folder=RECIPES)


def test_a_slurm_job_becomes_hosts_that_train_workers_on_the_rest_and_engines_on_all(tmp_path: Path) -> None:
    done = commanded(tmp_path / "bin", "paper", "--set", "train.steps=5", TRAIN_NODES="2", SLOTS="4")
    config = configured(done.stdout)
    train = config.train
    assert config.shards.engines == 12
    assert config.shards.launcher == ("srun", "--nodes=1", "--ntasks=1", "--exact", "--gpus=1", "--kill-on-bad-exit=1")
    assert train.hosts == ("{env:SPO_TRAIN_NODE_0} slots=4", "{env:SPO_TRAIN_NODE_1} slots=4")
    assert (train.steps, train.zero_stage, train.rollout_workers) == (5, 3, 4)
    assert train.worker_launcher[0] == "srun"
    assert "--exclude={env:SPO_TRAIN_NODES}" in train.worker_launcher


def in_a_job(monkeypatch: pytest.MonkeyPatch, *training: str) -> None:
    """The variables that scripts/slurm.sh sets for these nodes."""
    for rank, node in enumerate(training):
        monkeypatch.setenv(f"SPO_TRAIN_NODE_{rank}", node)
    monkeypatch.setenv("SPO_TRAIN_NODES", ",".join(training))


def test_a_slurm_host_is_reached_with_srun_and_takes_no_gpu_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = commanded(tmp_path / "bin", "paper", TRAIN_NODES="2", SLOTS="4")
    config = configured(done.stdout)
    in_a_job(monkeypatch, "n1", "n2")
    job = make_job(tmp_path, save_reference(tmp_path / "reference"), config)
    there = hosts.command(job, tmp_path / "job.json", 1)
    assert there[:-1] == ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--nodelist=n2", "bash", "-c"]
    assert "--node-rank 1 --nproc-per-node 4" in there[-1]
    assert "--master-addr n1" in there[-1]
    lines = placement.place(config, ["0", "1", "2", "3"]).lines()
    assert lines[0] == "trainer: GPUs 0, 1, 2, 3"
    assert "worker-3: where train.worker_launcher starts it" in lines


def test_a_resumed_slurm_job_goes_on_with_the_nodes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(commanded(tmp_path / "bin", "paper", TRAIN_NODES="2", SLOTS="4").stdout)
    job = make_job(tmp_path, save_reference(tmp_path / "reference"), config)
    for nodes in (("n1", "n2"), ("m7", "m9")):
        in_a_job(monkeypatch, *nodes)
        there = hosts.command(job, tmp_path / "job.json", 1)
        assert f"--nodelist={nodes[1]}" in there
        assert f"--master-addr {nodes[0]}" in there[-1]
        assert f"--exclude={','.join(nodes)}" in supervisor.worker_command(job, tmp_path / "job.json", 3)


def test_what_slurm_sets_for_a_job_is_what_its_settings_name(tmp_path: Path) -> None:
    said = tmp_path / "spo"
    tmp_path.joinpath("scontrol").write_text("#!/bin/sh\nprintf '%s\\n' m7 m8 m9\n")
    said.write_text("#!/bin/sh\nenv | grep ^SPO_TRAIN | sort\necho $*\n")
    for name in ("spo", "scontrol"):
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "m[7-9]", "TRAIN_NODES": "2"}
    command = ["bash", str(PROJECT / "scripts" / "slurm.sh"), "--resume", "paper-1"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    expected = ["SPO_TRAIN_NODES=m7,m8", "SPO_TRAIN_NODE_0=m7", "SPO_TRAIN_NODE_1=m8", "resume paper-1"]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


def test_a_run_whose_nodes_nothing_names_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(commanded(tmp_path / "bin", "paper", TRAIN_NODES="2", SLOTS="4").stdout)
    for missing in ("SPO_TRAIN_NODE_1", "SPO_TRAIN_NODES"):
        in_a_job(monkeypatch, "n1", "n2")
        monkeypatch.delenv(missing)
        with pytest.raises(configuration.InvalidConfig, match=f"{missing} "):
            placement.place(config, [])


def test_braces_that_mean_nothing_here_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "22")
    parts = ("ssh", "-p{env:PORT}", "gpu-{index}", '{"a": 1}', "{host}")
    assert filled(parts, "here", index=3) == ("ssh", "-p22", "gpu-3", '{"a": 1}', "{host}")


def test_a_slurm_job_with_too_few_nodes_is_refused_and_a_run_is_resumed(tmp_path: Path) -> None:
    refused = commanded(tmp_path / "bin", TRAIN_NODES="4")
    assert refused.returncode == 1
    assert commanded(tmp_path / "bin", "--resume", "paper-1").stdout.split() == ["spo", "resume", "paper-1"]
    ignored = commanded(tmp_path / "bin", "--resume", "paper-1", "--set", "train.steps=9")
    assert ignored.returncode == 1
    assert "train.steps=9" in ignored.stderr


def test_a_slurm_job_that_is_asked_to_stop_lets_spo_cancel_the_run_and_waits_for_its_end(tmp_path: Path) -> None:
    for name, says in {
        "scontrol": "printf '%s\\n' n1",
        "spo": "trap 'sleep 0.5; echo cancelled by $SPO_CANCEL_ON_TERM; exit 4' TERM\n"
        "echo up; while :; do sleep 0.1; done",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{says}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n1"}
    with subprocess.Popen(
        ["bash", str(PROJECT / "scripts" / "slurm.sh")], env=environment, stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "up\n"
        job.terminate()
        assert job.stdout.read() == "cancelled by 1\n"
        assert job.wait(20) == 4


def rendered(*arguments: str, **variables: Any) -> dict[str, Any]:
    """The job that Prefect would make of the template with these job variables."""
    script = str(PROJECT / "scripts" / "kubernetes_template.py")
    with patch.object(sys, "argv", [script, *arguments]), contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(script, run_name="__main__")
    made = json.loads(printed.getvalue())
    properties = made["variables"]["properties"]
    assert set(variables) <= set(properties)
    defaults = {name: field["default"] for name, field in properties.items() if "default" in field}
    return apply_values(made["job_configuration"], defaults | variables)["job_manifest"]


def test_a_kubernetes_job_has_gpus_shared_memory_volumes_secrets_and_time_to_stop() -> None:
    job = rendered("--gpus", "4", "--image", "registry.example/spo", command="prefect flow-run execute", name="run")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/spo"
    assert container["args"] == "prefect flow-run execute"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert container["envFrom"] == [{"secretRef": {"name": "spo-env"}}]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
    assert mounted["shared-memory"] == "/dev/shm"
    assert container["env"]["SPO_HOME"] == mounted["home"]
    assert container["env"]["HF_HOME"].startswith(mounted["cache"])
    assert pod["terminationGracePeriodSeconds"] == 1500


def test_a_kubernetes_job_without_gpus_asks_for_none_and_waits_for_its_trainer() -> None:
    (container,) = rendered("--gpus", "0")["spec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in container["resources"].get("limits", {})
    assert container["args"] == "python -m flows.server.contained prefect flow-run execute"
