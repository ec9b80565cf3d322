"""The cumulative Q-parameterization (paper 2.4) and the off-policy objectives built on it (3.1.2, 3.1.3).

Legend: B sequences, T response tokens. Every value is in nats (Q/beta). `mask_BT` is 1 on response tokens, made from
lengths; padding columns stand at the right. Objectives return one loss per sequence (shape B); the caller averages
over the sequences of the whole optimizer step.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from tasks.objectives import losses

LossReduction = Literal["mean", "sum"]


def advantage(logp_BT: Tensor, ref_logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """a_t = log pi_theta - log pi_0 at the sampled tokens, 0 on padding. Shape B T.

    Paper: Eq. 11, divided by beta (Eq. 7 at the optimum).
    """
    return torch.where(mask_BT, logp_BT - ref_logp_BT, torch.zeros_like(logp_BT))


def cumulative_value(y0_B: Tensor, advantage_BT: Tensor) -> Tensor:
    """y_t for t = 1..T: the prompt's value plus the advantages so far. Shape B T.

    Paper: Eq. 12 (the forward form of Eq. 9). On padding the last value is repeated.
    """
    return y0_B[:, None] + prefix_sums(advantage_BT)


def prefix_sums(x_BT: Tensor) -> Tensor:
    """Sum over the columns up to each one. Shape B T.

    By doubling: on a GPU, `torch.cumsum` of floats has no deterministic kernel, and exact resume needs one.
    """
    columns, reach = x_BT.shape[1], 1
    while reach < columns:
        x_BT = x_BT + functional.pad(x_BT, (reach, 0))[:, :columns]
        reach *= 2
    return x_BT


def terminal_value(y0_B: Tensor, advantage_BT: Tensor) -> Tensor:
    """y_T = y_0 + sum of all advantages. Shape B.

    Paper: Eq. 13, left side.
    """
    return y0_B + advantage_BT.sum(dim=1)


def reverse_value(terminal_B: Tensor, advantage_BT: Tensor) -> Tensor:
    """R_t = detach(r/beta - sum of the advantages after t). Shape B T.

    Paper: 3.1.2, reverse-Q targets; the backward form of Eq. 9 with the sum starting at t + 1.
    """
    detached = advantage_BT.detach()
    after_BT = detached.sum(dim=1, keepdim=True) - prefix_sums(detached)
    return terminal_B[:, None] - after_BT


def terminal_q_regression_squared(y0_B: Tensor, advantage_BT: Tensor, terminal_B: Tensor, *, beta: float) -> Tensor:
    """(Q_T - r)^2. Shape B. Paper: Eq. 13 with the squared loss."""
    return losses.squared(terminal_value(y0_B, advantage_BT), terminal_B, beta=beta)


def terminal_q_regression_cross_entropy(
    y0_B: Tensor, advantage_BT: Tensor, terminal_B: Tensor, *, epsilon: float
) -> Tensor:
    """Cross-entropy of y_T against exp(r/beta). Shape B. Paper: Eq. 13, 3.1.2; the paper's main setting."""
    return losses.cross_entropy(terminal_value(y0_B, advantage_BT), terminal_B, epsilon=epsilon)


def non_terminal_q_regression_squared(
    y0_B: Tensor, advantage_BT: Tensor, terminal_B: Tensor, mask_BT: Tensor, *, beta: float, reduction: LossReduction
) -> Tensor:
    """(Q_t - R_t)^2 over all t; each term's gradient flows into y_t alone. Shape B. Paper: 3.1.2, non-terminal."""
    loss_BT = losses.squared(cumulative_value(y0_B, advantage_BT), reverse_value(terminal_B, advantage_BT), beta=beta)
    return reduce_tokens(loss_BT, mask_BT, reduction)


def non_terminal_q_regression_cross_entropy(
    y0_B: Tensor, advantage_BT: Tensor, terminal_B: Tensor, mask_BT: Tensor, *, epsilon: float, reduction: LossReduction
) -> Tensor:
    """Cross-entropy of y_t against exp(R_t), targets clipped to at most 0. Shape B. Paper: 3.1.2, non-terminal."""
    loss_BT = losses.cross_entropy(
        cumulative_value(y0_B, advantage_BT), reverse_value(terminal_B, advantage_BT), epsilon=epsilon
    )
    return reduce_tokens(loss_BT, mask_BT, reduction)


def advantage_regression(y0_B: Tensor, advantage_BT: Tensor, terminal_B: Tensor, *, scale: float = 1.0) -> Tensor:
    """Sigmoid-warped cross-entropy of sum_t a_t against r/beta - y_0. Shape B.

    Paper: 3.1.2, advantage regression. With the squared loss it would equal terminal Q-regression.
    """
    return losses.sigmoid_cross_entropy(advantage_BT.sum(dim=1), terminal_B - y0_B, scale=scale)


def monte_carlo_regression_cross_entropy(
    y0_B: Tensor,
    advantage_BT: Tensor,
    log_x_BT: Tensor,
    annotated_BT: Tensor,
    *,
    epsilon: float,
    reduction: LossReduction,
) -> Tensor:
    """Cross-entropy of y_t against Monte-Carlo estimates x_t of E[exp(r/beta)] at the annotated tokens. Shape B.

    Paper: 3.1.3. Unbiased: the loss is linear in x_t. Tokens without an estimate may hold anything finite.
    """
    x_BT = log_x_BT.exp()
    loss_BT = losses.cross_entropy_of_probability(cumulative_value(y0_B, advantage_BT), x_BT, epsilon=epsilon)
    return reduce_tokens(loss_BT, annotated_BT, reduction)


def monte_carlo_regression_squared(
    y0_B: Tensor, advantage_BT: Tensor, log_x_BT: Tensor, annotated_BT: Tensor, *, beta: float, reduction: LossReduction
) -> Tensor:
    """(Q_t - beta log x_t)^2 at the annotated tokens; biased by the logarithm. Shape B. Paper: 3.1.3."""
    loss_BT = losses.squared(cumulative_value(y0_B, advantage_BT), log_x_BT, beta=beta)
    return reduce_tokens(loss_BT, annotated_BT, reduction)


def reduce_tokens(loss_BT: Tensor, mask_BT: Tensor, reduction: LossReduction) -> Tensor:
    """Sum or mean of each row over the tokens in the mask; 0 for a row without any. Shape B."""
    total_B = torch.where(mask_BT, loss_BT, torch.zeros_like(loss_BT)).sum(dim=1)
    return total_B if reduction == "sum" else total_B / mask_BT.sum(dim=1).clamp(min=1)
