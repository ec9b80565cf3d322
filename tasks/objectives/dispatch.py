"""From a configured objective to a loss per sequence: the one place that knows all of them.

Legend: B sequences, T response tokens; values in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.config import OTHER_METHODS, ObjectiveConfig
from tasks.objectives import fine_tuning, groups, policy_gradient, ppo, regression, spo


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
    group_BO: Tensor | None = None
    """What the group says of each sequence (`group_values`), a column per objective of the source; constants."""

    def advantage(self) -> Tensor:
        """a_t, shape B T (Eq. 11)."""
        return spo.advantage(self.logp_BT, self.ref_logp_BT, self.mask_BT)


def group_values(objective: ObjectiveConfig, terminal_K: Tensor, log_ratio_K: Tensor | None, scales: Scales) -> Tensor:
    """What K responses to one prompt say of each: an advantage, a value in nats, or a pair's other log-ratio. Shape K.

    `log_ratio_K` is needed where the objective compares log-ratios. An objective without groups gets zeros.
    """
    kind, reward_K, success_K = objective.kind, scales.beta * terminal_K, (terminal_K >= 0).to(terminal_K.dtype)
    if log_ratio_K is None and objective.compares_log_ratios:
        raise MissingAnnotation(f"objective {kind!r} needs the log-ratios of the whole group")
    if kind == "grpo":
        return groups.grpo_advantage(reward_K, normalize=objective.normalize)
    if kind == "rloo":
        penalty_K = torch.zeros_like(reward_K) if log_ratio_K is None else objective.kl * log_ratio_K
        return groups.rloo_advantage(reward_K - penalty_K)
    if kind == "max_rl":
        return groups.max_rl_advantage(success_K)
    if kind == "pass_at_k":
        return groups.pass_at_k_advantage(success_K, objective.k)
    if kind == "asymre":
        return groups.asymre_advantage(reward_K, shift=objective.baseline_shift)
    if kind == "oapl":
        return groups.optimal_value(terminal_K)
    if kind == "tba" and log_ratio_K is not None:
        return groups.log_partition(terminal_K, log_ratio_K)
    if kind == "dpo" and log_ratio_K is not None:
        return log_ratio_K.flip(0)
    return torch.zeros_like(terminal_K)


def objective_loss(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, place: int = 0) -> Tensor:
    """Unweighted loss per sequence of an objective, number `place` of its source. Shape B. Raises MissingAnnotation."""
    if objective.kind in OTHER_METHODS:
        return _other_method(objective, evaluated, scales, place)
    return _paper(objective, evaluated, scales)


def _paper(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales) -> Tensor:
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
    return _policy_gradient(objective, evaluated, scales)


def weighted_loss(objectives: Sequence[ObjectiveConfig], evaluated: Evaluated, scales: Scales) -> Tensor:
    """Sum of the objectives' losses times their weights. Shape B."""
    total_B = torch.zeros_like(evaluated.y0_B)
    for place, objective in enumerate(objectives):
        total_B = total_B + objective.weight * objective_loss(objective, evaluated, scales, place)
    return total_B


def _other_method(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, place: int) -> Tensor:
    kind, terminal_B, log_ratio_B = objective.kind, evaluated.terminal_B, evaluated.advantage().sum(dim=1)
    betas = {"beta": scales.beta, "regression_beta": objective.regression_beta or scales.beta}
    if kind == "a_star_po":
        return regression.optimal_advantage_regression(evaluated.y0_B, log_ratio_B, terminal_B, **betas)
    if evaluated.group_BO is None:
        raise MissingAnnotation(f"objective {kind!r} needs what the whole group says of a response, and none was given")
    group_B = evaluated.group_BO[:, place]
    if kind == "tba":
        return regression.trajectory_balance(group_B, log_ratio_B, terminal_B, beta=scales.beta)
    if kind == "dpo":
        return regression.direct_preference(log_ratio_B, group_B, terminal_B >= 0, beta=scales.beta)
    if kind == "asymre":
        return policy_gradient.asymmetric_reinforce(evaluated.logp_BT, group_B, evaluated.mask_BT)
    if kind == "oapl":
        to_sampler_BT = spo.advantage(evaluated.logp_BT, _behaviour(objective, evaluated), evaluated.mask_BT)
        return regression.optimal_advantage_regression(group_B, to_sampler_BT.sum(dim=1), terminal_B, **betas)
    return _group_policy_gradient(objective, evaluated, scales, group_B)


def _group_policy_gradient(
    objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, advantage_B: Tensor
) -> Tensor:
    logp_BT, mask_BT, behaviour_BT = evaluated.logp_BT, evaluated.mask_BT, _behaviour(objective, evaluated)
    high = scales.ratio_clip if objective.clip_high is None else objective.clip_high
    if objective.kind == "rloo":
        return policy_gradient.sequence_policy_loss(
            logp_BT,
            behaviour_BT,
            advantage_B,
            mask_BT,
            clip=scales.ratio_clip,
            clip_high=high,
            truncation=objective.truncation,
        )
    reduction = objective.reduction if objective.kind == "grpo" else "sum"
    if objective.truncation is not None:
        loss_B = policy_gradient.truncated_policy_loss(
            logp_BT, behaviour_BT, advantage_B, mask_BT, most=objective.truncation, reduction=reduction
        )
    else:
        advantage_BT = advantage_B[:, None].expand_as(logp_BT)
        loss_B = ppo.clipped_policy_loss(
            logp_BT, behaviour_BT, advantage_BT, mask_BT, clip=scales.ratio_clip, clip_high=high, reduction=reduction
        )
    if not objective.kl:
        return loss_B
    return loss_B + objective.kl * policy_gradient.reference_divergence(
        logp_BT, evaluated.ref_logp_BT, mask_BT, reduction=reduction
    )


def _behaviour(objective: ObjectiveConfig, evaluated: Evaluated) -> Tensor:
    if evaluated.behaviour_logp_BT is None:
        raise MissingAnnotation(
            f"objective {objective.kind!r} needs the sampler's log-probabilities of every response, some lack them: "
            f"use an engine that gives them, or another objective"
        )
    return evaluated.behaviour_logp_BT


def _monte_carlo(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales) -> Tensor:
    if evaluated.x_BT is None or evaluated.annotated_BT is None:
        raise MissingAnnotation("objective 'monte_carlo' needs token values; only the source 'pivotal' carries them")
    shared = (evaluated.y0_B, evaluated.advantage(), evaluated.x_BT, evaluated.annotated_BT)
    if objective.loss == "squared":
        return spo.monte_carlo_regression_squared(*shared, beta=scales.beta, reduction=objective.reduction)
    return spo.monte_carlo_regression_cross_entropy(*shared, epsilon=scales.clip_epsilon, reduction=objective.reduction)


def _policy_gradient(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales) -> Tensor:
    y_T_B = spo.terminal_value(evaluated.y0_B, evaluated.advantage())
    advantage_B = scales.beta * ppo.path_advantage(y_T_B, evaluated.terminal_B)
    return ppo.clipped_policy_loss(
        evaluated.logp_BT,
        _behaviour(objective, evaluated),
        advantage_B[:, None].expand_as(evaluated.logp_BT),
        evaluated.mask_BT,
        clip=scales.ratio_clip,
    )
