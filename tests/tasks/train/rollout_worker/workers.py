"""A rollout worker in this process, and what a trainer would publish and record for it."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sandbox import Judge
from tasks.checkpoints.checkpoint import load_tokenizer, policy_id
from tasks.engines import open_engine
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Judged, Sampler
from tasks.scoring import lora
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy, load_policy
from tasks.train.rollout_worker.backpressure import Backpressure
from tasks.train.rollout_worker.prompt_schedule import PromptSchedule
from tasks.train.rollout_worker.worker import RolloutWorker
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import frozen_values, success_rates
from tasks.train.shared.stop import Stop
from tests.tasks.train.conftest import RUN, config, examples, make_job, tiny_model
from warehouse import Warehouse

ONLINE = {"online": {"share": 1.0}}


def job_in(stocked: Path, reference: Path, folder: Path, **train: Any) -> TrainJob:
    shutil.copytree(stocked / "warehouse", folder / "warehouse")
    return make_job(folder, reference, config(**{"sources": ONLINE, "steps": 100} | train))


@contextmanager
def working(job: TrainJob, judge: Judge, index: int = 0, kind: type[Any] = RolloutWorker) -> Generator[Any]:
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
        worker = kind(job, index, store, prompts, sampler, judge, lambda _: None, Stop(), rates=rates)
        worker.stop = lambda: not Backpressure.read(store, job).has_room(job)
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


def scored(policy: Policy, count: int = 4) -> list[published_weights.Canary]:
    """Canaries by the pass that training takes."""
    few = examples(count)
    with torch.no_grad():
        pieces = policy(lay_out(few))[0].split([len(example.response_ids) for example in few])
    return [
        published_weights.Canary(e.prompt_ids, e.response_ids, tuple(p.tolist()))
        for e, p in zip(few, pieces, strict=True)
    ]
