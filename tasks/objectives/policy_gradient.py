"""Policy gradients with an advantage per response, by their correction for the sampler (docs/reference/methods.md).

Legend: B sequences, T response tokens; `mask_BT` is True on response tokens; `advantage_B` is a constant. Losses are of
shape B. The clipped loss per token is PPO's (`ppo.clipped_policy_loss`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tasks.objectives.spo import LossReduction, reduce_tokens

LARGEST = 20.0
"""Log-ratio of a whole response (nats) up to which its gradient is taken; of more it is 0, also where A is negative and
nothing clips: 500 tokens come to what float32 cannot hold."""


def truncated_policy_loss(
    logp_BT: Tensor,
    behaviour_logp_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    *,
    most: float,
    reduction: LossReduction,
) -> Tensor:
    """-detach(min(w_t, most)) A log pi_theta over tokens, w_t = pi_theta / pi_behaviour.

    Truncated importance sampling (Ionides 2008), here from the policy to what the engine sampled: biased to less where
    the policy has grown more likely, but never of unbounded variance.
    """
    ratio_BT = torch.where(mask_BT, logp_BT.detach() - behaviour_logp_BT, torch.zeros_like(logp_BT)).exp()
    return reduce_tokens(-ratio_BT.clamp(max=most) * advantage_B[:, None] * logp_BT, mask_BT, reduction)


def sequence_policy_loss(
    logp_BT: Tensor,
    behaviour_logp_BT: Tensor,
    advantage_B: Tensor,
    mask_BT: Tensor,
    *,
    clip: float,
    clip_high: float,
    truncation: float | None,
) -> Tensor:
    """The same with one ratio per response: -min(w A, clip(w) A), or -detach(min(w, truncation)) A log pi_theta.

    Ahmadian et al. 2024 (RLOO, arXiv 2402.14740): the whole response is one action.
    """
    log_ratio_B = torch.where(mask_BT, logp_BT - behaviour_logp_BT, torch.zeros_like(logp_BT)).sum(dim=1)
    if truncation is not None:
        logp_B = torch.where(mask_BT, logp_BT, torch.zeros_like(logp_BT)).sum(dim=1)
        return -log_ratio_B.detach().exp().clamp(max=truncation) * advantage_B * logp_B
    ratio_B = log_ratio_B.clamp(max=LARGEST).exp()
    return -torch.minimum(ratio_B * advantage_B, ratio_B.clamp(1 - clip, 1 + clip_high) * advantage_B)


def asymmetric_reinforce(logp_BT: Tensor, advantage_B: Tensor, mask_BT: Tensor) -> Tensor:
    """-A log pi_theta(y): REINFORCE on another policy's responses, on purpose without importance weights.

    Arnal et al. 2025 (AsymRE, arXiv 2506.20520): J = E_{y ~ mu}[log pi(y) (r(y) - V)], A = r - V.
    """
    return -advantage_B * torch.where(mask_BT, logp_BT, torch.zeros_like(logp_BT)).sum(dim=1)


def reference_divergence(logp_BT: Tensor, ref_logp_BT: Tensor, mask_BT: Tensor, *, reduction: LossReduction) -> Tensor:
    """pi_0/pi_theta - log pi_0/pi_theta - 1 over tokens, nats: GRPO's estimate of the distance to the reference.

    Shao et al. 2024 (DeepSeekMath, arXiv 2402.03300), Eq. 4. Differentiated on the policy's own tokens, as here, its
    mean gradient at a token is that of KL(pi_0 || pi_theta), not of KL(pi_theta || pi_0).
    """
    log_ratio_BT = torch.where(mask_BT, ref_logp_BT - logp_BT, torch.zeros_like(logp_BT))
    return reduce_tokens(log_ratio_BT.exp() - log_ratio_BT - 1, mask_BT, reduction)
