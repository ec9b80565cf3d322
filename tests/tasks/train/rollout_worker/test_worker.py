"""A rollout worker in this process, with a real warehouse, engine and sandbox."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sandbox import Judge, SandboxUnavailable
from sandbox.worker import JudgeWorker
from tasks.engines import open_engine
from tasks.engines.checkpoint import load_tokenizer, policy_id
from tasks.engines.protocol import EngineDrift
from tasks.report import run_history
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Judged, Sampler
from tasks.scoring import lora
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy, load_policy
from tasks.train.rollout_worker.backpressure import Backpressure
from tasks.train.rollout_worker.prompt_schedule import PromptSchedule
from tasks.train.rollout_worker.worker import RolloutWorker, batch_id
from tasks.train.shared import published_weights
from tasks.train.shared.errors import JudgingImpossible
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import frozen_values, success_rates
from tasks.train.shared.stop import Stop
from tests.tasks.train.conftest import RUN, config, examples, fill, make_job, save_reference, tiny_model
from warehouse import Warehouse

ONLINE = {"online": {"share": 1.0}}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_reference(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    folder = tmp_path_factory.mktemp("stocked")
    fill(folder / "warehouse", reference, online=0)
    return folder


@pytest.fixture
def job(stocked: Path, reference: Path, tmp_path: Path) -> TrainJob:
    """Optimizer batches of 8 online trajectories, rollout batches of 8, at most two batches ahead."""
    return job_in(stocked, reference, tmp_path)


def job_in(stocked: Path, reference: Path, folder: Path, **train: Any) -> TrainJob:
    shutil.copytree(stocked / "warehouse", folder / "warehouse")
    return make_job(folder, reference, config(**{"sources": ONLINE, "steps": 100} | train))


@contextmanager
def working(job: TrainJob, judge: Judge, index: int = 0) -> Iterator[RolloutWorker]:
    """A worker of the job that stops where it would wait."""
    engine = open_engine(job.config.engine, job.reference, dtype="float32")
    with Warehouse.open(job.warehouse) as store:
        sampler = Sampler(
            engine,
            load_tokenizer(job.reference),
            judge,
            behaviour=job.train.behaviour,
            max_response_tokens=job.config.engine.max_response_tokens,
            known=KnownVerdicts(store),
        )
        prompts = PromptSchedule.read(store, job)
        rates = success_rates(frozen_values(store, job), job.train.beta)
        worker = RolloutWorker(job, index, store, prompts, sampler, judge, lambda _: None, Stop(), rates=rates)
        worker.stop = lambda: not Backpressure.read(store, job).has_room(job)  # type: ignore[assignment]
        yield worker
    engine.close()


def sample(worker: RolloutWorker, sequence: int) -> list[Judged]:
    """The responses of one batch, judged."""
    drawn = iter([worker.draw(sequence)])
    (judged,) = worker.sampler.roll(drawn, source="online", worker=str(worker.index), step=lambda: worker.step)
    return judged


def append(worker: RolloutWorker, sequence: int) -> None:
    """Sample one batch by itself, and append it."""
    worker.append(sequence, sample(worker, sequence))


def publish(
    job: TrainJob, step: int, seed: int, canaries: list[published_weights.Canary] | None = None
) -> published_weights.Published:
    model = tiny_model(seed)
    return published_weights.publish(
        job.weights, step, model, model.state_dict(), like=job.reference, canaries=canaries or []
    )


def publish_adapter(
    job: TrainJob, step: int, seed: int, *, canaries_of: int | None = None
) -> published_weights.Published:
    """Random adapters of `seed`, with what the trainer's pass says of the canaries with those of `canaries_of`."""
    train = job.train
    assert train.lora is not None
    config = train.lora

    def disturbed(number: int) -> Policy:
        policy = load_policy(job.reference, train, "float32", trained=True)
        torch.manual_seed(number)
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.1)
        return policy

    policy = disturbed(seed)

    def write(folder: Path) -> None:
        lora.save_adapter(policy.causal_lm, policy.causal_lm.state_dict(), config, job.reference, folder)

    canaries = scored(policy if canaries_of is None else disturbed(canaries_of))
    return published_weights.publish_adapter(job.weights, step, write, base=policy_id(job.reference), canaries=canaries)


def trained(job: TrainJob, step: int) -> None:
    """Record that the trainer has used the oldest waiting batch."""
    with Warehouse.open(job.warehouse) as store:
        rows = store.rows("SELECT trajectory_id FROM trajectories WHERE run_id = ? ORDER BY batch_id", [RUN])
        ids = [row["trajectory_id"] for row in rows][8 * (step - 1) : 8 * step]
        row = {"step": step, "trajectory_ids": ids, "sources": ["online"] * 8}
        store.append(f"train/{step}", {"train_batches": [row]}, run_id=RUN)


def rows(job: TrainJob) -> list[dict[str, Any]]:
    with Warehouse.open(job.warehouse) as store:
        return store.rows("SELECT * FROM trajectories WHERE run_id = ? ORDER BY batch_id, trajectory_id", [RUN])


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
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = scripted_job(stocked, reference, tmp_path / "alone")
    with working(one_by_one, judge) as worker:
        for sequence in range(5):
            append(worker, sequence)
    monkeypatch.setattr("tasks.train.rollout_worker.worker.SHORTEST_POLL_S", 0.0)
    rolling, late = scripted_job(stocked, reference, tmp_path / "rolling"), LateJudge(judge)
    under_way: list[int] = []
    draw = RolloutWorker.draw

    def drawn(worker: RolloutWorker, sequence: int) -> Any:
        under_way.append(sequence - worker.appended)
        if len(under_way) == 3:
            late.begun.release()
        return draw(worker, sequence)

    monkeypatch.setattr(RolloutWorker, "draw", drawn)
    with working(rolling, late) as worker:  # type: ignore[arg-type]
        worker.run()
    assert under_way[:3] == [0, 1, 2]
    assert content(rolling) == content(one_by_one)
    with Warehouse.open(rolling.warehouse) as store:
        found = store.rows("SELECT message FROM run_events WHERE kind = 'rollout' ORDER BY arrival")
    assert [row["message"].split(":")[0] for row in found] == [f"worker 0, batch {n}" for n in range(5)]


def content(job: TrainJob) -> list[tuple[str, ...]]:
    """What was appended, by batch."""
    names = ("batch_id", "trajectory_id", "verdict", "policy_start", "policy_end", "text")
    return [tuple(row[name] for name in names) for row in rows(job)]


def test_batches_lost_while_several_were_under_way_are_drawn_again_exactly(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.train.rollout_worker.worker.SHORTEST_POLL_S", 0.0)
    whole = scripted_job(stocked, reference, tmp_path / "whole")
    with working(whole, judge) as worker:
        worker.run()
    broken = scripted_job(stocked, reference, tmp_path / "broken")
    keep = RolloutWorker.append

    def dies(worker: RolloutWorker, sequence: int, judged: list[Judged]) -> None:
        if sequence == 2:
            raise KeyboardInterrupt
        keep(worker, sequence, judged)

    with monkeypatch.context() as patched, working(broken, judge) as worker:
        patched.setattr(RolloutWorker, "append", dies)
        with pytest.raises(KeyboardInterrupt):
            worker.run()
    with working(broken, judge) as again:
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


def test_the_newest_weights_are_taken_between_batches_or_the_reference_kept_as_the_recipe_says(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    for which in ("latest", "reference"):
        (tmp_path / which).mkdir()
        behaviour = {"weights": which, "temperature": (1, 1), "top_p": 1}
        job = job_in(stocked, reference, tmp_path / which, behaviour=behaviour)
        published = publish(job, 2, 1)
        with working(job, judge) as worker:
            worker.run()
        expected = published.policy_id if which == "latest" else policy_id(reference)
        assert {row["policy_start"] for row in rows(job)} == {expected}
        assert {row["temperature"] for row in rows(job)} == {1.0}


def scored(policy: Policy, count: int = 4) -> list[published_weights.Canary]:
    """Canaries by the pass that training takes."""
    few = examples(count)
    with torch.no_grad():
        pieces = policy(lay_out(few))[0].split([len(example.response_ids) for example in few])
    return [
        published_weights.Canary(e.prompt_ids, e.response_ids, tuple(p.tolist()))
        for e, p in zip(few, pieces, strict=True)
    ]


def test_the_distance_between_engine_and_trainer_is_measured_after_each_refresh(job: TrainJob, judge: Judge) -> None:
    with working(job, judge) as worker:
        for step, seed in ((2, 1), (4, 2)):
            published = publish(job, step, seed)
            policy = load_policy(published.folder, job.train, "float32", trained=False)
            publish(job, step + 1, seed, scored(policy))
            worker.refresh()
            append(worker, step)
    with Warehouse.open(job.warehouse) as store:
        found = store.rows("SELECT step, value FROM train_steps WHERE name = 'worker-0/drift' ORDER BY step")
    assert [row["step"] for row in found] == [3, 5]
    assert all(0 < row["value"] < 1e-4 for row in found)


def test_a_worker_takes_up_adapters_that_compute_what_the_trainer_computes(
    stocked: Path, reference: Path, tmp_path: Path, judge: Judge
) -> None:
    job = job_in(stocked, reference, tmp_path, lora={"rank": 4})
    policies = [publish_adapter(job, 1, seed=1).policy_id]
    with working(job, judge) as worker:
        worker.refresh()
        append(worker, 0)
        policies.append(publish_adapter(job, 2, seed=2).policy_id)
        worker.refresh()
        append(worker, 1)
        publish_adapter(job, 3, seed=3, canaries_of=4)
        with pytest.raises(EngineDrift, match=r"off by .* on the canary"):
            worker.refresh()
    assert [row["policy_start"] for row in rows(job)] == [policies[0]] * 8 + [policies[1]] * 8
    with Warehouse.open(job.warehouse) as store:
        found = store.rows("SELECT step, value FROM train_steps WHERE name = 'worker-0/drift' ORDER BY step")
    assert [row["step"] for row in found] == [1, 2]
    assert all(row["value"] < 1e-4 for row in found)


def test_weights_that_are_not_what_the_trainer_holds_are_an_error(job: TrainJob, judge: Judge) -> None:
    right = publish(job, 1, 1)
    canaries = scored(load_policy(right.folder, job.train, "float32", trained=False))
    model = tiny_model(1)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    state["model.layers.1.mlp.down_proj.weight"] *= 1.05
    published_weights.publish(job.weights, 2, model, state, like=job.reference, canaries=canaries)
    with working(job, judge) as worker:
        with pytest.raises(EngineDrift, match=r"off by .* on the canary"):
            worker.run()
    assert rows(job) == []


def test_sampled_log_probabilities_are_the_trainers_within_a_ten_thousandth(job: TrainJob, judge: Judge) -> None:
    published = publish(job, 1, 3)
    policy = load_policy(published.folder, job.train, "float32", trained=False)
    with working(job, judge) as worker:
        worker.refresh()
        for sequence in range(4):
            append(worker, sequence)
        prompts = {prompt.prompt_id: prompt.token_ids for prompt in worker.prompts.prompts}
    worst = 0.0
    for row in rows(job):
        example = replace(examples(1)[0], prompt_ids=prompts[row["prompt_id"]], response_ids=tuple(row["token_ids"]))
        with torch.no_grad():
            expected = policy(lay_out([example]))[0]
        worst = max(worst, float((expected - torch.tensor(row["sampled_logprobs"])).abs().max()))
    assert worst < 1e-4


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
    with Judge("embedded", workers=1) as judge, working(job, judge) as worker:
        for runner in judge._workers:
            runner.close()

        def refuse(_: JudgeWorker) -> None:
            raise SandboxUnavailable("no walls can be had any more")

        monkeypatch.setattr(JudgeWorker, "start", refuse)
        with pytest.raises(JudgingImpossible, match="no walls can be had any more"):
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
