"""GRPO, RLOO and DPO give the losses, gradients and advantages of TRL's own code on random tensors.

The values were made by `fixtures/write.py`, which says how. TRL's loss is a mean over the batch, ours one per sequence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tasks.config import ObjectiveConfig
from tasks.objectives import groups
from tasks.objectives.dispatch import Evaluated, Scales, group_values, objective_loss

TRL = json.loads((Path(__file__).parent / "fixtures" / "trl.json").read_text(encoding="utf-8"))
GIVEN = {name: torch.tensor(values, dtype=torch.float64) for name, values in TRL["given"].items()}
MEMBERS = 4
BETA = 0.1
SCALES = Scales(beta=BETA, clip_epsilon=0.1, ratio_clip=0.2)
MASK = torch.arange(5)[None, :] < GIVEN["lengths"][:, None]
EXACT, ROUNDED = 1e-12, 1e-7
"""TRL works out the correction of its deviation in float32."""


def losses(objective: ObjectiveConfig, logp: Tensor, values: Tensor, terminal: Tensor) -> Tensor:
    data = Evaluated(
        logp_BT=logp,
        ref_logp_BT=GIVEN["reference"],
        mask_BT=MASK,
        y0_B=torch.zeros(len(logp), dtype=torch.float64),
        terminal_B=terminal,
        behaviour_logp_BT=GIVEN["behaviour"],
        group_BO=values[:, None],
    )
    return objective_loss(objective, data, SCALES)


def in_groups(objective: ObjectiveConfig) -> Tensor:
    """What the groups say, from the rewards and the policy's log-ratios."""
    ratio = torch.where(MASK, GIVEN["logp"] - GIVEN["reference"], 0.0).sum(1)
    shape = (-1, MEMBERS)
    return group_values(objective, GIVEN["reward"].view(shape) / BETA, ratio.view(shape), SCALES).flatten()


def assert_close(found: Tensor, wanted: list[Any], tolerance: float = EXACT) -> None:
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=tolerance)


def assert_same(objective: ObjectiveConfig, wanted: dict[str, Any], *, per: float = 1.0) -> None:
    """`per`: what TRL divides by, beside the number of sequences."""
    tolerance = ROUNDED if objective.kind == "grpo" and objective.normalize else EXACT
    logp = GIVEN["logp"].clone().requires_grad_(True)
    loss = losses(objective, logp, in_groups(objective), GIVEN["reward"] / BETA).mean() / per
    (gradient,) = torch.autograd.grad(loss, logp)
    assert loss.item() == pytest.approx(wanted["loss"], rel=0, abs=tolerance)
    assert_close(gradient, wanted["gradient"], tolerance)


def test_grpos_advantages_are_trls() -> None:
    reward = GIVEN["reward"].view(-1, MEMBERS)
    assert_close(groups.grpo_advantage(reward, normalize=False).flatten(), TRL["grpo"]["centred"])
    assert_close(groups.grpo_advantage(reward, normalize=True).flatten(), TRL["grpo"]["normalized"], ROUNDED)


@pytest.mark.parametrize("settings", [{}, {"clip_high": 0.28}, {"kl": 0.04}], ids=["grpo", "clip_higher", "kl"])
def test_grpo_is_trls(settings: dict[str, Any], request: pytest.FixtureRequest) -> None:
    case = request.node.callspec.id
    assert_same(ObjectiveConfig(kind="grpo", **settings), TRL["grpo"][case])


def test_dr_grpo_is_trls_times_the_length_limit() -> None:
    objective = ObjectiveConfig(kind="grpo", normalize=False, reduction="sum")
    assert_same(objective, TRL["grpo"]["dr_grpo"], per=TRL["max_length"])


def test_the_gradient_of_truncated_grpo_is_trls_with_the_present_policy_as_the_old_one() -> None:
    """TRL's loss is the ratio 1 times the weight, ours the log-probability times it: the gradients are the same."""
    logp = GIVEN["logp"].clone().requires_grad_(True)
    objective = ObjectiveConfig(kind="grpo", truncation=1.1)
    loss = losses(objective, logp, in_groups(objective), GIVEN["reward"] / BETA).mean()
    (gradient,) = torch.autograd.grad(loss, logp)
    assert_close(gradient, TRL["grpo"]["truncated"]["gradient"], ROUNDED)


@pytest.mark.parametrize(("case", "kl"), [("rloo", 0.0), ("kl", 0.05)])
def test_rloo_is_trls(case: str, kl: float) -> None:
    objective, wanted = ObjectiveConfig(kind="rloo", kl=kl), TRL["rloo"][case]
    assert_close(in_groups(objective), wanted["advantage"])
    assert_same(objective, wanted)


def test_dpo_is_trls() -> None:
    """Rows 0 to 5 are chosen, 6 to 11 rejected; the two halves of a pair carry its gradient together."""
    logp = GIVEN["logp"].clone().requires_grad_(True)
    ratio = torch.where(MASK, GIVEN["logp"] - GIVEN["reference"], 0.0).sum(1)
    partner = torch.cat([ratio[6:], ratio[:6]])
    terminal = torch.tensor([0.0] * 6 + [-10.0] * 6, dtype=torch.float64)
    found = losses(ObjectiveConfig(kind="dpo"), logp, partner, terminal)
    (gradient,) = torch.autograd.grad(found.sum() / 6, logp)
    assert found.mean().item() == pytest.approx(TRL["dpo"]["loss"], rel=0, abs=1e-12)
    assert_close(gradient, TRL["dpo"]["gradient"])
