"""A rollout worker takes up the weights that the trainer publishes, and says how far its engine is from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from sandbox import Judge
from tasks.checkpoints.checkpoint import policy_id
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import load_policy
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tests.refusals import refused
from tests.tasks.train.conftest import examples, tiny_model
from tests.tasks.train.rollout_worker.workers import append, job_in, publish, publish_adapter, rows, scored, working
from warehouse import Warehouse


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
        with refused("EngineDrift"):
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
        with refused("EngineDrift"):
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
