"""A rollout worker that samples with vLLM: published weights are taken up and checked, in vLLM's own environment."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

if importlib.util.find_spec("vllm") is None and os.environ.get("SPO_REQUIRE_VLLM") != "1":
    pytest.skip("vLLM is not installed in this environment (docs/guides/engines.md says how)", allow_module_level=True)

from sandbox import Judge
from tasks.engines.protocol import EngineDrift
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import load_policy
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tests.tasks.train.conftest import config, examples, fill, make_job, save_reference, tiny_model
from tests.tasks.train.rollout_worker.workers import ONLINE, append, rows, scored, working
from warehouse import Warehouse


def wide_model(seed: int) -> Any:
    """The tests' tiny model with heads as wide as vLLM's kernels need."""
    settings = tiny_model().config
    settings.hidden_size, settings.head_dim, settings.initializer_range = 128, 32, 0.05
    torch.manual_seed(seed)
    return LlamaForCausalLM(settings).eval()


def publish(job: TrainJob, step: int, seed: int, *, canaries_of: int) -> published_weights.Published:
    """Weights of `seed`, with what the trainer's pass says of the canaries under those of `canaries_of`."""
    other = job.run_dir / f"trainer-{step}"
    wide_model(canaries_of).save_pretrained(other)
    canaries = scored(load_policy(other, job.train, "float32", trained=False))
    model = wide_model(seed)
    return published_weights.publish(
        job.weights, step, model, model.state_dict(), like=job.reference, canaries=canaries
    )


@pytest.fixture
def job(tmp_path: Path) -> TrainJob:
    reference = save_reference(tmp_path / "reference", wide_model(0))
    fill(tmp_path / "warehouse", reference, online=0)
    made = make_job(
        tmp_path, reference, config(sources=ONLINE, steps=100, behaviour={"temperature": (1, 1), "top_p": 1})
    )
    engine = made.config.engine.model_copy(update={"kind": "vllm", "max_batch": 16})
    return made.model_copy(update={"config": made.config.model_copy(update={"engine": engine})})


def test_vllm_takes_up_published_weights_between_batches_and_refuses_wrong_ones(job: TrainJob) -> None:
    policies: list[str] = []
    with Judge("embedded", workers=1) as judge, working(job, judge) as worker:
        for step in (1, 2):
            policies.append(publish(job, step, seed=step, canaries_of=step).policy_id)
            worker.refresh()
            append(worker, step)
        prompts = {prompt.prompt_id: prompt.token_ids for prompt in worker.prompts.prompts}
        publish(job, 3, seed=3, canaries_of=4)
        with pytest.raises(EngineDrift, match="off by"):
            worker.refresh()
    found = rows(job)
    assert [row["policy_start"] for row in found] == [policies[0]] * 8 + [policies[1]] * 8
    assert {row["engine"] for row in found} == {"vllm"}
    policy = load_policy(job.weights / "step-00000002", job.train, "float32", trained=False)
    for row in found[8:]:
        sequence = replace(examples(1)[0], prompt_ids=prompts[row["prompt_id"]], response_ids=tuple(row["token_ids"]))
        with torch.no_grad():
            expected = policy(lay_out([sequence]))[0].tolist()
        assert row["sampled_logprobs"] == pytest.approx(expected, abs=1e-4)
    with Warehouse.open(job.warehouse) as store:
        drift = store.rows("SELECT step, value FROM train_steps WHERE name = 'worker-0/drift' ORDER BY step")
    assert [row["step"] for row in drift] == [1, 2]
    assert all(row["value"] < 1e-4 for row in drift)
