"""The policy-gradient objectives: the PPO baseline (paper 3.1.4) and policy gradients mixed into SPO (section 6).

Legend: B sequences, T response tokens; `mask_BT` is True on response tokens. Rewards are built in nats (r/beta), where
the KL penalty has weight 1; advantages, returns and values are in whatever unit the caller gives them, in the trainer
reward units (nats times beta).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tasks.objectives.spo import LossReduction, reduce_tokens


def kl_regularized_rewards(terminal_B: Tensor, logp_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Per-token rewards of Eq. 1 in nats: -(log pi_theta - log pi_0) everywhere, plus r/beta on the last token.

    `logp_ratio_BT` is the policy's log-ratio to the reference, by the trainer's own pass before the batch's first
    update; no gradient flows into it. Shape B T.
    """
    reward_BT = torch.where(mask_BT, -logp_ratio_BT.detach(), torch.zeros_like(logp_ratio_BT))
    last_B = mask_BT.sum(dim=1).clamp(min=1) - 1
    return reward_BT.scatter_add(1, last_B[:, None], terminal_B[:, None].to(reward_BT.dtype))


def generalized_advantage(
    reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, *, discount: float, trace: float
) -> Tensor:
    """A_t = sum_l (discount * trace)^l delta_{t+l}, delta_t = r_t + discount V_{t+1} - V_t. Shape B T, detached.

    `value_BT[:, t]` is the value before token t; after the last token it is 0. Schulman et al. (2016), used in 3.1.4.
    """
    advantage_BT = torch.zeros_like(reward_BT)
    carried_B = torch.zeros_like(reward_BT[:, 0])
    next_value_B = torch.zeros_like(carried_B)
    for t in reversed(range(reward_BT.shape[1])):
        inside_B = mask_BT[:, t].to(reward_BT.dtype)
        delta_B = reward_BT[:, t] + discount * next_value_B - value_BT[:, t]
        carried_B = inside_B * (delta_B + discount * trace * carried_B)
        next_value_B = inside_B * value_BT[:, t]
        advantage_BT[:, t] = carried_B
    return advantage_BT.detach()


def clipped_policy_loss(
    logp_BT: Tensor,
    behaviour_logp_BT: Tensor,
    advantage_BT: Tensor,
    mask_BT: Tensor,
    *,
    clip: float,
    clip_high: float | None = None,
    reduction: LossReduction = "sum",
) -> Tensor:
    """-min(w A, clip(w, 1 - c, 1 + c') A) over tokens, w = pi_theta / pi_behaviour; c' is c unless given. Shape B.

    Paper: 3.1.4 (Schulman et al. 2017b) with importance weights from the behaviour policy. A higher c' lets unlikely
    tokens rise further (Yu et al. 2025, DAPO, arXiv 2503.14476, clip-higher).
    """
    ratio_BT = torch.where(mask_BT, logp_BT - behaviour_logp_BT, torch.zeros_like(logp_BT)).exp()
    bounded_BT = ratio_BT.clamp(1 - clip, 1 + (clip if clip_high is None else clip_high))
    gain_BT = torch.minimum(ratio_BT * advantage_BT, bounded_BT * advantage_BT)
    return reduce_tokens(-gain_BT, mask_BT, reduction)


def value_loss(value_BT: Tensor, old_value_BT: Tensor, return_BT: Tensor, mask_BT: Tensor, *, clip: float) -> Tensor:
    """max((V - R)^2, (V_clipped - R)^2) / 2, mean over tokens; V_clipped stays near the old value. Shape B."""
    clipped_BT = old_value_BT + (value_BT - old_value_BT).clamp(-clip, clip)
    loss_BT = 0.5 * torch.maximum((value_BT - return_BT).square(), (clipped_BT - return_BT).square())
    return torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT)).sum(dim=1) / mask_BT.sum(dim=1).clamp(min=1)


def path_advantage(y_T_B: Tensor, terminal_B: Tensor) -> Tensor:
    """r/beta - y_T, detached: the advantage of every token when the cumulative value is the baseline. Shape B.

    The soft return from token t on is r/beta - sum_{s>=t} a_s and the baseline is y_{t-1}; their difference does not
    depend on t (Theorem 2.3), so one number per sequence serves all its tokens. 0 everywhere at the optimum.
    """
    return (terminal_B - y_T_B).detach()
