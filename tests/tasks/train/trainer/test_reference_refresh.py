"""The policy becomes the reference: when, with which values, and again exactly so when a run is repeated."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import load_file

from tasks.checkpoints.checkpoint import policy_id
from tasks.estimators import soft_value
from tasks.scoring.reference import fingerprint
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.trainer import reference_refresh
from tasks.train.trainer.reference_refresh import values_under
from tests.refusals import refused
from tests.tasks.train.conftest import PROBLEMS, RUN, config, fill, make_job, trajectory
from tests.tasks.train.trainer.test_publisher import in_a_process, instead_of_publishing, train
from tests.tasks.train.trainer.test_runs import outcome, run
from tests.tasks.train.trainer_process import start
from warehouse import Warehouse
from warehouse.superseding import content

SETTINGS: dict[str, Any] = {
    "steps": 12,
    "reference_refresh_interval": 4,
    "reference_refresh_samples": 3,
    "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
    "checkpoint_interval": 5,
    "sources": {"online": {"share": 1.0}},
}


@contextmanager
def worker(job: TrainJob) -> Generator[None]:
    """Appends a batch of responses whenever the trainer has used the last one, by the newest published policy."""
    done = threading.Event()
    thread = threading.Thread(target=_work, args=(job, done))
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _work(job: TrainJob, done: threading.Event) -> None:
    chance = random.Random(11)
    with Warehouse.open(job.warehouse) as warehouse:
        suites = {r["problem_id"]: r["suite_hash"] for r in warehouse.rows("SELECT * FROM problems")}
        sequence = 0
        while not done.is_set():
            newest = published_weights.latest(job.weights)
            trained = warehouse.value("SELECT count(*) FROM train_batches WHERE run_id = ?", (RUN,))
            if newest is None or trained < sequence:
                time.sleep(0.02)
                continue
            rows = [_row(chance, sequence * 8 + i, newest.policy_id, suites) for i in range(8)]
            warehouse.append(f"rollout/{RUN}/0/{sequence:08d}", {"trajectories": rows}, run_id=RUN)
            sequence += 1


def _row(chance: random.Random, number: int, policy: str, suites: dict[str, str]) -> dict[str, Any]:
    row = trajectory(chance, number, "online")
    return row | {"policy_start": policy, "policy_end": policy, "suite_hash": suites[row["problem_id"]]}


@pytest.fixture(scope="module")
def finished(reference: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainJob:
    """A run whose reference was refreshed."""
    folder = tmp_path_factory.mktemp("refreshed")
    fill(folder / "warehouse", reference, online=0)
    job = make_job(folder, reference, config(**SETTINGS))
    with Warehouse.open(job.warehouse) as warehouse:  # as the stage does: counts that others add meanwhile are not seen
        seen = job.counts.model_copy(update={"until": warehouse.snapshot()})
    job = job.model_copy(update={"counts": seen})
    job.write(folder / "job.json")
    with worker(job):
        run(job)
    return job


def _writes_the_nominee_slowly(job_file: str) -> None:
    instead_of_publishing(4, lambda: time.sleep(2.0))
    train(job_file)


def test_the_nominee_is_waited_for_where_weights_are_published_beside_training(reference: Path, tmp_path: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=0)
    job = make_job(tmp_path, reference, config(**SETTINGS, publish="background"))
    job.write(tmp_path / "job.json")
    with worker(job):
        assert in_a_process(_writes_the_nominee_slowly, job) == 0
    step, chosen = refreshes(job)[0]
    assert step > 4
    assert chosen == policy_id(published_weights.folder_of(job.kept, 4))


def refreshes(job: TrainJob) -> list[tuple[int, str]]:
    """(step, new reference) of every refresh."""
    with Warehouse.open(job.warehouse) as warehouse:
        found = warehouse.rows(
            "SELECT batch_id, any_value(reference) AS reference FROM reference_counts "
            "WHERE starts_with(batch_id, 'reference/') GROUP BY batch_id ORDER BY batch_id"
        )
    return [(int(row["batch_id"].split("/")[2]), row["reference"]) for row in found]


def test_the_nominee_becomes_the_reference_when_every_problem_has_its_samples(finished: TrainJob) -> None:
    step, reference = refreshes(finished)[0]
    assert reference == policy_id(published_weights.folder_of(finished.kept, 4))
    assert step > 4
    with Warehouse.open(finished.warehouse) as warehouse:
        rows = warehouse.rows("SELECT problem_id, n, k FROM reference_counts WHERE reference = ?", (reference,))
        drawn = "SELECT count(*) FROM trajectories WHERE policy_start = ?"
        assert sum(row["n"] for row in rows) <= warehouse.value(drawn, (reference,))
        assert len(rows) == PROBLEMS
        assert all(row["n"] >= 3 for row in rows)
        values = values_under(warehouse, finished, published_weights.folder_of(finished.kept, 4))
    beta, prior = finished.train.beta, finished.config.q0.prior
    assert values == {r["problem_id"]: pytest.approx(soft_value(r["n"], r["k"], beta, prior=prior)) for r in rows}


def test_reference_logprobs_are_kept_under_the_fingerprint_of_the_reference_they_belong_to(finished: TrainJob) -> None:
    step, _ = refreshes(finished)[0]
    old = fingerprint(finished.reference, finished.train, "float32", "cpu")
    new = fingerprint(published_weights.folder_of(finished.kept, 4), finished.train, "float32", "cpu")
    with Warehouse.open(finished.warehouse) as warehouse:
        for row in warehouse.rows("SELECT batch_id, fingerprint FROM reference_logprobs"):
            number = int(row["batch_id"].split("/")[2])
            assert row["fingerprint"] == old if number <= step else row["fingerprint"] != old
        assert warehouse.value("SELECT count(*) FROM reference_logprobs WHERE fingerprint = ?", (new,)) > 0


@pytest.mark.parametrize("publish", ["waiting", "background"])
def test_a_run_repeated_from_its_records_changes_its_reference_at_the_same_step(
    publish: str, finished: TrainJob, reference: Path, tmp_path: Path
) -> None:
    """Also when it is killed on the way: no worker runs, every batch and every change comes from the records."""
    shutil.copytree(finished.run_dir.parent / "warehouse", tmp_path / "warehouse")
    job = make_job(tmp_path, reference, config(**SETTINGS, publish=publish))
    job.write(tmp_path / "job.json")
    process = start(job)
    assert process.stdout is not None
    for _ in range(9):
        process.stdout.readline()
    process.kill()
    process.communicate()
    run(job)
    assert refreshes(job) == refreshes(finished)
    last = f"step-{job.train.steps:08d}/model.safetensors"
    left, right = load_file(finished.weights / last), load_file(job.weights / last)
    assert all((left[name] == right[name]).all() for name in left)
    assert outcome(job)["batches"] == outcome(finished)["batches"]
    assert published_weights.latest(job.weights) == published_weights.read(job.weights / f"step-{job.train.steps:08d}")


@pytest.mark.parametrize(("named", "recorded"), [("nominee", True), ("another", False)])
def test_a_change_that_version_0_1_recorded_without_its_reference_is_repeated(
    named: str, recorded: bool, reference: Path, tmp_path: Path
) -> None:
    shutil.copytree(reference, published_weights.folder_of(tmp_path, 4))
    counts = {
        "problem_id": "p",
        "reference": policy_id(reference) if named == "nominee" else named,
        "sampling": "s",
        "template_id": "t",
        "suite_hash": "h",
    }
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        warehouse.append("reference/run/00000006", {"reference_counts": [counts | {"n": 3, "k": 1}]}, run_id="run")
        session: Any = SimpleNamespace(
            job=SimpleNamespace(run_id="run", kept=tmp_path), step=6, references=SimpleNamespace(nominee=4)
        )
        rank_zero: Any = SimpleNamespace(warehouse=warehouse, last_recorded=9)
        assert reference_refresh.time_has_come(session, rank_zero) == recorded
        session.step = 7
        assert not reference_refresh.time_has_come(session, rank_zero)


def test_the_values_are_those_of_the_change_whatever_others_count_or_was_stored_again(
    reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=8)
    job = make_job(tmp_path, reference, config(**SETTINGS))
    nominee = policy_id(reference)
    with Warehouse.open(job.warehouse) as warehouse:
        row = warehouse.rows("SELECT * FROM reference_counts WHERE problem_id = 'p0' LIMIT 1")[0]
        counts = content(row) | {"reference": nominee, "sampling": job.counts.sampling}
        counts |= {"template_id": job.counts.template_id, "n": 8, "k": 2}
        first = f"reference/{RUN}/00000004/{nominee}"
        warehouse.append(first, {"reference_counts": [counts]}, run_id=RUN)
        found = values_under(warehouse, job, reference)
        assert found["p0"] == soft_value(8, 2, job.train.beta, prior=job.config.q0.prior)
        for batch in (f"reference/{RUN}/00000006/{nominee}", "q0/other"):
            warehouse.append(batch, {"reference_counts": [counts | {"n": 80, "k": 0}]}, run_id="other")
        assert values_under(warehouse, job, reference) == found


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"behaviour": {"temperature": [0.1, 0.8]}}, "temperature"),
        ({"reference_refresh_interval": 3}, "model_update_interval"),
        ({"lora": {}}, "lora"),
        ({"max_batches_ahead": 0, "model_update_interval": 1}, "max_batches_ahead"),
        ({"sources": {"online": {"share": 0.5}, "pivotal": {"share": 0.5}}}, "pivotal"),
    ],
)
def test_settings_under_which_the_new_values_would_be_wrong_are_refused(change: dict[str, Any], named: str) -> None:
    with refused("InvalidConfig", named):
        config(**SETTINGS | change)
