"""A rollout worker in this process, with a real warehouse, engine and sandbox."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, SandboxUnavailable
from sandbox.worker import JudgeWorker
from tasks.report import run_history
from tasks.run.judged_again import rejudged_batch
from tasks.sampling.sampler import Judged
from tasks.train.rollout_worker.worker import RolloutWorker, batch_id
from tasks.train.shared.job import TrainJob
from tests.refusals import refused
from tests.sandbox.conftest import watched
from tests.tasks.train.conftest import RUN
from tests.tasks.train.rollout_worker.workers import append, job_in, publish, rows, sample, trained, working
from warehouse import Warehouse


def test_a_worker_stops_two_batches_ahead_and_goes_on_when_one_is_trained(job: TrainJob, judge: Judge) -> None:
    publish(job, 0, 0)
    with working(job, judge) as worker:
        worker.run()
        first = rows(job)
        assert len(first) == 16
        worker.run()
        assert len(rows(job)) == 16
        trained(job, 1)
        worker.run()
    after = rows(job)
    assert [row["trajectory_id"] for row in after[:16]] == [row["trajectory_id"] for row in first]
    assert len({row["trajectory_id"] for row in after}) == len(after) == 24


def test_a_worker_without_room_makes_the_steps_visible_that_the_trainer_has_staged(job: TrainJob, judge: Judge) -> None:
    publish(job, 0, 0)
    with working(job, judge) as worker:
        worker.run()
        assert not worker.has_room()
        used = [row["trajectory_id"] for row in rows(job)][:8]
        step = {"step": 1, "trajectory_ids": used, "sources": ["online"] * 8}
        with Warehouse.open(job.warehouse) as trainer:
            trainer.stage("step", {"train_batches": [step]}, run_id=RUN)
            assert not trainer.committed(["step"])
            assert worker.has_room()
            assert trainer.committed(["step"])


@pytest.mark.parametrize("rule", ["learnability", "thompson"])
def test_a_worker_with_a_curriculum_draws_a_lost_batch_again_and_writes_down_what_it_believed(
    rule: str, stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    job = job_in(stocked, reference, tmp_path, prompts=rule)
    publish(job, 0, 0)
    with working(job, judge) as worker:
        append(worker, 0)
        lost = [item.row["trajectory_id"] for item in sample(worker, 1)]
    with working(job, judge) as again:
        assert [item.row["trajectory_id"] for item in sample(again, again.next_sequence())] == lost
        append(again, 1)
    with Warehouse.open(job.warehouse) as store:
        found = store.rows(run_history.BELIEVED, [RUN])
    assert sum(row["responses"] for row in found) == 16
    assert {row["kind"] for row in found} <= {"hopeless", "open", "solved"}


def test_a_batch_lost_before_it_was_appended_is_drawn_again_exactly(job: TrainJob, judge: Judge) -> None:
    publish(job, 0, 0)
    with working(job, judge) as worker:
        lost = {item.row["trajectory_id"] for item in sample(worker, 0)}
    with working(job, judge) as again:
        assert again.next_sequence() == 0
        append(again, 0)
        assert {row["trajectory_id"] for row in rows(job)} == lost
        assert again.next_sequence() == 1
        append(again, 0)
        assert len(rows(job)) == len(lost)
        again.warehouse.append(rejudged_batch(batch_id(job.run_id, again.index, 4), "8"), {}, run_id=job.run_id)
        assert again.next_sequence() == 5


def scripted_job(stocked: Path, reference: Path, folder: Path, **train: Any) -> TrainJob:
    """A job whose engine takes requests while it decodes."""
    folder.mkdir()
    job = job_in(stocked, reference, folder, max_batches_ahead=5, **train)
    settings = job.config.engine.model_copy(update={"kind": "scripted"})
    return job.model_copy(update={"config": job.config.model_copy(update={"engine": settings})})


class LateJudge:
    """The real judge, which gives no verdict on the programs of one batch before two others have begun."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.begun = threading.Semaphore(0)

    def judge_stream(self, submissions: Any) -> Any:
        assert self.begun.acquire(timeout=120), "no further batch begins while verdicts are awaited"
        self.begun.release()
        yield from self._judge.judge_stream(submissions)


def test_batches_begin_while_verdicts_are_awaited_and_are_appended_whole_and_in_order(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    one_by_one = scripted_job(stocked, reference, tmp_path / "alone")
    with working(one_by_one, judge) as worker:
        for sequence in range(5):
            append(worker, sequence)
    rolling, late = scripted_job(stocked, reference, tmp_path / "rolling"), LateJudge(judge)
    with working(rolling, late, kind=Noting) as worker:  # type: ignore[arg-type]
        worker.third_begun = late.begun.release
        worker.run()
        under_way = worker.under_way
    assert under_way[:3] == [0, 1, 2]
    assert content(rolling) == content(one_by_one)
    with Warehouse.open(rolling.warehouse) as store:
        found = store.rows("SELECT message FROM run_events WHERE kind = 'rollout' ORDER BY arrival")
    assert [row["message"].split(":")[0] for row in found] == [f"worker 0, batch {n}" for n in range(5)]


class Noting(RolloutWorker):
    """Notes how many batches are under way whenever another one begins, and acts at the third."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.under_way: list[int] = []
        self.third_begun: Callable[[], None] = lambda: None
        self.shortest_poll_s = 0.0

    def draw(self, sequence: int) -> Any:
        self.under_way.append(sequence - self.appended)
        if len(self.under_way) == 3:
            self.third_begun()
        return super().draw(sequence)


class Dying(Noting):
    """Dies when its third batch is to be appended."""

    def append(self, sequence: int, judged: list[Judged]) -> None:
        if sequence == 2:
            raise KeyboardInterrupt
        super().append(sequence, judged)


def content(job: TrainJob) -> list[tuple[str, ...]]:
    """What was appended, by batch."""
    names = ("batch_id", "trajectory_id", "verdict", "policy_start", "policy_end", "text")
    return [tuple(row[name] for name in names) for row in rows(job)]


def test_batches_lost_while_several_were_under_way_are_drawn_again_exactly(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    whole = scripted_job(stocked, reference, tmp_path / "whole")
    with working(whole, judge, kind=Noting) as worker:
        worker.run()
    broken = scripted_job(stocked, reference, tmp_path / "broken")
    with working(broken, judge, kind=Dying) as worker, pytest.raises(KeyboardInterrupt):
        worker.run()
    with working(broken, judge, kind=Noting) as again:
        assert again.next_sequence() == 2
        again.run()
    assert content(broken) == content(whole)


def test_with_a_curriculum_no_batch_begins_before_the_last_one_has_arrived(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    job = scripted_job(stocked, reference, tmp_path / "curriculum", prompts="thompson")
    with working(job, judge) as worker:
        assert worker.may_begin(0)
        assert not worker.may_begin(1)
        worker.prompts.rule = "uniform"
        assert worker.may_begin(1)


def test_two_workers_draw_different_responses_under_batches_of_their_own(job: TrainJob, judge: Judge) -> None:
    with working(job, judge, 0) as one, working(job, judge, 1) as other:
        append(one, 0)
        append(other, 0)
    found = rows(job)
    assert {row["batch_id"] for row in found} == {batch_id(RUN, 0, 0), batch_id(RUN, 1, 0)}
    assert len({row["trajectory_id"] for row in found}) == 16
    assert len({row["seed"] for row in found}) == 16


def test_trajectories_name_policy_settings_and_log_probabilities(job: TrainJob, judge: Judge) -> None:
    published = publish(job, 4, 1)
    with working(job, judge) as worker:
        worker.refresh()
        append(worker, 0)
    for row in rows(job):
        assert row["policy_start"] == row["policy_end"] == published.policy_id
        assert (row["engine"], row["logprob_kind"], row["source"], row["worker"]) == (
            "transformers",
            "raw",
            "online",
            "0",
        )
        assert row["step"] == 4
        assert 0.1 <= row["temperature"] <= 0.8
        assert row["top_p"] == pytest.approx(0.95)
        assert len(row["sampled_logprobs"]) == len(row["token_ids"])
        assert row["finish_reason"] in ("stop", "length")
        assert row["reward"] is not None
    assert len({row["temperature"] for row in rows(job)}) == 8


def test_every_batch_says_where_its_time_went(job: TrainJob, judge: Judge) -> None:
    publish(job, 0, 0)
    with working(job, judge) as worker:
        worker.run()
    with Warehouse.open(job.warehouse) as store:
        events = store.rows("SELECT message, payload_json FROM run_events WHERE kind = 'rollout' ORDER BY message")
    assert [row["message"].split(":")[0] for row in events] == ["worker 0, batch 0", "worker 0, batch 1"]
    figures = json.loads(events[0]["payload_json"])
    assert set(figures["seconds"]) == {"wait", "refresh", "sample", "judge"}
    assert figures["seconds"]["sample"] > 0
    assert figures["responses"] == 8


def test_a_worker_whose_sandbox_is_down_says_so_takes_no_more_prompts_and_writes_no_reward(
    job: TrainJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(job, 0, 0)
    with watched(workers=1) as (judge, runners), working(job, judge) as worker:
        for runner in runners():
            os.kill(runner, signal.SIGKILL)

        def refuse(_: JudgeWorker) -> None:
            raise SandboxUnavailable("no walls can be had any more")

        monkeypatch.setattr(JudgeWorker, "start", refuse)
        with refused("JudgingImpossible"):
            worker.run()
    found = rows(job)
    unjudged = {row["batch_id"] for row in found if row["verdict"] == "infra"}
    assert unjudged == {found[-1]["batch_id"]}
    assert all((row["verdict"], row["reward"]) in (("infra", None), ("cut_off", -1.0)) for row in found)


def test_a_program_whose_own_tests_are_broken_does_not_stop_the_worker(job: TrainJob, judge: Judge) -> None:
    publish(job, 0, 0)
    with working(job, judge) as worker:
        judged = sample(worker, 0)
        for item in judged:
            item.row.update(verdict="infra", reward=None)
        worker.append(0, judged)
    assert [row["reward"] for row in rows(job)] == [None] * 8


def test_responses_of_pi_0_that_another_run_has_drawn_as_well_count_once(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    as_q0 = {"weights": "reference", "temperature": [1.0, 1.0], "top_p": 1.0}
    job = job_in(stocked, reference, tmp_path, behaviour=as_q0)
    other = job.model_copy(update={"run_id": "other", "run_dir": job.run_dir.parent / "other"})
    for each in (job, other, job):
        with working(each, judge) as worker:
            append(worker, worker.next_sequence())
    with Warehouse.open(job.warehouse) as store:
        drawn = store.rows(
            "SELECT split_part(batch_id, '/', 2) AS run, count(*) AS n, count(DISTINCT trajectory_id) AS own "
            "FROM trajectories WHERE starts_with(batch_id, 'rollout/') GROUP BY run ORDER BY run"
        )
        counts = "SELECT sum(n) FROM reference_counts WHERE starts_with(batch_id, 'rollout/')"
        assert store.value("SELECT count(DISTINCT trajectory_id) FROM trajectories WHERE source = 'online'") == 16
        assert store.value(counts) == 16
        assert store.value(f"{counts} AND starts_with(batch_id, 'rollout/other/')") is None
    assert sorted((row["n"], row["own"]) for row in drawn) == [(8, 8), (16, 16)]
