"""Engines on a Ray cluster of two nodes: the bits of engines here, in every sampling stage."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.config import ShardsConfig
from tasks.engines import engine_process, open_engine, ray_launcher
from tasks.engines.engine_start import start_by
from tasks.engines.process_engine import ProcessEngine
from tasks.engines.protocol import EngineDied
from tests.ray_cluster import cluster  # noqa: F401  (a fixture)
from tests.tasks.conftest import Lab
from tests.tasks.engines.test_launched_engines import (
    REQUESTS,
    SETTINGS,
    folder,  # noqa: F401  (a fixture)
    gone,
    serving,
    until,
)

LAUNCHER = (sys.executable, "-m", "tasks.engines.ray_launcher")


@pytest.mark.slow
def test_a_command_on_a_node_has_this_processes_streams_and_its_status_is_the_launchers(cluster: str) -> None:  # noqa: F811
    said = bytes(range(256)) * 20_000
    command = (*LAUNCHER, cluster, "1", "0", "sh", "-c", "cat; echo enough >&2; exit 3")
    ended = subprocess.run(command, input=said, capture_output=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, said, b"enough\n")


@pytest.mark.slow
def test_without_room_it_says_what_is_asked_for(
    cluster: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ray_launcher, "ROOM_S", 2.0)
    import ray

    try:
        assert ray_launcher.run(cluster, 1, 4, ["true"]) == 1
    finally:
        ray.shutdown()
    assert "no node with room for 1 CPUs and 4 GPUs (shards.cpus, shards.gpus) in 2 s" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_engines_on_ray_give_the_bits_of_engines_here_and_end_with_their_launcher(folder: Path, cluster: str) -> None:  # noqa: F811
    here = open_engine(SETTINGS.model_copy(update={"processes": 1}), folder, dtype="float32")
    shards = ShardsConfig(runner="ray", address=cluster, tasks=2)
    away = open_engine(SETTINGS, folder, dtype="float32", shards=shards)
    assert isinstance(away, ProcessEngine)
    found, wanted = (sorted(e.sample(REQUESTS), key=lambda c: (c.request, c.index)) for e in (away, here))
    assert found == wanted
    here.close()
    engines = serving()
    assert len({process.parent() for process in engines}) == 2, "an actor each, on a node with one CPU"
    psutil.Process(away.pids[0]).send_signal(signal.SIGKILL)
    with pytest.raises(EngineDied, match="was killed by SIGKILL"):
        list(away.sample(REQUESTS))
    away.close()
    until(lambda: all(gone(each) for each in engines))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_sampling_stage_on_ray_draws_what_one_process_does(
    finished: Lab,
    cluster: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launchers: list[str] = []

    def started(launcher: Sequence[str], *how: Any) -> subprocess.Popen[bytes]:
        launchers.append(launcher[2])
        return start_by(launcher, *how)

    monkeypatch.setattr(engine_process, "start_by", started)
    shutil.copytree(finished.home / "models", tmp_path / "models")
    lab = Lab(tmp_path)
    run_id = lab.start("on-ray", {"shards": {"runner": "ray", "address": cluster, "tasks": 2}})
    assert not any(result.skipped for result in lab.run(run_id).values())
    assert launchers == ["tasks.engines.ray_launcher"] * 2 * len(("q0", "corpus", "pivotal", "evaluate"))
    for batches in ("q0/", "corpus/", "pivotal/"):
        drawn = f"SELECT list((trajectory_id, token_ids, reward) ORDER BY trajectory_id) FROM trajectories \
            WHERE starts_with(batch_id, '{batches}')"
        assert len(lab.value(drawn)) > 0
        assert lab.value(drawn) == finished.value(drawn)
    judged = "SELECT list((problem_id, token_ids, reward) ORDER BY ALL) FROM eval_samples WHERE step = 0"
    assert lab.value(judged) == finished.value(judged)
