"""Adapters: exactly nothing at the start, and merged weights that compute the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file

from tasks.checkpoints import inspection
from tasks.checkpoints.adapter import fingerprint
from tasks.checkpoints.checkpoint import (
    base_id,
    compute_policy_id,
    load_tokenizer,
    load_weights,
    policy_id,
    stop_ids,
    tokenizer_hash,
)
from tasks.checkpoints.model_sources import resolve
from tasks.config import ReferenceConfig
from tasks.scoring import lora
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy, load_policy
from tasks.scoring.reference import Reference
from tasks.train.shared import published_weights
from tasks.train.trainer import guards
from tests.refusals import refused
from tests.tasks.train.conftest import config, examples, tiny_model
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
    guards.check_start([policy(PACK)[0].detach()], Reference(policy), examples(6))


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


def published(policy: Policy, reference: Path, root: Path, step: int = 3) -> published_weights.Published:
    """The policy's adapters, published as the trainer does it."""
    assert TRAIN.lora is not None
    config = TRAIN.lora

    def write(folder: Path) -> None:
        lora.save_adapter(policy.causal_lm, policy.causal_lm.state_dict(), config, reference, folder)

    return published_weights.publish_adapter(root, step, write, base=policy_id(reference))


def logprobs(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return Policy(model, layout="packed", chunk=64)(PACK)[0]


def test_merged_weights_and_the_adapter_beside_its_base_compute_the_same(reference: Path, tmp_path: Path) -> None:
    policy = disturbed(reference)
    folder = published(policy, reference, tmp_path).folder
    with torch.no_grad():
        expected = policy(PACK)[0]
    assert torch.allclose(logprobs(load_weights(folder, "float32")), expected, atol=1e-5)
    applied = peft.PeftModel.from_pretrained(load_weights(reference, "float32"), folder)
    assert torch.allclose(logprobs(applied.base_model.model), expected, atol=1e-5)
    assert not torch.allclose(logprobs(load_weights(reference, "float32")), expected, atol=1e-3)


def test_merging_is_what_peft_does(reference: Path, tmp_path: Path) -> None:
    folder = published(disturbed(reference), reference, tmp_path).folder
    base = load_weights(reference, "float32")
    wanted = peft.PeftModel.from_pretrained(base, folder).merge_and_unload().state_dict()
    found = load_weights(folder, "float32").state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.allclose(found[name], wanted[name], atol=1e-7, rtol=0) for name in wanted)


def test_a_published_adapter_is_small_and_whole(reference: Path, tmp_path: Path) -> None:
    folder = published(disturbed(reference), reference, tmp_path).folder
    files = {path.name for path in folder.iterdir() if path.suffix != ".md"}
    assert files == {"adapter_config.json", "adapter_model.safetensors", "policy.json", "published.json"}
    assert compute_policy_id(folder) == policy_id(folder) != policy_id(reference)
    assert base_id(folder) == policy_id(reference)
    assert stop_ids(folder) == stop_ids(reference)
    assert tokenizer_hash(folder) == tokenizer_hash(reference)
    assert list(inspection.faults(folder)) == []
    tensors = load_file(folder / "adapter_model.safetensors").values()
    assert inspection.adapter_bytes(reference, 4) >= sum(tensor.numel() * 4 for tensor in tensors) > 0


def test_adapters_have_ids_of_their_own_whatever_order_peft_writes_names_in(reference: Path, tmp_path: Path) -> None:
    policy = disturbed(reference)
    first = published(policy, reference, tmp_path / "first").folder
    settings = json.loads((first / "adapter_config.json").read_text())
    (first / "adapter_config.json").write_text(
        json.dumps(settings | {"target_modules": settings["target_modules"][::-1], "base_model_name_or_path": "x"})
    )
    again = published(policy, reference, tmp_path / "again")
    assert fingerprint(first, policy_id(reference)) == again.policy_id
    assert fingerprint(first, "another base") != again.policy_id
    torch.nn.init.zeros_(next(p for n, p in policy.named_parameters() if "lora_B" in n))
    assert published(policy, reference, tmp_path / "other").policy_id != again.policy_id


def test_an_adapter_whose_base_has_changed_is_refused(reference: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(reference, tmp_path / "base"))
    folder = published(disturbed(base), base, tmp_path / "weights").folder
    load_weights(folder, "float32")
    tiny_model(9).save_pretrained(base)
    (base / "policy.json").unlink(missing_ok=True)
    with refused("OtherBase"):
        load_weights(folder, "float32")
    shutil.rmtree(base)
    with refused("BaseMissing", base):
        load_weights(folder, "float32")


def test_adapters_that_are_more_than_a_low_rank_change_are_refused(reference: Path, tmp_path: Path) -> None:
    folder = published(disturbed(reference), reference, tmp_path).folder
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dora": True}))
    with refused("NotExchangeable", "use_dora"):
        load_weights(folder, "float32")


def test_an_adapter_is_merged_once_where_it_is_the_reference(reference: Path, tmp_path: Path) -> None:
    adapter = published(disturbed(reference), reference, tmp_path).folder
    config = ReferenceConfig(model=str(adapter))
    folder = resolve(config, tmp_path / "cache")
    assert resolve(config, tmp_path / "cache") == folder
    assert policy_id(folder) == policy_id(adapter)
    assert load_tokenizer(folder).get_vocab() == load_tokenizer(reference).get_vocab()
    wanted, found = (load_weights(one, "float32").state_dict() for one in (adapter, folder))
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_layers_that_the_model_has_not_are_named(reference: Path) -> None:
    train = config(lora={"modules": ["no_such_layer"]}).train
    with refused("UnknownLayer", "no_such_layer"):
        load_policy(reference, train, "float32", trained=True)


@pytest.mark.parametrize(
    ("modules", "code"),
    [(["lm_head"], "OutputHead"), (["q_proj", "lm_head"], "OutputHead"), (["q_proj", "embed_tokens"], "NotLinear")],
)
def test_layers_whose_adapters_could_not_be_trained_or_sampled_with_are_refused(
    modules: list[str], code: str, reference: Path
) -> None:
    with refused(code, modules[-1]):
        load_policy(reference, config(lora={"modules": modules}).train, "float32", trained=True)


def test_adapters_under_zero_3_are_refused() -> None:
    with refused("InvalidConfig", "train"):
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
