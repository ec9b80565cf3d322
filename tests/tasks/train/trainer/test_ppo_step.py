"""PPO in the trainer: its gradient, its targets, what it learns, and that it continues exactly."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.config import TrainConfig
from tasks.scoring.example import Example
from tasks.scoring.packing import Layout, lay_out
from tasks.scoring.policy import Policy, load_policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
from tasks.train.trainer.ppo_step import (
    ProximalPolicyOptimization,
    Targets,
    advantages,
    explained_variance,
    normalized,
    ppo_pack_loss,
)
from tasks.train.trainer.session import algorithm_of
from tasks.train.trainer.spo_step import shares
from tasks.train.trainer.value_model import ActorCritic, ValueModel
from tests.refusals import refused
from tests.tasks.train.conftest import config, examples, make_job, save_reference, tiny_model

ON_POLICY: dict[str, Any] = {
    "algorithm": "ppo",
    "sources": {"online": {"share": 1.0}},
    "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
}
TRAIN = config(**ON_POLICY, ppo={"minibatches": 2}).train


def actor_critic(layout: Layout = "packed") -> ActorCritic:
    """In float64, with a value head that says something."""
    policy = Policy(tiny_model().double(), layout=layout, chunk=7)
    trunk = Policy(tiny_model(1).double(), layout=layout, chunk=7).causal_lm.base_model
    module = ActorCritic(policy, ValueModel(trunk))
    torch.manual_seed(2)
    torch.nn.init.normal_(module.value_model.head.weight)
    return module


def batch(count: int = 7) -> list[Example]:
    """Examples whose behaviour policy is near the trained one, some ratios inside the clip and some outside."""
    chance = random.Random(4)
    found = examples(count)
    with torch.no_grad():
        pieces = actor_critic().policy(lay_out(found))[0].split([len(e.response_ids) for e in found])
    return [
        replace(e, behaviour_logprobs=tuple(float(x) + chance.uniform(-0.3, 0.3) for x in piece))
        for e, piece in zip(found, pieces, strict=True)
    ]


def targets(members: list[Example]) -> dict[str, Targets]:
    chance = random.Random(5)

    def numbers(example: Example) -> tuple[float, ...]:
        return tuple(chance.uniform(-1, 1) for _ in example.response_ids)

    return {e.trajectory_id: Targets(numbers(e), numbers(e), numbers(e), kl=0.0) for e in members}


def gradients(
    members: list[Example], *, layout: Layout = "packed", tokens: int = 10_000, world: int = 1
) -> dict[str, Tensor]:
    module, towards = actor_critic(layout), targets(batch())
    train = TRAIN.model_copy(update={"micro_batch_tokens": tokens})
    for share in shares(members, {}, train, world):
        for part, weight in zip(share.packs, share.weights, strict=True):
            pack = lay_out(part, layout)
            logp, _, value = module(pack)
            loss_B, _ = ppo_pack_loss(pack, logp, value, towards, train)
            (weight * loss_B.sum() / share.sequences).backward()
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}


def brute_force_loss(module: ActorCritic, members: list[Example]) -> Tensor:
    """PPO's loss written token by token from the models' own logits and hidden states."""
    total, towards = torch.zeros((), dtype=torch.float64), targets(members)
    for e in members:
        ids = torch.tensor([(*e.prompt_ids, *e.response_ids)])
        start = len(e.prompt_ids) - 1
        logp = module.policy.causal_lm(ids, use_cache=False).logits[0, start:-1].log_softmax(-1)
        hidden = module.value_model.trunk(ids, use_cache=False).last_hidden_state[0, start:-1]
        values = module.value_model.head(hidden)[:, 0]
        goal = towards[e.trajectory_id]
        assert e.behaviour_logprobs is not None
        for t, token in enumerate(e.response_ids):
            w = (logp[t, token] - e.behaviour_logprobs[t]).exp()
            low, high = 1 - TRAIN.ratio_clip, 1 + TRAIN.ratio_clip
            gain = torch.minimum(w * goal.advantages[t], w.clamp(low, high) * goal.advantages[t])
            bound = TRAIN.ppo.value_clip
            near = goal.values[t] + (values[t] - goal.values[t]).clamp(-bound, bound)
            error = torch.maximum((values[t] - goal.returns[t]) ** 2, (near - goal.returns[t]) ** 2) / 2
            total = total - gain + TRAIN.ppo.value_coefficient * error / len(e.response_ids)
    return total / len(members)


def plain_attention(module: ActorCritic) -> ActorCritic:
    for model in (module.policy.causal_lm, module.value_model.trunk):
        model.set_attn_implementation("sdpa")
    return module


def test_the_gradient_is_that_of_the_loss_written_token_by_token() -> None:
    members = batch()
    module = plain_attention(actor_critic())
    brute_force_loss(module, members).backward()
    found = gradients(members)
    assert found.keys() == {name for name, p in module.named_parameters() if p.grad is not None}
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            assert torch.allclose(found[name], parameter.grad, rtol=1e-8, atol=1e-11), name


@pytest.mark.parametrize("change", [{"layout": "padded"}, {"tokens": 1}, {"tokens": 40, "world": 2}])
def test_the_gradient_does_not_depend_on_how_the_batch_is_laid_out_or_divided(change: dict[str, Any]) -> None:
    expected = gradients(batch())
    for name, gradient in gradients(batch(), **change).items():
        assert torch.allclose(gradient, expected[name], rtol=1e-9, atol=1e-12), name


def test_on_policy_every_ratio_is_exactly_1_before_the_first_update() -> None:
    module, members = actor_critic(), batch()
    pack = lay_out(members)
    logp, _, value = module(pack)
    pieces = logp.detach().split([len(e.response_ids) for e in members])
    same = [replace(e, behaviour_logprobs=tuple(p.tolist())) for e, p in zip(members, pieces, strict=True)]
    towards = targets(same)
    _, losses = ppo_pack_loss(lay_out(same), logp, value, towards, TRAIN)
    assert [one.clipped for one in losses] == [0] * len(members)
    assert [one.kl_behaviour for one in losses] == [0.0] * len(members)
    for one in losses:
        assert one.policy_loss == pytest.approx(-sum(towards[one.trajectory_id].advantages), abs=1e-12)


def test_responses_without_the_samplers_logprobs_are_refused() -> None:
    module, members = actor_critic(), examples(2)
    pack = lay_out(members)
    logp, _, value = module(pack)
    with refused("MissingAnnotation"):
        ppo_pack_loss(pack, logp, value, targets(members), TRAIN)


def test_advantages_of_a_perfect_critic_at_trace_1_are_the_rest_of_the_return_minus_the_value() -> None:
    train = TRAIN.model_copy(update={"ppo": TRAIN.ppo.model_copy(update={"trace": 1.0})})
    mask = torch.tensor([[True, True, True], [True, False, False]])
    ratio = torch.tensor([[0.5, -0.25, 1.0], [2.0, 0.0, 0.0]], dtype=torch.float64)
    value = torch.tensor([[-0.3, -0.2, -0.1], [-0.5, 0.0, 0.0]], dtype=torch.float64)
    terminal = torch.tensor([0.0, -1 / train.beta], dtype=torch.float64)
    found, returns = advantages(ratio, value, terminal, mask, train)
    rest = -train.beta * torch.tensor([[1.25, 0.75, 1.0], [2.0, 0.0, 0.0]], dtype=torch.float64)
    rest[1, 0] -= 1
    assert torch.allclose(returns, rest)
    assert torch.allclose(found, (rest - value) * mask)


def test_normalised_advantages_have_mean_0_and_deviation_1_and_equal_ones_become_0() -> None:
    flat = [a for one in normalized(targets(batch())).values() for a in one.advantages]
    assert math.fsum(flat) == pytest.approx(0, abs=1e-9)
    assert math.fsum(a * a for a in flat) / len(flat) == pytest.approx(1)
    assert normalized({"a": Targets((2.0, 2.0), (0.0, 0.0), (0.0, 0.0), 0.0)})["a"].advantages == (0.0, 0.0)


def test_explained_variance_is_1_of_a_perfect_critic_and_0_of_a_constant_one() -> None:
    assert explained_variance([-1.0, 0.0, -0.5], [-1.0, 0.0, -0.5]) == 1
    assert explained_variance([-0.5, -0.5, -0.5], [-1.0, 0.0, -0.5]) == pytest.approx(0)
    assert explained_variance([0.0, 0.0], [-1.0, -1.0]) == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"behaviour": {"temperature": [0.1, 0.8], "top_p": 0.95}}, "behaviour.temperature"),
        ({"sources": {"online": {"share": 0.5}, "offline": {"share": 0.5}}}, "online"),
        ({"ppo": {"minibatches": 3}}, "minibatches"),
        ({"reward": "fractional", "prompts": "learnability"}, "prompts"),
    ],
)
def test_settings_that_ppo_cannot_use_are_refused(change: dict[str, Any], named: str) -> None:
    with refused("InvalidConfig", named):
        config(**(ON_POLICY | change))


# A problem small enough to enumerate: three tokens out of four after one prompt.

TOKENS, LENGTH, PROMPT = 4, 3, (0,)
RESPONSES = list(itertools.product(range(TOKENS), repeat=LENGTH))


def reward(response: tuple[int, ...]) -> float:
    return 0.0 if response[0] == 2 and response[2] == 3 else -1.0


def sequence_logprobs(policy: Policy) -> Tensor:
    members = [example(i, response, 0.0, None) for i, response in enumerate(RESPONSES)]
    with torch.no_grad():
        return policy(lay_out(members))[0].view(len(RESPONSES), LENGTH)


def example(number: int, response: tuple[int, ...], beta: float, logprobs: tuple[float, ...] | None) -> Example:
    terminal = reward(response) / beta if beta else 0.0
    return Example(f"t{number}", "p", "online", PROMPT, response, terminal, -2.0, True, logprobs)


def drawn(policy: Policy, step: int, count: int, train: TrainConfig) -> list[Example]:
    """`count` responses of the policy, chosen by their exact probabilities, with its log-probabilities."""
    logp = sequence_logprobs(policy)
    generator = torch.Generator().manual_seed(step)
    chosen = torch.multinomial(logp.sum(1).exp(), count, replacement=True, generator=generator).tolist()
    return [example(step * count + i, RESPONSES[r], train.beta, tuple(logp[r].tolist())) for i, r in enumerate(chosen)]


@pytest.fixture
def enumerable(tmp_path: Path) -> Generator[tuple[ProximalPolicyOptimization, DeepSpeedEngine, Policy, Reference]]:
    folder = save_reference(tmp_path / "reference", tiny_model(vocabulary=TOKENS))
    run = config(
        **ON_POLICY,
        batch_size=64,
        ppo={"epochs": 2, "minibatches": 2, "value_learning_rate": 1e-2},
        optimizer={"learning_rate": 3e-3, "warmup_steps": 0},
    )
    algorithm = ProximalPolicyOptimization(run.train, seed=3)
    policy = Policy(tiny_model(vocabulary=TOKENS), layout="packed", chunk=64)
    module = algorithm.module(policy, folder, "float32")
    groups = algorithm.parameter_groups(module)
    engine = DeepSpeedEngine(module, run.train, dtype="float32", device=torch.device("cpu"), groups=groups)
    frozen = Policy(tiny_model(vocabulary=TOKENS), layout="packed", chunk=64).requires_grad_(False)
    yield algorithm, engine, policy, Reference(frozen)
    engine.close()


def test_with_adapters_only_they_and_the_value_head_are_trained(tmp_path: Path) -> None:
    folder = save_reference(tmp_path / "reference")
    train = config(**ON_POLICY, lora={"rank": 2}).train
    algorithm = ProximalPolicyOptimization(train, seed=3)
    module = algorithm.module(load_policy(folder, train, "float32", trained=True), folder, "float32")
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".lora_" in name or name.startswith("value_model.head.") for name in trained)
    assert {name.split(".")[0] for name in trained if ".lora_" in name} == {"policy", "value_model"}
    policy_group, value_group = algorithm.parameter_groups(module)
    assert len(policy_group["params"]) + len(value_group["params"]) == len(trained)


def test_the_value_model_says_the_given_return_of_every_state_at_first(tmp_path: Path) -> None:
    folder, found = save_reference(tmp_path / "reference"), examples(5)
    for start in (0.0, -0.75):
        algorithm = ProximalPolicyOptimization(TRAIN, 3, start)
        module = algorithm.module(load_policy(folder, TRAIN, "float32", trained=True), folder, "float32")
        assert module(lay_out(found))[2].tolist() == [start] * sum(len(e.response_ids) for e in found)


def test_processes_that_have_no_warehouse_start_the_value_model_as_the_job_says(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    job = make_job(tmp_path, reference, config(**ON_POLICY)).model_copy(update={"value_start": -0.75})
    algorithm = algorithm_of(job)
    assert isinstance(algorithm, ProximalPolicyOptimization)
    assert algorithm.start == -0.75
    assert not Path(job.warehouse).exists()


def test_a_long_failure_looks_better_than_a_short_one_by_the_value_models_error() -> None:
    """Below a trace of 1 the first token of a failure hears the less of it the longer the response goes on."""
    lengths, trace = [10, 40], TRAIN.ppo.trace
    mask_BT = torch.arange(40) < torch.tensor(lengths)[:, None]
    for start in (0.0, -0.75):
        value_BT = torch.full((2, 40), start)
        found_BT, _ = advantages(torch.zeros(2, 40), value_BT, torch.full((2,), -1 / TRAIN.beta), mask_BT, TRAIN)
        better = float(found_BT[1, 0] - found_BT[0, 0])
        assert better == pytest.approx((1 + start) * (trace**9 - trace**39), abs=1e-6)


def test_the_expected_reward_of_an_enumerable_problem_rises_and_the_value_model_learns_it(
    enumerable: tuple[ProximalPolicyOptimization, DeepSpeedEngine, Policy, Reference],
) -> None:
    algorithm, engine, policy, reference = enumerable
    rewards = torch.tensor([reward(response) for response in RESPONSES])

    def expected_reward() -> float:
        return float((sequence_logprobs(policy).sum(1).exp() * rewards).sum())

    before = expected_reward()
    figures: list[dict[str, float]] = []
    for step in range(1, 31):
        members = drawn(policy, step, 64, algorithm.config)
        figures.append(algorithm.update(engine, reference, members, {}, step).figures)
    assert before < -0.9
    assert expected_reward() > -0.3
    assert figures[0]["kl"] == 0
    assert figures[-1]["kl"] > 0.5
    assert figures[0]["updates"] == 4
    while_returns_vary = [f["explained_variance"] for f in figures[3:13]]
    assert sum(while_returns_vary) / len(while_returns_vary) > 0.2
