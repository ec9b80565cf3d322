"""Adapters: exactly nothing at the start, and merged weights that compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from tasks.config import InvalidConfig
from tasks.engines.checkpoint import load_weights
from tasks.scoring import lora
from tasks.scoring.errors import AdaptersImpossible
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy, load_policy
from tasks.scoring.reference import Reference
from tasks.train.shared import published_weights
from tasks.train.trainer import guards
from tests.tasks.train.conftest import config, examples
from tests.tasks.train.trainer.test_runs import assert_identical, job_in, kill_at, outcome, run

TRAIN = config(lora={"rank": 4, "alpha": 8}).train
PACK = lay_out(examples(6))


def disturbed(reference: Path) -> Policy:
    """A policy whose adapters are not 0."""
    policy = load_policy(reference, TRAIN, "float32", trained=True)
    torch.manual_seed(1)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return policy


def test_only_adapters_are_trained_and_every_advantage_starts_at_exactly_0(reference: Path) -> None:
    policy = load_policy(reference, TRAIN, "float32", trained=True)
    trained = [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
    assert trained
    assert all(".lora_" in name for name in trained)
    guards.check_start(policy, Reference(policy), examples(6))


def test_the_reference_of_a_trained_policy_is_the_base_model(reference: Path) -> None:
    policy = disturbed(reference)
    base = load_policy(reference, config().train, "float32", trained=False)
    with torch.no_grad():
        expected, own = base(PACK)[0], policy(PACK)[0]
    assert torch.equal(Reference(policy).evaluate(PACK), expected)
    assert not torch.allclose(own, expected, atol=1e-3)
    with torch.no_grad():
        assert torch.equal(policy(PACK)[0], own), "the adapters are on again"


def test_gradients_reach_the_adapters_after_the_reference_was_asked(reference: Path) -> None:
    policy = disturbed(reference)
    Reference(policy).evaluate(PACK)
    policy(PACK)[0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in policy.parameters() if p.requires_grad)
    assert all(p.grad is None for p in policy.parameters() if not p.requires_grad)


def test_published_weights_are_base_plus_adapter(reference: Path, tmp_path: Path) -> None:
    policy = disturbed(reference)
    state = lora.merged_state(policy.causal_lm, policy.causal_lm.state_dict())
    published = published_weights.publish(tmp_path, 3, policy.causal_lm, state, like=reference)
    plain = load_weights(published.folder, "float32")
    assert set(plain.state_dict()) == set(load_weights(reference, "float32").state_dict())
    with torch.no_grad():
        expected = policy(PACK)[0]
        found = Policy(plain, layout="packed", chunk=64)(PACK)[0]
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_adapter_beside_the_weights_is_what_peft_adds_to_the_base(reference: Path, tmp_path: Path) -> None:
    policy = disturbed(reference)
    state = policy.causal_lm.state_dict()
    assert TRAIN.lora is not None
    adapter = TRAIN.lora

    def beside(folder: Path) -> None:
        lora.save_adapter(state, adapter, folder / lora.FOLDER)

    merged = lora.merged_state(policy.causal_lm, state)
    published = published_weights.publish(tmp_path, 3, policy.causal_lm, merged, like=reference, beside=beside)
    loaded = peft.PeftModel.from_pretrained(load_weights(reference, "float32"), published.folder / lora.FOLDER)
    with torch.no_grad():
        expected = policy(PACK)[0]
        found = Policy(loaded.merge_and_unload(), layout="packed", chunk=64)(PACK)[0]
    assert torch.allclose(found, expected, atol=1e-5)
    files = [path.name for path in (published.folder / lora.FOLDER).iterdir() if path.suffix != ".md"]
    assert sorted(files) == ["adapter_config.json", "adapter_model.safetensors"]


def test_layers_that_the_model_has_not_are_named(reference: Path) -> None:
    train = config(lora={"modules": ["no_such_layer"]}).train
    with pytest.raises(AdaptersImpossible, match="no_such_layer"):
        load_policy(reference, train, "float32", trained=True)


def test_adapters_under_zero_3_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="ZeRO stage 3"):
        config(lora={}, zero_stage=3)


@pytest.fixture(scope="module")
def uninterrupted(stocked: Path, reference: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(run(job_in(stocked, reference, tmp_path_factory.mktemp("whole"), lora={"rank": 4})))


def test_a_killed_run_with_adapters_continues_exactly(
    stocked: Path, reference: Path, tmp_path: Path, uninterrupted: dict[str, Any]
) -> None:
    job = job_in(stocked, reference, tmp_path, lora={"rank": 4})
    kill_at(job, 3)
    assert_identical(outcome(run(job)), uninterrupted)
    losses = {step: value for (step, name), value in uninterrupted["figures"].items() if name == "y_T"}
    assert losses[1] != losses[6], "the adapters learn"
