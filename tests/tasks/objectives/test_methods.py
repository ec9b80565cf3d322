"""Other methods' objectives: their minimisers and gradients are what their papers say, by enumeration.

Legend: V^T sequences of the enumerable world; Y responses of a bandit, K of them in a group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.config import ObjectiveConfig
from tasks.objectives import groups, policy_gradient, regression, spo
from tasks.objectives.dispatch import Evaluated, Scales, group_values, objective_loss
from tests.refusals import refused
from tests.tasks.objectives import enumeration as e

SCALES = Scales(beta=e.BETA, clip_epsilon=0.1)
ALL = torch.ones(len(e.SEQUENCES), e.LENGTH, dtype=torch.bool)


def minimised(start: Tensor, loss: Callable[[Tensor], Tensor], steps: int = 1500) -> Tensor:
    logits = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / steps)))
    for _ in range(steps):
        optimizer.zero_grad()
        loss(logits).backward()
        optimizer.step()
        schedule.step()
    return logits.detach()


def soft_value(w: e.World) -> Tensor:
    return (e.token_logprobs(w.ref_logits).sum(1) + w.terminal).logsumexp(0)


def in_world(w: e.World, logits: Tensor, objective: ObjectiveConfig, sampler: Tensor | None = None) -> Tensor:
    """Mean loss over all sequences, which are one group."""
    logp, ref = e.token_logprobs(logits), e.token_logprobs(w.ref_logits)
    values = group_values(objective, w.terminal, (logp - ref).sum(1).detach(), SCALES)
    data = Evaluated(
        logp_BT=logp,
        ref_logp_BT=ref,
        mask_BT=ALL,
        y0_B=soft_value(w).expand(len(e.SEQUENCES)),
        terminal_B=w.terminal,
        behaviour_logp_BT=None if sampler is None else e.token_logprobs(sampler),
        group_BO=values[:, None],
    )
    return objective_loss(objective, data, SCALES).mean()


@pytest.mark.parametrize("kind", ["a_star_po", "tba"])
def test_regressions_against_the_reference_reach_the_soft_posterior(kind: Any) -> None:
    """Both from the reference's side of the paper's Eq. 2; A*-PO with V* = beta y_0, TBA without any knowledge of Z."""
    w = e.world()
    found = minimised(w.ref_logits, lambda logits: in_world(w, logits, ObjectiveConfig(kind=kind)))
    assert e.total_variation(w.ref_logits, w) > 0.2
    assert e.total_variation(found, w) < 5e-3


def test_oapl_reaches_the_samplers_distribution_reweighted_by_the_reward() -> None:
    """The sampler is uniform, so that the group of all sequences has its exact value."""
    w, uniform = e.world(), torch.zeros(len(e.PREFIXES), e.VOCABULARY, dtype=torch.float64)
    found = minimised(uniform, lambda logits: in_world(w, logits, ObjectiveConfig(kind="oapl"), uniform))
    assert e.total_variation(found, e.World(uniform, w.reward)) < 5e-3
    assert e.total_variation(found, w) > 0.1


def test_a_star_po_is_terminal_regression_with_the_squared_loss() -> None:
    w = e.world()
    logp, ref = e.token_logprobs(e.random_logits(5)), e.token_logprobs(w.ref_logits)
    a = spo.advantage(logp, ref, ALL)
    y0 = torch.full((len(e.SEQUENCES),), -1.25, dtype=torch.float64)
    ours = spo.terminal_q_regression_squared(y0, a, w.terminal, beta=e.BETA)
    theirs = regression.optimal_advantage_regression(y0, a.sum(1), w.terminal, beta=e.BETA, regression_beta=e.BETA)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_tba_and_a_star_po_have_one_gradient_where_the_group_gives_the_right_partition_function() -> None:
    w, best = e.world(), e.optimal_logits(e.world())
    ratio = (e.token_logprobs(best) - e.token_logprobs(w.ref_logits)).sum(1)
    assert torch.allclose(
        groups.log_partition(w.terminal, ratio),
        torch.full_like(ratio, e.true_values(w)[()]),
        rtol=0,
        atol=1e-10,
    )


def test_dpo_with_bradley_terry_preferences_reaches_the_soft_posterior() -> None:
    """Its paper's theorem: preferences sigmoid(r_i - r_j) over all pairs give pi_0 exp(r/beta)/Z."""
    w = e.world()
    better = torch.sigmoid(w.reward[:, None] - w.reward[None, :])
    ref = e.token_logprobs(w.ref_logits).sum(1)
    preferred = torch.ones_like(better, dtype=torch.bool)

    def loss(logits: Tensor) -> Tensor:
        ratio = e.token_logprobs(logits).sum(1) - ref
        own, other = ratio[:, None].expand_as(better), ratio[None, :].expand_as(better)
        chosen = regression.direct_preference(own, other, preferred, beta=e.BETA)
        rejected = regression.direct_preference(other, own, ~preferred, beta=e.BETA)
        return (better * (chosen + rejected)).mean()

    assert e.total_variation(minimised(w.ref_logits, loss, 3000), w) < 5e-3


def test_dpos_halves_add_up_to_the_gradient_of_its_pair() -> None:
    ratio = torch.tensor([0.7, -1.1], dtype=torch.float64, requires_grad=True)
    values = group_values(ObjectiveConfig(kind="dpo"), torch.tensor([0.0, -4.0]).double(), ratio.detach(), SCALES)
    assert values.tolist() == [-1.1, 0.7]
    halves = regression.direct_preference(ratio, values, torch.tensor([True, False]), beta=0.1)
    (found,) = torch.autograd.grad(halves.sum(), ratio)
    whole = -torch.nn.functional.logsigmoid(0.1 * (ratio[0] - ratio[1]))
    (wanted,) = torch.autograd.grad(whole, ratio)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-15)
    assert torch.allclose(halves, whole.expand(2))


# A bandit: one token per response, groups of K drawn from the policy, every group enumerated.

K = 4
REWARD = torch.tensor([0.0, -1.0, -1.0, 0.0, -1.0], dtype=torch.float64)
LOGITS = torch.tensor([0.1, -0.4, 0.9, -1.2, 0.3], dtype=torch.float64)
REFERENCE = torch.tensor([-0.2, 0.5, 0.1, 0.4, -0.6], dtype=torch.float64).log_softmax(0)


def mean_gradient(objective: ObjectiveConfig, sampler: Tensor = LOGITS, scales: Scales = SCALES) -> Tensor:
    """Gradient by the logits of the mean loss of a group, in expectation over groups drawn from `sampler`."""
    logits = LOGITS.clone().requires_grad_(True)
    logp, behaviour = logits.log_softmax(0), sampler.log_softmax(0)
    rows = torch.tensor(list(itertools.product(range(len(LOGITS)), repeat=K)))
    values = group_values(objective, REWARD[rows] / scales.beta, (logp - REFERENCE)[rows].detach(), scales)
    flat = rows.flatten()
    data = Evaluated(
        logp_BT=logp[flat, None],
        ref_logp_BT=REFERENCE[flat, None],
        mask_BT=torch.ones(len(flat), 1, dtype=torch.bool),
        y0_B=torch.zeros(len(flat), dtype=torch.float64),
        terminal_B=REWARD[flat] / scales.beta,
        behaviour_logp_BT=behaviour[flat, None],
        group_BO=values.flatten()[:, None],
    )
    loss_GK = objective_loss(objective, data, scales).view_as(rows)
    total = (behaviour[rows].sum(1).exp() * loss_GK.mean(1)).sum()
    return torch.autograd.grad(total, logits)[0]


def gradient_of(objective: Callable[[Tensor], Tensor]) -> Tensor:
    """Of what is to be maximised, as a function of the policy's log-probabilities; negative, as a loss's."""
    logits = LOGITS.clone().requires_grad_(True)
    return -torch.autograd.grad(objective(logits.log_softmax(0)), logits)[0]


def expected_reward(logp: Tensor) -> Tensor:
    return (logp.exp() * REWARD).sum()


def failure(logp: Tensor) -> Tensor:
    """1 - p."""
    return -expected_reward(logp)


ON_POLICY: dict[str, tuple[ObjectiveConfig, Callable[[Tensor], Tensor]]] = {
    "RLOO: the expected reward": (ObjectiveConfig(kind="rloo"), expected_reward),
    "RLOO with kl: the regularised reward": (
        ObjectiveConfig(kind="rloo", kl=0.3),
        lambda logp: (logp.exp() * (REWARD - 0.3 * (logp - REFERENCE))).sum(),
    ),
    "Dr. GRPO: the expected reward times (K - 1)/K": (
        ObjectiveConfig(kind="grpo", normalize=False, reduction="sum"),
        lambda logp: (K - 1) / K * expected_reward(logp),
    ),
    "MaxRL: K - 1 terms of log p": (
        ObjectiveConfig(kind="max_rl"),
        lambda logp: -torch.stack([failure(logp) ** k / k for k in range(1, K)]).sum(),
    ),
    "pass@1 is RLOO": (ObjectiveConfig(kind="pass_at_k", k=1), expected_reward),
    "pass@2": (ObjectiveConfig(kind="pass_at_k", k=2), lambda logp: 1 - failure(logp) ** 2),
    "pass@3": (ObjectiveConfig(kind="pass_at_k", k=3), lambda logp: 1 - failure(logp) ** 3),
    "pass@4, all of the group": (ObjectiveConfig(kind="pass_at_k", k=4), lambda logp: 1 - failure(logp) ** 4),
}


@pytest.mark.parametrize("name", ON_POLICY)
def test_the_mean_gradient_on_policy_is_that_of_the_methods_objective(name: str) -> None:
    objective, wanted = ON_POLICY[name]
    assert torch.allclose(mean_gradient(objective), gradient_of(wanted), rtol=0, atol=1e-12)


def test_grpos_division_weighs_a_prompt_by_how_often_its_groups_are_mixed() -> None:
    """With two classes of reward the direction stays that of the chance of success; groups of one class say nothing."""
    found, plain = mean_gradient(ObjectiveConfig(kind="grpo", reduction="sum")), gradient_of(expected_reward)
    ratio = found / plain
    assert torch.allclose(ratio, ratio.mean().expand_as(ratio), rtol=1e-9)
    assert groups.grpo_advantage(torch.zeros(1, K), normalize=True).abs().max() == 0


def test_grpos_divergence_has_on_policy_the_gradient_of_the_references_divergence_from_the_policy() -> None:
    with_kl = ObjectiveConfig(kind="grpo", normalize=False, reduction="sum", kl=0.3)
    found = mean_gradient(with_kl) - mean_gradient(ObjectiveConfig(kind="grpo", normalize=False, reduction="sum"))
    wanted = gradient_of(lambda logp: -0.3 * (REFERENCE.exp() * (REFERENCE - logp)).sum())
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["rloo", "pass_at_k"])
def test_untruncated_importance_weights_make_stale_samples_unbiased_and_the_clip_does_not(kind: Any) -> None:
    """The sampler is another policy; pass@1's weights are per token, of which there is one."""
    stale = torch.tensor([-0.5, 0.6, 0.2, 0.3, -0.1], dtype=torch.float64)
    settings: dict[str, Any] = {"k": 1} if kind == "pass_at_k" else {}
    weighted = mean_gradient(ObjectiveConfig(kind=kind, truncation=1000.0, **settings), stale)
    assert torch.allclose(weighted, gradient_of(expected_reward), rtol=0, atol=1e-12)
    clipped = mean_gradient(ObjectiveConfig(kind=kind, **settings), stale)
    assert (clipped - gradient_of(expected_reward)).abs().max() > 1e-3


def test_truncated_weights_are_bounded_and_pass_no_gradient() -> None:
    logp = torch.tensor([[0.0, -1.0, 5.0]], dtype=torch.float64, requires_grad=True)
    behaviour = torch.tensor([[-3.0, -1.5, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False]])
    advantage = torch.tensor([2.0], dtype=torch.float64)
    loss = policy_gradient.truncated_policy_loss(logp, behaviour, advantage, mask, most=2.0, reduction="sum")
    loss.sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [[-4.0, pytest.approx(-2 * math.exp(0.5)), 0.0]]


def test_asymre_reaches_the_limit_policy_of_its_theorem() -> None:
    """With V below the sampler's value the limit is (mu (r - V) - tau)^+ / (V^mu - V), tau making it a distribution."""
    reward = torch.tensor([0.0, -1.0, -0.5, -0.2, -0.9], dtype=torch.float64)
    objective = ObjectiveConfig(kind="asymre", baseline_shift=-0.2)
    advantage = group_values(objective, reward / e.BETA, None, SCALES)
    assert torch.allclose(advantage, reward - reward.mean() + 0.2)
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=5.0)
    for _ in range(4000):
        optimizer.zero_grad()
        logp = logits.log_softmax(0)[:, None]
        mask = torch.ones(5, 1, dtype=torch.bool)
        policy_gradient.asymmetric_reinforce(logp, advantage, mask).mean().backward()
        optimizer.step()
    weight = advantage / 5

    def limit(tau: float) -> Tensor:
        return (weight - tau).clamp(min=0) / 0.2

    low, high = -1.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if limit(middle).sum() > 1 else (low, middle)
    assert 0 < (limit(low) > 0).sum() < 5
    assert torch.allclose(logits.detach().softmax(0), limit(low), atol=2e-3)


def test_a_higher_upper_clip_lets_successes_rise_further() -> None:
    def gradient(**settings: Any) -> float:
        logp = torch.tensor([[math.log(1.25)]], dtype=torch.float64, requires_grad=True)
        zero = torch.zeros(1, 1, dtype=torch.float64)
        data = Evaluated(
            logp, zero, zero.bool().logical_not(), zero[0], zero[0], zero, group_BO=torch.ones(1, 1).double()
        )
        objective_loss(ObjectiveConfig(kind="max_rl", **settings), data, SCALES).sum().backward()
        assert logp.grad is not None
        return logp.grad.item()

    assert gradient() == 0
    assert gradient(clip_high=0.28) == pytest.approx(-1.25)


@pytest.mark.parametrize("kind", ["grpo", "rloo", "max_rl", "pass_at_k", "oapl"])
def test_what_needs_the_samplers_logprobs_refuses_responses_without_them(kind: Any) -> None:
    zero = torch.zeros(2, 3)
    data = Evaluated(zero, zero, zero == 0, zero[:, 0], zero[:, 0], group_BO=zero)
    with refused("MissingAnnotation", kind):
        objective_loss(ObjectiveConfig(kind=kind), data, SCALES)
    with refused("MissingAnnotation", kind):
        objective_loss(ObjectiveConfig(kind=kind), replace(data, group_BO=None), SCALES)


def test_what_compares_log_ratios_refuses_a_group_without_them() -> None:
    for objective in (ObjectiveConfig(kind="tba"), ObjectiveConfig(kind="dpo"), ObjectiveConfig(kind="rloo", kl=0.1)):
        with refused("MissingAnnotation"):
            group_values(objective, torch.zeros(2), None, SCALES)


@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
def test_a_long_response_far_from_what_sampled_it_has_a_gradient_of_nothing(advantage: float) -> None:
    """500 tokens of 0.2 nats: the ratio of the whole is beyond float32, and clipped."""
    behaviour, mask = torch.full((1, 500), -1.0), torch.ones(1, 500, dtype=torch.bool)
    logp = torch.full((1, 500), -0.8, requires_grad=True)
    given = {"clip": 0.2, "clip_high": 0.2, "truncation": None}
    loss = policy_gradient.sequence_policy_loss(logp, behaviour, torch.tensor([advantage]), mask, **given)
    loss.sum().backward()
    assert loss.item() == pytest.approx(-1.2 * advantage if advantage >= 0 else math.exp(20), rel=1e-5)
    assert logp.grad is not None
    assert not logp.grad.any()
