"""Minimising each objective reaches pi_0 exp(r/beta)/Z: every sequence enumerated, the policy a free table."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tasks.config import ObjectiveConfig
from tasks.objectives.dispatch import Evaluated, Scales, weighted_loss
from tests.tasks.objectives import enumeration as e

SCALES = Scales(beta=e.BETA, clip_epsilon=1e-3)

OBJECTIVES = {
    "terminal squared": [ObjectiveConfig(loss="squared")],
    "terminal cross-entropy": [ObjectiveConfig()],
    "reverse-Q squared": [ObjectiveConfig(kind="reverse_q", loss="squared")],
    "reverse-Q squared, summed": [ObjectiveConfig(kind="reverse_q", loss="squared", reduction="sum")],
    "reverse-Q cross-entropy": [ObjectiveConfig(kind="reverse_q")],
    "advantage": [ObjectiveConfig(kind="advantage", loss="sigmoid")],
    "Monte-Carlo cross-entropy": [ObjectiveConfig(kind="monte_carlo")],
    "Monte-Carlo squared": [ObjectiveConfig(kind="monte_carlo", loss="squared")],
    "Monte-Carlo and terminal": [ObjectiveConfig(), ObjectiveConfig(kind="monte_carlo", weight=0.5)],
    "policy gradient": [ObjectiveConfig(kind="policy_gradient")],
    "terminal and policy gradient": [ObjectiveConfig(), ObjectiveConfig(kind="policy_gradient", weight=2.0)],
}


def evaluated(w: e.World) -> Evaluated:
    """All sequences, annotated at every token with the true value, under the reference policy."""
    logp = e.token_logprobs(w.ref_logits)
    return Evaluated(
        logp_BT=logp,
        ref_logp_BT=logp,
        mask_BT=torch.ones_like(logp, dtype=torch.bool),
        y0_B=torch.full((len(e.SEQUENCES),), e.true_values(w)[()], dtype=torch.float64),
        terminal_B=w.terminal,
        log_x_BT=e.value_table(w),
        annotated_BT=torch.ones_like(logp, dtype=torch.bool),
    )


def fractional_world(seed: int) -> e.World:
    """Rewards that are shares of tests passed - 1."""
    w = e.world(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    return e.World(w.ref_logits, -torch.randint(0, 5, w.reward.shape, generator=generator).double() / 4)


def on_policy(objectives: list[ObjectiveConfig]) -> bool:
    """A policy gradient is one only when the sequences are drawn from the policy."""
    return any(objective.kind == "policy_gradient" for objective in objectives)


def loss(logits: torch.Tensor, data: Evaluated, objectives: list[ObjectiveConfig]) -> torch.Tensor:
    """Expected loss, under the policy where the objective asks for it and under the uniform distribution elsewhere."""
    logp = e.token_logprobs(logits)
    data = replace(data, logp_BT=logp, behaviour_logp_BT=logp.detach())
    per_sequence = weighted_loss(objectives, data, SCALES)
    if on_policy(objectives):
        return (data.logp_BT.detach().sum(1).exp() * per_sequence).sum()
    return per_sequence.mean()


def minimised(w: e.World, objectives: list[ObjectiveConfig], steps: int = 1200) -> torch.Tensor:
    logits = w.ref_logits.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / steps)))
    data = evaluated(w)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(logits, data, objectives).backward()
        optimizer.step()
        schedule.step()
    return logits.detach()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_minimising_the_objective_reaches_the_optimal_policy(name: str) -> None:
    w = e.world()
    start = e.total_variation(w.ref_logits, w)
    reached = e.total_variation(minimised(w, OBJECTIVES[name]), w)
    assert start > 0.2
    assert reached < 5e-3, f"total variation {reached}"


def test_fractional_rewards_reach_their_optimal_policy() -> None:
    w = fractional_world(3)
    assert e.total_variation(w.ref_logits, w) > 0.1
    assert e.total_variation(minimised(w, [ObjectiveConfig(loss="squared")]), w) < 5e-3


@pytest.mark.parametrize("name", ["terminal squared", "reverse-Q squared", "advantage", "policy gradient"])
def test_the_gradient_vanishes_at_the_optimal_policy(name: str) -> None:
    """Cross-entropies are left out: a success sits on the kink of relu at y_T = 0."""
    w = e.world()
    logits = e.optimal_logits(w).requires_grad_(True)
    loss(logits, evaluated(w), OBJECTIVES[name]).backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-10
