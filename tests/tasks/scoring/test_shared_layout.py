"""Shared beginnings change neither a loss nor a gradient, whatever is trained and however it is laid out or divided."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from tasks.config import SourceName, TrainConfig
from tasks.scoring.example import Example
from tasks.scoring.packing import Layout, lay_out, plan
from tasks.scoring.policy import Policy, full_logprobs, load_policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.ppo_step import Targets, ppo_pack_loss
from tasks.train.trainer.spo_step import shares, spo_pack_loss
from tasks.train.trainer.value_model import ActorCritic, ValueModel
from tests.examples import examples
from tests.tasks.scoring.trees import TOKENS, sequences
from tests.tasks.train.conftest import config, save_reference, tiny_model

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
OBJECTIVES: dict[SourceName, list[dict[str, Any]]] = {
    "online": [{}, {"kind": "reverse_q", "loss": "squared"}, {"kind": "policy_gradient"}],
    "offline": [{"kind": "advantage", "loss": "sigmoid", "weight": 0.5}],
    "pivotal": [{"kind": "monte_carlo", "reduction": "sum"}, {"kind": "reverse_q", "reduction": "sum"}],
    "pivotal_rollouts": [{"loss": "squared"}],
}
SOURCES = {name: {"share": 0.25, "objectives": objectives} for name, objectives in OBJECTIVES.items()}
TRAIN = config(sources=SOURCES, behaviour={"temperature": [1.0, 1.0], "top_p": 1.0}).train


@pytest.fixture(autouse=True)
def norms_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama rounds inside its norms to float32, which would hide what is compared here."""

    def forward(norm: LlamaRMSNorm, x: Tensor) -> Tensor:
        return norm.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)

    monkeypatch.setattr(LlamaRMSNorm, "forward", forward)


def example(number: int, sequence: tuple[int, ...], cut: int, source: SourceName = "online") -> Example:
    response = sequence[cut:]
    return Example(
        trajectory_id=str(number),
        problem_id="p",
        source=source,
        prompt_ids=sequence[:cut],
        response_ids=response,
        terminal=0.0 if number % 2 else -11.5,
        y0=-2.0 - number % 3,
        stopped=True,
        behaviour_logprobs=tuple(-1.5 - 0.1 * (i % 4) for i in range(len(response))),
        token_values=tuple((i, math.log(0.5 / i)) for i in range(1, len(response) + 1, 2))
        if source == "pivotal"
        else (),
    )


@st.composite
def batches(draw: st.DrawFn) -> list[Example]:
    """Examples whose prompts and responses end anywhere in a tree of sequences."""
    found = draw(sequences(shortest=2))
    return [
        example(i, sequence, draw(st.integers(1, len(sequence) - 1)), draw(st.sampled_from(list(OBJECTIVES))))
        for i, sequence in enumerate(found)
    ]


def special() -> list[Example]:
    """Identical ones, one that begins another's prompt, one-token responses, nothing in common, a pivotal prefix."""
    trunk = (1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 1, 1)
    cases: list[tuple[tuple[int, ...], int]] = [
        (trunk, 5),
        (trunk, 5),
        (trunk, 9),
        (trunk[:4], 2),
        (trunk[:3], 2),
        ((*trunk[:5], 3), 5),
        ((*trunk[:8], 0, 0, 2, 3), 5),
        ((*trunk[:8], 0, 4, 4), 8),
        ((0, 0), 1),
        ((2, 3, 3, 1), 2),
    ]
    names = list(OBJECTIVES)
    return [example(i, sequence, cut, names[i % len(names)]) for i, (sequence, cut) in enumerate(cases)]


def assert_equal(found: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float = 1e-10) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max()))


def gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def spo(batch: list[Example], layout: Layout, *, tokens: int = 10_000, world: int = 1) -> list[Tensor]:
    """The batch's loss, and the gradient of every parameter."""
    policy = Policy(tiny_model(vocabulary=TOKENS).double(), layout=layout, chunk=7)
    frozen = Policy(tiny_model(1, vocabulary=TOKENS).double(), layout=layout, chunk=7)
    train = TRAIN.model_copy(update={"packing": layout, "micro_batch_tokens": tokens})
    total = torch.zeros((), dtype=torch.float64)
    for share in shares(batch, {}, train, world):
        for members, weight in zip(share.packs, share.weights, strict=True):
            pack = lay_out(members, layout)
            logp, entropy = policy(pack)
            loss_B, _ = spo_pack_loss(pack, logp, Reference(frozen).evaluate(pack), entropy, train)
            loss = weight * loss_B.sum() / share.sequences
            loss.backward()
            total += loss.detach()
    return [total, *gradients(policy)]


@given(batches())
@examples(12, 200)
def test_every_objective_has_the_same_loss_and_gradients_in_every_layout(batch: list[Example]) -> None:
    wanted = spo(batch, "padded")
    for layout in ("shared", "packed"):
        assert_equal(spo(batch, layout), wanted)


@pytest.mark.parametrize(("tokens", "world"), [(10_000, 1), (20, 1), (1, 1), (20, 2), (12, 3), (10_000, 8)])
def test_the_division_into_packs_and_processes_changes_nothing(tokens: int, world: int) -> None:
    assert_equal(spo(special(), "shared", tokens=tokens, world=world), spo(special(), "padded"))


def ppo(batch: list[Example], layout: Layout) -> list[Tensor]:
    policy = Policy(tiny_model(vocabulary=TOKENS).double(), layout=layout, chunk=7)
    trunk = Policy(tiny_model(1, vocabulary=TOKENS).double(), layout=layout, chunk=7).causal_lm.base_model
    module = ActorCritic(policy, ValueModel(trunk))
    torch.manual_seed(2)
    nn.init.normal_(module.value_model.head.weight)
    chance = random.Random(3)
    numbers = {e.trajectory_id: tuple(chance.uniform(-1, 1) for _ in e.response_ids) for e in batch}
    towards = {identity: Targets(row, row, row, kl=0.0) for identity, row in numbers.items()}
    pack = lay_out(batch, layout)
    logp, _, value = module(pack)
    loss_B, _ = ppo_pack_loss(pack, logp, value, towards, TRAIN)
    loss_B.sum().backward()
    return [loss_B.detach(), value.detach(), *gradients(module)]


@given(batches())
@examples(6, 100)
def test_policy_and_value_model_of_ppo_have_the_same_gradients(batch: list[Example]) -> None:
    assert_equal(ppo(batch, "shared"), ppo(batch, "padded"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logprobs_are_those_of_each_sequence_alone(layout: Layout) -> None:
    policy = Policy(tiny_model(vocabulary=TOKENS).double(), layout=layout, chunk=3)
    with torch.no_grad():
        together = policy(lay_out(special(), layout))[0]
    alone = [full_logprobs(policy, e.prompt_ids, e.response_ids) for e in special()]
    assert together.dtype == torch.float64
    assert (together - torch.cat(alone)).abs().max() < 1e-5, "the model's own pass rounds to float32"


def loaded(reference: Path, train: TrainConfig) -> Policy:
    torch.manual_seed(1)
    policy = load_policy(reference, train, "float32", trained=True).double()
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return policy


@pytest.mark.parametrize("change", [{"lora": {"rank": 4}}, {"gradient_checkpointing": True}])
def test_adapters_and_recomputed_activations_have_the_same_gradients(change: dict[str, Any], tmp_path: Path) -> None:
    reference = save_reference(tmp_path / "reference")
    found: list[list[Tensor]] = []
    for layout in LAYOUTS:
        policy = loaded(reference, config(packing=layout, **change).train)
        logp, _ = policy(lay_out(special(), layout))
        without = Reference(policy).evaluate(lay_out(special(), layout))
        (logp * torch.arange(1, len(logp) + 1)).sum().backward()
        found.append([logp.detach(), without, *gradients(policy)])
    assert_equal(found[0], found[1])
    assert_equal(found[0], found[2])


def test_bfloat16_agrees_with_float32_within_its_precision() -> None:
    exact = Policy(tiny_model(vocabulary=TOKENS), layout="shared", chunk=7)
    rounded = Policy(tiny_model(vocabulary=TOKENS).bfloat16(), layout="shared", chunk=7)
    wanted, found = exact(lay_out(special()))[0], rounded(lay_out(special()))[0]
    assert (found - wanted).abs().max() < 0.05
    wanted.sum().backward()
    found.sum().backward()
    for a, b in zip(gradients(rounded), gradients(exact), strict=True):
        assert (a.float() - b).norm() < 0.05 * b.norm()


def group(problem: int, count: int) -> list[Example]:
    """Responses to one prompt of 40 tokens, the first 30 of which all problems have in common."""
    chance = random.Random(problem)
    prompt = (*range(30), *(100 + chance.randrange(900) for _ in range(10)))
    rest = [tuple(1000 + chance.randrange(900) for _ in range(9)) for _ in range(count)]
    return [replace(example(0, (*prompt, *ids), 40), trajectory_id=f"{problem}-{i}") for i, ids in enumerate(rest)]


def test_what_shares_a_beginning_comes_together_and_counts_once() -> None:
    batch = [e for members in zip(*(group(problem, 4) for problem in range(6)), strict=True) for e in members]
    groups = plan(batch, "shared", most_tokens=30 + 2 * (10 + 4 * 8))
    assert [len(members) for members in groups] == [8, 8, 8]
    for members in groups:
        assert len({batch[i].prompt_ids for i in members}) == 2
        assert lay_out([batch[i] for i in members]).ids.shape == (1, 30 + 2 * (10 + 4 * 8))


def test_packs_do_not_depend_on_the_order_of_the_batch() -> None:
    batch = [e for problem in range(5) for e in group(problem, 3)]
    mixed = random.Random(1).sample(batch, len(batch))

    def packs(found: list[Example]) -> list[set[str]]:
        return [{found[i].trajectory_id for i in members} for members in plan(found, "shared", most_tokens=150)]

    assert packs(batch) == packs(mixed)


@given(found=batches(), most=st.integers(1, 40), world=st.integers(1, 4))
def test_rows_keep_to_their_size_and_processes_get_as_many(found: list[Example], most: int, world: int) -> None:
    groups = plan(found, "shared", most_tokens=most, multiple=world)
    assert sorted(i for members in groups for i in members) == list(range(len(found)))
    assert all(len(m) == 1 or lay_out([found[i] for i in m]).ids.shape[1] <= most for m in groups)
    assert len(groups) % world == 0 or all(len(members) == 1 for members in groups)


def test_a_state_that_predicts_several_tokens_meets_the_output_head_once() -> None:
    pack = lay_out([example(i, (1, 2, 3, i), 3) for i in range(4)])
    assert pack.predictors_M.tolist() == [2]
    assert pack.predictor_N.tolist() == [0, 0, 0, 0]
    policy = Policy(tiny_model(vocabulary=TOKENS).double(), layout="shared", chunk=8)
    with torch.no_grad():
        together = policy(pack)[0].exp().sum()
        other = full_logprobs(policy, (1, 2, 3), (4,)).exp().sum()
    assert torch.isclose(together + other, torch.ones((), dtype=torch.float64), atol=1e-6)
