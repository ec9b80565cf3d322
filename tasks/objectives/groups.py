"""Advantages and values of whole groups of responses to one prompt (docs/reference/methods.md).

Legend: K responses to one prompt, always the last dimension. `reward` r in [-1, 0], or any other number; `success` 1 or
0; `terminal` r/beta and `log_ratio` log pi_theta(y|x)/pi_0(y|x) of a whole response, in nats. What comes out has the
shape of what goes in. All of it is a constant of the losses in `policy_gradient` and `regression`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST_DEVIATION = 1e-4
"""Added to the deviation that divides: a group of equal rewards has advantages 0."""


def grpo_advantage(reward_K: Tensor, *, normalize: bool) -> Tensor:
    """r_i - mean(r), divided by the deviation of the group (of K - 1) where `normalize`.

    Shao et al. 2024 (DeepSeekMath, arXiv 2402.03300), 4.1.2: A_it = (r_i - mean(r)) / std(r). Without the division: Liu
    et al. 2025 (Dr. GRPO, arXiv 2503.20783).
    """
    centred_K = reward_K - reward_K.mean(-1, keepdim=True)
    return centred_K / (reward_K.std(-1, keepdim=True) + LEAST_DEVIATION) if normalize else centred_K


def rloo_advantage(reward_K: Tensor) -> Tensor:
    """r_i - mean of the others' rewards: a baseline that does not depend on response i.

    Kool et al. 2019; Ahmadian et al. 2024 (RLOO, arXiv 2402.14740): r_i - 1/(K - 1) sum_{j != i} r_j.
    """
    return reward_K - _mean_of_others(reward_K)


def max_rl_advantage(success_K: Tensor) -> Tensor:
    """(s_i - mean(s)) / mean(s); 0 where none succeeds.

    MaxRL (arXiv 2602.02710): the gradient of sum_{k <= K} pass@k / k, a beginning of the series of log p, p being the
    chance of success, is the mean score of the successes; here with the mean score of all as control variate. Leaving
    groups without a success at 0 costs the last term: the sum goes to K - 1.
    """
    mean_K = success_K.mean(-1, keepdim=True)
    return torch.where(mean_K > 0, (success_K - mean_K) / mean_K.clamp(min=1e-12), torch.zeros_like(success_K))


def pass_at_k_advantage(success_K: Tensor, k: int) -> Tensor:
    """k q_i (s_i - mean of the others), q_i the share of k - 1 of the others that all fail: unbiased for pass@k.

    The gradient of 1 - (1 - p)^k is k (1 - p)^(k - 1) that of p, and q_i estimates (1 - p)^(k - 1) without response i.
    Walder and Karkhanis 2025 (PKPO, arXiv 2505.15201), binary rewards, with the others' mean as baseline.
    """
    others = success_K.shape[-1] - 1
    failures_K = (others - (success_K.sum(-1, keepdim=True) - success_K)).round()
    ratios = [(failures_K - j).clamp(min=0) / (others - j) for j in range(k - 1)]
    all_fail_K = math.prod(ratios, start=torch.ones_like(success_K))
    return k * all_fail_K * (success_K - _mean_of_others(success_K))


def asymre_advantage(reward_K: Tensor, *, shift: float) -> Tensor:
    """r_i - (mean(r) + shift). Arnal et al. 2025 (AsymRE, arXiv 2506.20520): A = r - V, V = V^mu + delta V."""
    return reward_K - reward_K.mean(-1, keepdim=True) - shift


def optimal_value(terminal_K: Tensor) -> Tensor:
    """ln mean exp(r/beta), nats, of the policy that sampled the group.

    Ritter et al. 2026 (OAPL, arXiv 2602.19362): V* = beta ln (1/K sum_i exp(r_i / beta)), here divided by beta.
    """
    value = terminal_K.logsumexp(-1, keepdim=True) - math.log(terminal_K.shape[-1])
    return value.expand_as(terminal_K)


def log_partition(terminal_K: Tensor, log_ratio_K: Tensor) -> Tensor:
    """mean(r/beta - log pi_theta/pi_0), nats: what makes the group's trajectory balance errors cancel.

    Bartoldson et al. 2025 (TBA, arXiv 2503.18929): the VarGrad estimate of log Z.
    """
    return (terminal_K - log_ratio_K).mean(-1, keepdim=True).expand_as(terminal_K)


def _mean_of_others(x_K: Tensor) -> Tensor:
    return (x_K.sum(-1, keepdim=True) - x_K) / (x_K.shape[-1] - 1)
