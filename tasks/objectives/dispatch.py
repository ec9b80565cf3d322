"""From a configured objective to a loss per sequence: one function per kind, listed in `LOSSES` and `GROUP_VALUES`.

Legend: B sequences, T response tokens, K responses to one prompt; values in nats.
"""

# ruff: noqa: ARG001 -- one signature for all kinds: not every loss reads everything

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.config import ObjectiveConfig
from tasks.errors import CodedError
from tasks.objectives import fine_tuning, groups, policy_gradient, ppo, regression, spo


class MissingAnnotation(CodedError):
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
    log_x_BT: Tensor | None = None
    """Logarithms (nats) of Monte-Carlo estimates x of E[exp(r/beta)] after each annotated token; float32 has no x as
    small as exp(-1/beta) of a small beta."""
    annotated_BT: Tensor | None = None
    """True where `log_x_BT` holds an estimate."""
    group_BO: Tensor | None = None
    """What the group says of each sequence (`group_values`), a column per objective of the source; constants."""

    def advantage(self) -> Tensor:
        """a_t, shape B T (Eq. 11)."""
        return spo.advantage(self.logp_BT, self.ref_logp_BT, self.mask_BT)


Loss = Callable[[ObjectiveConfig, Evaluated, Scales, Tensor | None], Tensor]
"""Loss per sequence (shape B) from objective, batch, scales and what the group says of each sequence (shape B)."""
OfGroup = Callable[[ObjectiveConfig, Tensor, Tensor | None, Scales], Tensor]
"""What K responses say of each (shape K) from objective, r/beta and log-ratios to pi_0 (shape K) and scales."""


def objective_loss(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, place: int = 0) -> Tensor:
    """Unweighted loss per sequence of an objective, number `place` of its source. Shape B. Raises MissingAnnotation."""
    of_group_B = None
    if objective.kind in GROUP_VALUES:
        if evaluated.group_BO is None:
            raise MissingAnnotation(
                f"objective {objective.kind!r} needs what the group says of a response: none is given"
            )
        of_group_B = evaluated.group_BO[:, place]
    return LOSSES[objective.kind](objective, evaluated, scales, of_group_B)


def weighted_loss(objectives: Sequence[ObjectiveConfig], evaluated: Evaluated, scales: Scales) -> Tensor:
    """Sum of the objectives' losses times their weights. Shape B."""
    total_B = torch.zeros_like(evaluated.y0_B)
    for place, objective in enumerate(objectives):
        total_B = total_B + objective.weight * objective_loss(objective, evaluated, scales, place)
    return total_B


def group_values(objective: ObjectiveConfig, terminal_K: Tensor, log_ratio_K: Tensor | None, scales: Scales) -> Tensor:
    """What K responses to one prompt say of each: an advantage, a value in nats, or a pair's other log-ratio. Shape K.

    `log_ratio_K` is needed where the objective compares log-ratios. An objective without groups gets zeros.
    """
    if log_ratio_K is None and objective.compares_log_ratios:
        raise MissingAnnotation(f"objective {objective.kind!r} needs the log-ratios of the whole group")
    if objective.kind not in GROUP_VALUES:
        return torch.zeros_like(terminal_K)
    return GROUP_VALUES[objective.kind](objective, terminal_K, log_ratio_K, scales)


# the paper's


def _terminal(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    y0_B, a_BT, r_B = evaluated.y0_B, evaluated.advantage(), evaluated.terminal_B
    if objective.loss == "squared":
        return spo.terminal_q_regression_squared(y0_B, a_BT, r_B, beta=scales.beta)
    return spo.terminal_q_regression_cross_entropy(y0_B, a_BT, r_B, epsilon=scales.clip_epsilon)


def _reverse_q(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    shared = (evaluated.y0_B, evaluated.advantage(), evaluated.terminal_B, evaluated.mask_BT)
    if objective.loss == "squared":
        return spo.non_terminal_q_regression_squared(*shared, beta=scales.beta, reduction=objective.reduction)
    return spo.non_terminal_q_regression_cross_entropy(
        *shared, epsilon=scales.clip_epsilon, reduction=objective.reduction
    )


def _advantage(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    shared = (evaluated.y0_B, evaluated.advantage(), evaluated.terminal_B)
    return spo.advantage_regression(*shared, scale=scales.sigmoid_scale)


def _monte_carlo(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    if evaluated.log_x_BT is None or evaluated.annotated_BT is None:
        raise MissingAnnotation("objective 'monte_carlo' needs token values; only the source 'pivotal' carries them")
    shared = (evaluated.y0_B, evaluated.advantage(), evaluated.log_x_BT, evaluated.annotated_BT)
    if objective.loss == "squared":
        return spo.monte_carlo_regression_squared(*shared, beta=scales.beta, reduction=objective.reduction)
    return spo.monte_carlo_regression_cross_entropy(*shared, epsilon=scales.clip_epsilon, reduction=objective.reduction)


def _policy_gradient(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    y_T_B = spo.terminal_value(evaluated.y0_B, evaluated.advantage())
    advantage_B = scales.beta * ppo.path_advantage(y_T_B, evaluated.terminal_B)
    return ppo.clipped_policy_loss(
        evaluated.logp_BT,
        _behaviour(objective, evaluated),
        advantage_B[:, None].expand_as(evaluated.logp_BT),
        evaluated.mask_BT,
        clip=scales.ratio_clip,
    )


# other methods' (docs/reference/methods.md)


def _likelihood(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    shared = (evaluated.logp_BT, evaluated.terminal_B, evaluated.mask_BT)
    return fine_tuning.likelihood(*shared, reduction=objective.reduction)


def _a_star_po(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, _: Tensor | None) -> Tensor:
    log_ratio_B = evaluated.advantage().sum(dim=1)
    return _regression(objective, evaluated.y0_B, log_ratio_B, evaluated.terminal_B, scales)


def _oapl(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, value_B: Tensor | None) -> Tensor:
    assert value_B is not None
    to_sampler_BT = spo.advantage(evaluated.logp_BT, _behaviour(objective, evaluated), evaluated.mask_BT)
    return _regression(objective, value_B, to_sampler_BT.sum(dim=1), evaluated.terminal_B, scales)


def _regression(
    objective: ObjectiveConfig, value_B: Tensor, log_ratio_B: Tensor, terminal_B: Tensor, scales: Scales
) -> Tensor:
    own = objective.regression_beta or scales.beta
    return regression.optimal_advantage_regression(
        value_B, log_ratio_B, terminal_B, beta=scales.beta, regression_beta=own
    )


def _tba(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, log_z_B: Tensor | None) -> Tensor:
    assert log_z_B is not None
    log_ratio_B = evaluated.advantage().sum(dim=1)
    return regression.trajectory_balance(log_z_B, log_ratio_B, evaluated.terminal_B, beta=scales.beta)


def _dpo(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, other_B: Tensor | None) -> Tensor:
    assert other_B is not None
    log_ratio_B = evaluated.advantage().sum(dim=1)
    return regression.direct_preference(log_ratio_B, other_B, evaluated.terminal_B >= 0, beta=scales.beta)


def _asymre(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, advantage_B: Tensor | None) -> Tensor:
    assert advantage_B is not None
    return policy_gradient.asymmetric_reinforce(evaluated.logp_BT, advantage_B, evaluated.mask_BT)


def _rloo(objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, advantage_B: Tensor | None) -> Tensor:
    assert advantage_B is not None
    return policy_gradient.sequence_policy_loss(
        evaluated.logp_BT,
        _behaviour(objective, evaluated),
        advantage_B,
        evaluated.mask_BT,
        clip=scales.ratio_clip,
        clip_high=_clip_high(objective, scales),
        truncation=objective.truncation,
    )


def _group_policy_gradient(
    objective: ObjectiveConfig, evaluated: Evaluated, scales: Scales, advantage_B: Tensor | None
) -> Tensor:
    assert advantage_B is not None
    logp_BT, mask_BT, behaviour_BT = evaluated.logp_BT, evaluated.mask_BT, _behaviour(objective, evaluated)
    reduction = objective.reduction if objective.kind == "grpo" else "sum"
    if objective.truncation is not None:
        loss_B = policy_gradient.truncated_policy_loss(
            logp_BT, behaviour_BT, advantage_B, mask_BT, most=objective.truncation, reduction=reduction
        )
    else:
        loss_B = ppo.clipped_policy_loss(
            logp_BT,
            behaviour_BT,
            advantage_B[:, None].expand_as(logp_BT),
            mask_BT,
            clip=scales.ratio_clip,
            clip_high=_clip_high(objective, scales),
            reduction=reduction,
        )
    if not objective.kl:
        return loss_B
    return loss_B + objective.kl * policy_gradient.reference_divergence(
        logp_BT, evaluated.ref_logp_BT, mask_BT, reduction=reduction
    )


def _clip_high(objective: ObjectiveConfig, scales: Scales) -> float:
    return scales.ratio_clip if objective.clip_high is None else objective.clip_high


def _behaviour(objective: ObjectiveConfig, evaluated: Evaluated) -> Tensor:
    if evaluated.behaviour_logp_BT is None:
        raise MissingAnnotation(
            f"objective {objective.kind!r} needs the sampler's log-probabilities of every response, some lack them: "
            f"use an engine that gives them, or another objective"
        )
    return evaluated.behaviour_logp_BT


# what a group says


def _of_grpo(objective: ObjectiveConfig, terminal_K: Tensor, _: Tensor | None, scales: Scales) -> Tensor:
    return groups.grpo_advantage(scales.beta * terminal_K, normalize=objective.normalize)


def _of_rloo(objective: ObjectiveConfig, terminal_K: Tensor, log_ratio_K: Tensor | None, scales: Scales) -> Tensor:
    penalty_K = torch.zeros_like(terminal_K) if log_ratio_K is None else objective.kl * log_ratio_K
    return groups.rloo_advantage(scales.beta * terminal_K - penalty_K)


def _of_max_rl(objective: ObjectiveConfig, terminal_K: Tensor, _: Tensor | None, scales: Scales) -> Tensor:
    return groups.max_rl_advantage(_successes(terminal_K))


def _of_pass_at_k(objective: ObjectiveConfig, terminal_K: Tensor, _: Tensor | None, scales: Scales) -> Tensor:
    return groups.pass_at_k_advantage(_successes(terminal_K), objective.k)


def _successes(terminal_K: Tensor) -> Tensor:
    return (terminal_K >= 0).to(terminal_K.dtype)


def _of_asymre(objective: ObjectiveConfig, terminal_K: Tensor, _: Tensor | None, scales: Scales) -> Tensor:
    return groups.asymre_advantage(scales.beta * terminal_K, shift=objective.baseline_shift)


def _of_oapl(objective: ObjectiveConfig, terminal_K: Tensor, _: Tensor | None, scales: Scales) -> Tensor:
    return groups.optimal_value(terminal_K)


def _of_tba(objective: ObjectiveConfig, terminal_K: Tensor, log_ratio_K: Tensor | None, scales: Scales) -> Tensor:
    assert log_ratio_K is not None
    return groups.log_partition(terminal_K, log_ratio_K)


def _of_pair(objective: ObjectiveConfig, terminal_K: Tensor, log_ratio_K: Tensor | None, scales: Scales) -> Tensor:
    assert log_ratio_K is not None
    return log_ratio_K.flip(0)


LOSSES: Mapping[str, Loss] = {
    "terminal": _terminal,
    "reverse_q": _reverse_q,
    "advantage": _advantage,
    "monte_carlo": _monte_carlo,
    "policy_gradient": _policy_gradient,
    "likelihood": _likelihood,
    "a_star_po": _a_star_po,
    "oapl": _oapl,
    "tba": _tba,
    "grpo": _group_policy_gradient,
    "rloo": _rloo,
    "max_rl": _group_policy_gradient,
    "pass_at_k": _group_policy_gradient,
    "asymre": _asymre,
    "dpo": _dpo,
}
"""The loss of every kind of objective (`tasks.config.objectives.ObjectiveKind`)."""
GROUP_VALUES: Mapping[str, OfGroup] = {
    "grpo": _of_grpo,
    "rloo": _of_rloo,
    "max_rl": _of_max_rl,
    "pass_at_k": _of_pass_at_k,
    "asymre": _of_asymre,
    "oapl": _of_oapl,
    "tba": _of_tba,
    "dpo": _of_pair,
}
"""What a group says, for the kinds whose loss reads it."""
