"""Evaluation beside training: the same samples as afterwards, never in training's way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tasks.evaluate import eval_samples
from tasks.evaluate.eval_samples import EvaluatedPolicy
from tasks.run import prompt_set, runs
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context
from tasks.train import stage as training
from tasks.train.shared.child import RunningProcess, start_process
from tasks.train.shared.job import TrainJob
from tests.shared_folder import copy_home
from tests.tasks.conftest import Lab
from tests.tasks.forked_training import trainings_forked

SAMPLES = (
    "SELECT string_agg(concat_ws('/', policy_id, problem_id, sample, token_ids, verdict, entropy), '; ' ORDER BY "
    "policy_id, problem_id, sample) FROM eval_samples"
)


@pytest.fixture
def unevaluated(finished: Lab, tmp_path: Path) -> tuple[Lab, Path]:
    """A warehouse that knows the problems of the finished run but none of its samples, and the run's job in it."""
    for name in ("models", "runs"):
        copy_home(finished.home / name, tmp_path / name)
    lab = Lab(tmp_path)
    lab.run(lab.start("first"), "prepare")
    job = TrainJob.read(finished.home / "runs" / "micro-1" / "train" / "job.json")
    moved = {"warehouse": str(tmp_path / "warehouse"), "run_dir": tmp_path / "runs" / "micro-1" / "train"}
    return lab, job.model_copy(update=moved).write(tmp_path / "job.json")


@contextmanager
def started(job: Path) -> Iterator[tuple[RunningProcess, IO[bytes]]]:
    """The evaluator of a job and what it prints; its standard input closes at the end, and it ends."""
    (given, ours), (printed, output) = os.pipe(), os.pipe()
    with trainings_forked(), open(os.devnull, "wb") as errors, os.fdopen(printed, "rb") as lines:
        process = start_process(training.evaluator_command(job), given, output, errors, os.environ)
        for number in (given, output):
            os.close(number)
        yield process, lines
        os.close(ours)
        assert process.wait(300) == 0, "it has a low priority: on a busy machine it takes its time"


def test_it_draws_what_the_stage_draws_and_ends_with_the_process_that_started_it(
    finished: Lab, unevaluated: tuple[Lab, Path]
) -> None:
    lab, job = unevaluated
    with started(job) as (process, lines):
        told = [json.loads(lines.readline()) for _ in range(3)]
        niceness = os.getpriority(os.PRIO_PROCESS, process.pid)
        os.killpg(process.pid, signal.SIGTERM)
    assert [line["evaluated"] for line in told] == [0, 2, 4]
    assert niceness >= min(os.nice(0) + 10, 19)
    assert lab.value(SAMPLES) == finished.value(SAMPLES)
    assert lab.value("SELECT count(*) FROM run_events WHERE kind = 'evaluated' AND message LIKE '%pass@10%'") == 3
    with started(job):
        pass  # whose standard input closes at once


@pytest.mark.slow
def test_training_goes_on_without_an_evaluator_that_cannot_run(
    copied: Callable[[], Lab], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = copied()
    monkeypatch.setattr(training, "EVALUATOR_MODULE", "tasks.there_is_no_such_module")
    run_id = lab.start("alone", {"evaluate.during_training": True, "train.steps": 6})
    results = lab.run(run_id, "prepare", "q0", "corpus", "pivotal", "train")
    assert results["train"].manifest.policies[-1].step == 6
    warning = lab.value(f"SELECT message FROM run_events WHERE run_id = '{run_id}' AND kind = 'warning' LIMIT 1")
    assert "ended with status 1" in warning


def test_more_samples_draw_the_difference_and_asking_again_draws_nothing(copied: Callable[[], Lab]) -> None:
    lab = copied()
    with lab.store() as store:
        config = runs.load_config(store, "micro-1")
        more = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"samples": 12})})
        context = Context("micro-1", more, store, lab.home)
        prompts = prompt_set.load(context, "evaluation")
        reference = EvaluatedPolicy(prompts.policy_id, prompts.reference, 0)
        with open_sampler(context, reference.folder, more.evaluate.behaviour) as sampler:
            drawn = [eval_samples.sample_missing(context, prompts, reference, sampler) for _ in range(2)]
        counts = eval_samples.counts(context, prompts, reference.policy_id)
        different = store.value(
            "SELECT count(DISTINCT (problem_id, seed)) FROM eval_samples WHERE policy_id = ?", [reference.policy_id]
        )
        numbers = store.rows(
            "SELECT list(sample ORDER BY sample) AS numbers FROM eval_samples WHERE policy_id = ? GROUP BY problem_id",
            [reference.policy_id],
        )
    assert drawn == [4 * 2, 0]
    assert [n for n, _ in counts.values()] == [12] * 4
    assert different == 4 * 12
    assert [row["numbers"] for row in numbers] == [list(range(12))] * 4
