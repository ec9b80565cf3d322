"""What a run's batches are drawn from is what is recorded, whoever else runs and however often it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.checks import plan
from tasks.run import provenance, runs
from tasks.run.errors import TrainingHasBegun
from tasks.run.manifests import CorpusManifest, PivotalManifest
from tasks.run.stage import finished as manifest_of
from tasks.train import supervisor
from tasks.train.shared.job import TrainJob
from tests.tasks.conftest import Lab

BEFORE_TRAINING = ("prepare", "q0", "corpus", "pivotal")
COPIED = ("problem_id", "prompt_id", "suite_hash", "source", "token_ids", "reward", "verdict", "text", "policy_start")


class Killed(BaseException):
    """Training was killed."""


def add_online_trajectory(lab: Lab, name: str, run_id: str) -> int:
    """A correct program that another run's workers wrote; the snapshot that shows it."""
    with lab.store() as store:
        (row,) = store.rows("SELECT * FROM trajectories WHERE reward = 0 ORDER BY trajectory_id LIMIT 1")
        new = {column: row[column] for column in COPIED} | {"trajectory_id": name, "normal_hash": name}
        program = f"numbers = [int(word) for word in input().split()]\nprint('{name}', max(numbers) - min(numbers) + 7)"
        return store.append(name, {"trajectories": [new | {"source": "online", "text": program}]}, run_id=run_id)


def members_called(lab: Lab, name: str, corpus_id: str) -> int:
    with lab.store() as store:
        where = "corpus_id = ? AND trajectory_id = ?"
        return store.value(f"SELECT count(*) FROM corpus WHERE {where}", [corpus_id, name])


@pytest.fixture
def begun(copied: Callable[[], Lab], monkeypatch: pytest.MonkeyPatch) -> tuple[Lab, str, list[TrainJob]]:
    """A run that was killed in training; every further start of training is killed, too, and its job listed."""
    lab, jobs = copied(), list[TrainJob]()

    def killed(job_file: Path, *_: Any, **__: Any) -> None:
        jobs.append(TrainJob.read(job_file))
        raise Killed

    monkeypatch.setattr(supervisor, "run_training", killed)
    run_id = lab.start("begun", {"train.steps": 3})
    lab.run(run_id, *BEFORE_TRAINING)
    with pytest.raises(Killed):
        lab.run(run_id, "train")
    return lab, run_id, jobs


def test_a_resumed_run_trains_on_what_it_began_with_and_nothing_else(begun: tuple[Lab, str, list[TrainJob]]) -> None:
    lab, run_id, jobs = begun
    add_online_trajectory(lab, "later", "other-1")
    results = lab.run(run_id, *BEFORE_TRAINING)
    assert all(result.skipped for result in results.values())
    with pytest.raises(Killed):
        lab.run(run_id, "train")
    first, again = jobs
    assert (again.corpus_id, again.search_id) == (first.corpus_id, first.search_id)
    with lab.store() as store:
        recorded = manifest_of(store, CorpusManifest, run_id=run_id)
        searched = manifest_of(store, PivotalManifest, run_id=run_id)
    assert recorded is not None
    assert searched is not None
    assert (recorded.corpus_id, searched.search_id) == (first.corpus_id, first.search_id)
    assert members_called(lab, "later", first.corpus_id) == 0
    for stage in ("corpus", "train"):
        with pytest.raises(TrainingHasBegun):
            lab.run(run_id, stage, force=True)
    assert len(jobs) == 2
    with lab.store() as store, pytest.raises(TrainingHasBegun):
        provenance.pin(store, run_id, 1)


def test_before_training_a_resumed_run_takes_in_what_others_added(copied: Callable[[], Lab]) -> None:
    lab = copied()
    run_id = lab.start("waiting")
    lab.run(run_id, "prepare", "q0", "corpus")
    add_online_trajectory(lab, "later", "other-1")
    again = lab.run(run_id, "prepare", "q0", "corpus")["corpus"]
    assert not again.skipped
    assert members_called(lab, "later", again.manifest.corpus_id) == 1


def test_every_stage_of_a_finished_run_stays_fresh_though_others_run(copied: Callable[[], Lab]) -> None:
    lab = copied()
    add_online_trajectory(lab, "later", "other-1")
    with lab.store() as store:
        row = store.rows("SELECT * FROM reference_counts LIMIT 1")[0]
        counts = {name: row[name] for name in ("problem_id", "reference", "sampling", "template_id", "suite_hash")}
        store.append("more", {"reference_counts": [counts | {"n": 7, "k": 3}]}, run_id="other-1")
        found = {status.stage: status.state for status in plan.statuses(store, "micro-1", lab.home)}
        executions = store.rows("SELECT stage, executions FROM cost_by_stage WHERE run_id = 'micro-1'")
    assert set(found.values()) == {"fresh"}
    assert all(result.skipped for result in lab.run("micro-1").values())
    with lab.store() as store:
        assert store.rows("SELECT stage, executions FROM cost_by_stage WHERE run_id = 'micro-1'") == executions
        assert runs.load_config(store, "micro-1").train.steps == 4
