"""Supervised runs of real trainer and worker processes that are killed without warning."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.supervisor import MOST_RESTARTS, TrainingProcesses, worker_command
from tests.refusals import refused
from tests.tasks.train.conftest import RUN, config, fill, make_job, save_reference
from warehouse import Warehouse

pytestmark = pytest.mark.usefixtures("forked_processes")
KILLS = int(os.environ.get("SPO_KILLS", "5"))
"""Kills of the random test; more make it longer."""
ONLINE = {"online": {"share": 1.0}}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_reference(tmp_path_factory.mktemp("reference"))


def job_in(folder: Path, reference: Path, **train: Any) -> TrainJob:
    """A run whose trajectories all come from its workers, 8 to a batch."""
    fill(folder / "warehouse", reference, online=0)
    return make_job(folder, reference, config(**{"sources": ONLINE} | train))


class Watched(TrainingProcesses):
    """A run that calls `act` with every line it relays."""

    def __init__(self, job: TrainJob, act: Callable[[Watched, dict[str, Any]], None]) -> None:
        self.seen: list[dict[str, Any]] = []

        def relay(line: dict[str, Any]) -> None:
            self.seen.append(line)
            act(self, line)

        super().__init__(job, job.write(job.run_dir.parent / "job.json"), relay)

    def kill(self, *names: str) -> None:
        """SIGKILL processes of the run by name."""
        for child in self.running.values():
            if child.name in names and child.status() is None:
                os.kill(child.process.pid, signal.SIGKILL)

    @property
    def restarts(self) -> Counter[str]:
        """How often each process was started again."""
        return Counter(
            line["warning"].split()[0] for line in self.seen if "starting it again" in line.get("warning", "")
        )


def quiet(_run: Watched, _line: dict[str, Any]) -> None:
    return


def assert_accounts_balance(job: TrainJob) -> None:
    """Appended = trained + waiting: nothing twice, nothing lost, no gap, every step there."""
    with Warehouse.open(job.warehouse) as store:
        rows = store.rows("SELECT trajectory_id, batch_id FROM trajectories WHERE run_id = ?", [RUN])
        steps = store.rows("SELECT step, trajectory_ids FROM train_batches WHERE run_id = ? ORDER BY step", [RUN])
    appended = [row["trajectory_id"] for row in rows]
    trained = [identity for row in steps for identity in row["trajectory_ids"]]
    assert [row["step"] for row in steps] == list(range(1, job.train.steps + 1))
    assert len(set(appended)) == len(appended)
    assert len(set(trained)) == len(trained) == 8 * job.train.steps
    assert set(trained) <= set(appended)
    waiting = set(appended) - set(trained)
    assert len(appended) == len(trained) + len(waiting)
    assert len(waiting) <= job.train.max_batches_ahead * 8
    for worker in range(job.train.rollout_workers):
        mine = sorted({row["batch_id"] for row in rows if row["batch_id"].startswith(f"rollout/{RUN}/{worker}/")})
        assert mine == [f"rollout/{RUN}/{worker}/{number:08d}" for number in range(len(mine))]
        assert all(count == 8 for count in Counter(row["batch_id"] for row in rows).values())
    newest = published_weights.latest(job.kept)
    assert newest is not None
    assert newest.step == job.train.steps


def test_a_killed_worker_and_a_killed_trainer_are_replaced_and_nothing_is_lost_or_used_twice(
    tmp_path: Path, reference: Path
) -> None:
    def act(run: Watched, line: dict[str, Any]) -> None:
        if line.get("sequence") == 1 and not run.restarts["worker-0"]:
            run.kill("worker-0")
        if line.get("done") == 3 and not run.restarts["trainer"]:
            run.kill("trainer")

    job = job_in(tmp_path, reference, steps=8)
    run = Watched(job, act)
    manifest = run.supervise(lambda: False)
    assert manifest["steps"] == 8
    assert run.restarts["worker-0"] >= 1
    assert run.restarts["trainer"] == 1
    assert_accounts_balance(job)


def test_a_trainer_that_crashes_again_and_again_at_the_same_step_is_given_up(tmp_path: Path, reference: Path) -> None:
    job = job_in(tmp_path, reference, steps=8, checkpoint_interval=100)
    run = Watched(job, lambda run, line: run.kill("trainer") if line.get("done", 0) >= 3 else None)
    with refused("ProcessDied", "trainer", MOST_RESTARTS + 1):
        run.supervise(lambda: False)
    assert max(line.get("done", 0) for line in run.seen) < 8


def test_two_workers_fill_one_run_and_hand_over_in_memory_leaves_nothing_there(tmp_path: Path, reference: Path) -> None:
    job = job_in(tmp_path, reference, rollout_workers=2, max_batches_ahead=4)
    memory = published_weights.memory_folder(job.run_dir)
    job = job.model_copy(update={"weights_dir": memory})
    run = Watched(job, quiet)
    run.supervise(lambda: False)
    assert_accounts_balance(job)
    assert {line["worker"] for line in run.seen if "sequence" in line} == {0, 1}
    assert max(line["step"] for line in run.seen if "sequence" in line) > 0
    assert not memory.exists()
    assert [path.name[-1] for path in sorted(job.kept.glob("step-*"))] == ["4", "6"]


def test_strict_alternation_samples_every_batch_with_the_weights_before_it(tmp_path: Path, reference: Path) -> None:
    job = job_in(tmp_path, reference, steps=5, max_batches_ahead=0, model_update_interval=1)
    Watched(job, quiet).supervise(lambda: False)
    with Warehouse.open(job.warehouse) as store:
        policies = store.rows(
            "SELECT b.step, list_distinct(list(t.step)) AS sampled_at "
            "FROM train_batches b, unnest(b.trajectory_ids) u(id) "
            "JOIN trajectories t ON t.trajectory_id = u.id WHERE b.run_id = ? GROUP BY b.step ORDER BY b.step",
            [RUN],
        )
    assert [(row["step"], row["sampled_at"]) for row in policies] == [(step, [step - 1]) for step in range(1, 6)]


def test_a_cancelled_run_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path, reference: Path) -> None:
    job = job_in(tmp_path, reference)
    run = Watched(job, quiet)
    with refused("Interrupted", RUN):
        run.supervise(lambda: any(line.get("done", 0) >= 2 for line in run.seen))
    left = [child.process.pid for child in run.running.values()]
    assert not any(psutil.pid_exists(pid) for pid in left)
    Watched(job, quiet).supervise(lambda: False)
    assert_accounts_balance(job)


def test_a_run_whose_workers_have_no_sandbox_stops_and_says_why(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody-listens.sock")
    job = job_in(tmp_path, reference)
    docker = job.config.sandbox.model_copy(update={"backend": "docker"})
    job = job.model_copy(update={"config": job.config.model_copy(update={"sandbox": docker})})
    with refused("ProcessDied", "worker-0", "SandboxUnavailable"):
        Watched(job, quiet).supervise(lambda: False)
    with Warehouse.open(job.warehouse) as store:
        assert store.value("SELECT count(*) FROM trajectories WHERE run_id = ?", [RUN]) == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills_at_random_times_lose_nothing_and_the_last_step_is_reached(tmp_path: Path, reference: Path) -> None:
    """SPO_KILLS kills of worker, trainer or both; the run cannot end before the last of them."""
    chance = random.Random(0)
    job = job_in(tmp_path, reference, steps=25 * KILLS, checkpoint_interval=4, snapshot_interval=1000)
    run = Watched(job, quiet)
    targets = [("worker-0",), ("trainer",), ("worker-0", "trainer")]
    killed: list[tuple[str, ...]] = []

    def killer() -> None:
        for number in range(KILLS):
            steps = len([line for line in run.seen if "done" in line])
            time.sleep(chance.uniform(0.0, 12.0))
            while number % 2 and len([line for line in run.seen if "done" in line]) == steps:
                time.sleep(0.05)  # every second kill meets a run that is training
            killed.append(targets[number % 3])
            run.kill(*killed[-1])

    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    manifest = run.supervise(lambda: False)
    thread.join(timeout=1)
    assert len(killed) == KILLS
    assert sum(run.restarts.values()) >= KILLS
    assert manifest["steps"] == job.train.steps
    assert_accounts_balance(job)


def test_every_process_sees_its_own_gpus_alone_and_the_run_says_which(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.train.supervisor.visible_gpus", lambda: ["0", "1", "2", "3"])
    job = job_in(tmp_path, reference, processes=2)
    told: list[dict[str, Any]] = []
    run = TrainingProcesses(job, tmp_path / "job.json", told.append, {"evaluator": ["true"]})
    seen = [dict(one.environment) for one in (run.trainer, *run.workers)]
    assert seen == [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "2"}]
    assert told == [{"placement": "trainer: GPUs 0, 1; worker-0: GPU 2; idle while training: 3"}]


def test_a_launcher_stands_before_each_workers_command(tmp_path: Path, reference: Path) -> None:
    job = make_job(tmp_path, reference, config(worker_launcher=("ssh", "gpu-{index}")))
    command = worker_command(job, tmp_path / "job.json", 3)
    assert command[:2] == ["ssh", "gpu-3"]
    assert command[-2:] == ["--index", "3"]
