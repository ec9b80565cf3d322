"""From a configured objective to a loss per sequence: the one place that knows all of them.

Legend: B sequences, T response tokens; values in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.config import ObjectiveConfig
from tasks.objectives import fine_tuning, ppo, spo


class MissingAnnotation(Exception):
    """An objective needs something its trajectories do not carry; the message names it."""


@dataclass(frozen=True, slots=True)
class Scales:
    """The scalars of a run that objectives share: beta (reward units), clip epsilon (nats), ..."""

    beta: float
    clip_epsilon: float
    sigmoid_scale: float = 1.0
    ratio_clip: float = 0.2


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Trajectories after the forward pass. Padding stands at the right; `mask_BT` (bool) is made from lengths."""

    logp_BT: Tensor
    """log pi_theta of the sampled tokens; the only tensor with gradients."""
    ref_logp_BT: Tensor
    """log pi_0 of the same tokens."""
    mask_BT: Tensor
    y0_B: Tensor
    """Soft value of the prompt, nats."""
    terminal_B: Tensor
    """r/beta, nats."""
    behaviour_logp_BT: Tensor | None = None
    """Log-probabilities under the policy that sampled."""
    x_BT: Tensor | None = None
    """Monte-Carlo estimates of E[exp(r/beta)] after each annotated token."""
    annotated_BT: Tensor | None = None
    """True where `x_BT` holds an estimate."""

    def advantage(self) -> Tensor:
        """a_t, shape B T (Eq. 11)."""
        return spo.advantage(self.logp_BT, self.ref_logp_BT, self.mask_BT)


def objective_loss(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales) -> Tensor:
    """Loss of one objective per sequence, unweighted. Shape B. Raises MissingAnnotation."""
    kind, squared = objective.kind, objective.loss == "squared"
    a_BT, y0_B, r_B, mask_BT = evaluated.advantage(), evaluated.y0_B, evaluated.terminal_B, evaluated.mask_BT
    if kind == "terminal" and squared:
        return spo.terminal_q_regression_squared(y0_B, a_BT, r_B, beta=scales.beta)
    if kind == "terminal":
        return spo.terminal_q_regression_cross_entropy(y0_B, a_BT, r_B, epsilon=scales.clip_epsilon)
    if kind == "reverse_q" and squared:
        return spo.non_terminal_q_regression_squared(
            y0_B, a_BT, r_B, mask_BT, beta=scales.beta, reduction=objective.reduction
        )
    if kind == "reverse_q":
        return spo.non_terminal_q_regression_cross_entropy(
            y0_B, a_BT, r_B, mask_BT, epsilon=scales.clip_epsilon, reduction=objective.reduction
        )
    if kind == "advantage":
        return spo.advantage_regression(y0_B, a_BT, r_B, scale=scales.sigmoid_scale)
    if kind == "monte_carlo":
        return _monte_carlo(objective, evaluated, scales)
    if kind == "likelihood":
        return fine_tuning.likelihood(evaluated.logp_BT, r_B, mask_BT, reduction=objective.reduction)
    return _policy_gradient(evaluated, scales)


def weighted_loss(objectives: Sequence[ObjectiveConfig], evaluated: Evaluated, scales: Scales) -> Tensor:
    """Sum of the objectives' losses times their weights. Shape B."""
    total_B = torch.zeros_like(evaluated.y0_B)
    for objective in objectives:
        total_B = total_B + objective.weight * objective_loss(objective, evaluated, scales)
    return total_B


def _monte_carlo(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales) -> Tensor:
    if evaluated.x_BT is None or evaluated.annotated_BT is None:
        raise MissingAnnotation("objective 'monte_carlo' needs token values; only the source 'pivotal' carries them")
    shared = (evaluated.y0_B, evaluated.advantage(), evaluated.x_BT, evaluated.annotated_BT)
    if objective.loss == "squared":
        return spo.monte_carlo_regression_squared(*shared, beta=scales.beta, reduction=objective.reduction)
    return spo.monte_carlo_regression_cross_entropy(*shared, epsilon=scales.clip_epsilon, reduction=objective.reduction)


def _policy_gradient(evaluated: Evaluated, scales: Scales) -> Tensor:
    if evaluated.behaviour_logp_BT is None:
        raise MissingAnnotation(
            "objective 'policy_gradient' needs the sampler's log-probabilities; use it on the source 'online'"
        )
    y_T_B = spo.terminal_value(evaluated.y0_B, evaluated.advantage())
    advantage_B = scales.beta * ppo.path_advantage(y_T_B, evaluated.terminal_B)
    return ppo.clipped_policy_loss(
        evaluated.logp_BT,
        evaluated.behaviour_logp_BT,
        advantage_B[:, None].expand_as(evaluated.logp_BT),
        evaluated.mask_BT,
        clip=scales.ratio_clip,
    )
