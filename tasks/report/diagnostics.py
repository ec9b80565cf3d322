"""Failure signatures of a training run: detected in its curves, named, with what they mean and what to try.

Pure functions from curves to findings. A curve is a sequence of (step, value) at increasing steps; one that is missing
or too short tells nothing and raises no alarm. The thresholds are arguments of each function.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Curve: TypeAlias = Sequence[tuple[float, float]]
"""(step, value), steps increasing."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Something that goes wrong in training, as it shows."""

    name: str
    text: str
    severity: Literal["watch", "alarm"]


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The curves of one run. Empty curves are unknown."""

    pass_at_1: Curve = ()
    """Shares on the evaluation problems, by optimizer step: pass@k of the least k."""
    pass_at_10: Curve = ()
    """The same of the largest k."""
    figures: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    """The trainer's own curves by name; read: `online/pass_fraction`, `online/y_T`, `online/entropy`,
    `clipped_fraction`, `grad_norm`, and `kl` (to the reference, nats per response)."""
    beta: float = 1 / math.log(100_000)
    binary: bool = True
    """Rewards are 0 and -1 alone, so that responses that fail alike teach nothing."""
    ks: tuple[int, int] = (1, 10)
    """The k of both curves."""


def signatures(history: TrainingHistory) -> list[Signature]:
    """Every signature the run shows, alarms first."""
    figures = history.figures
    found = [
        policy_collapse(history.pass_at_1, history.pass_at_10, ks=history.ks),
        loss_of_ability(history.pass_at_1, k=history.ks[0]),
        no_reward_signal(figures.get("online/pass_fraction", ())) if history.binary else None,
        clipped_value_instability(figures.get("clipped_fraction", ()), figures.get("grad_norm", ())),
        divergence(figures.get("online/y_T", ()), figures.get("kl", ()), history.beta),
        entropy_collapse(figures.get("online/entropy", figures.get("entropy", ()))),
    ]
    shown = [signature for signature in found if signature is not None]
    return sorted(shown, key=lambda signature: signature.severity != "alarm")


def policy_collapse(
    pass_at_1: Curve, pass_at_10: Curve, *, gain: float = 0.05, closing: float = 0.5, ks: tuple[int, int] = (1, 10)
) -> Signature | None:
    """pass@1 rises while pass@10 does not, or their gap closes: the policy settles on one solution per problem."""
    if len(pass_at_1) < 2 or len(pass_at_10) < 2:
        return None
    rise_1, rise_10 = _rise(pass_at_1), _rise(pass_at_10)
    gap_before, gap_after = _gap(pass_at_1, pass_at_10)
    saturated = pass_at_10[-1][1] > 0.97
    flat = rise_1 >= gain and rise_10 <= gain / 5
    closed = rise_1 >= gain and rise_10 < rise_1 and gap_after <= closing * gap_before
    if saturated or not (flat or closed):
        return None
    return Signature(
        "Policy collapse",
        f"pass@{ks[0]} went from {_first_last(pass_at_1)} while pass@{ks[1]} went from {_first_last(pass_at_10)} (gap "
        f"{gap_before:.1%} to {gap_after:.1%}): the policy settles on one solution per problem. Raise the offline "
        f"share or the sampling temperature, or lower the learning rate.",
        "alarm",
    )


def loss_of_ability(pass_at_1: Curve, *, fall: float = 0.5, k: int = 1) -> Signature | None:
    """pass@1 ends far below its best, or below where it began."""
    if len(pass_at_1) < 2:
        return None
    best_step, best = max(pass_at_1, key=lambda point: point[1])
    start, end = pass_at_1[0][1], pass_at_1[-1][1]
    if end >= fall * best or best - end < 0.03:
        return None
    return Signature(
        "Loss of ability",
        f"pass@{k} was {best:.1%} at step {best_step:g} and is {end:.1%} now (at the start {start:.1%}). Take the "
        f"snapshot of step {best_step:g}; lower the learning rate or raise train.clip_epsilon.",
        "alarm",
    )


def no_reward_signal(pass_fraction: Curve, *, floor: float = 0.01, ceiling: float = 0.99) -> Signature | None:
    """Nearly all online responses fail (or all pass): one class of reward teaches nothing."""
    recent = _recent(pass_fraction)
    if not recent:
        return None
    share = statistics.fmean(recent)
    if floor <= share <= ceiling:
        return None
    what, why = ("pass", "too easy") if share > ceiling else ("fail", "too hard or sampled too hot")
    return Signature(
        "No reward signal",
        f"{max(share, 1 - share):.1%} of the latest online responses {what}: the problems are {why}, so one "
        f"class of reward is all there is. Change the problems, the temperature, or add offline data.",
        "alarm" if what == "fail" else "watch",
    )


def clipped_value_instability(
    clipped: Curve, grad_norm: Curve, *, share: float = 0.2, growth: float = 10.0
) -> Signature | None:
    """Failed responses whose predicted value exceeds 0 (where the loss is clipped) pile up, or gradients explode."""
    recent_clipped = _recent(clipped)
    level = statistics.fmean(recent_clipped) if recent_clipped else 0.0
    early, late = _early(grad_norm), _recent(grad_norm)
    ratio = statistics.median(late) / max(statistics.median(early), 1e-12) if early and late else 1.0
    if level < share and ratio < growth:
        return None
    return Signature(
        "Clipped-value instability",
        f"{level:.0%} of the latest failed responses have a value above 0, and the gradient norm is "
        f"{ratio:.1f} times that of the start: failures near value 0 are pushed down with a slope of up to "
        f"1/(e^clip_epsilon - 1). Raise train.clip_epsilon or lower the learning rate.",
        "alarm" if ratio >= growth else "watch",
    )


def divergence(online_y_T: Curve, kl: Curve, beta: float, *, excess: float = 2.0) -> Signature | None:
    """The policy's log-ratio to the reference exceeds what any reward can justify.

    The best policy has y_T = r/beta <= 0 for every response and a KL of at most -y_0 <= 1/beta per prompt. Shown when
    the mean y_T of online responses exceeds `excess` nats, or the KL exceeds 1/beta by as much.
    """
    value, level = (statistics.fmean(recent) if recent else 0.0 for recent in (_recent(online_y_T), _recent(kl)))
    if value <= excess and level <= 1 / beta + excess:
        return None
    shown = f"mean y_T of online responses is {value:+.1f} nats, where the best policy never exceeds 0"
    if level > 1 / beta + excess:
        shown = (
            f"KL to the reference is {level:.1f} nats per response, where the best policy needs at most {1 / beta:.1f}"
        )
    return Signature(
        "Divergence from the reference",
        f"{shown}: the policy writes what the reference finds nearly impossible. Lower the learning rate, publish "
        f"weights more often, or raise the offline share.",
        "alarm",
    )


def entropy_collapse(entropy: Curve, *, left: float = 0.1) -> Signature | None:
    """Entropy per token falls to a tenth of its start."""
    early, late = _early(entropy), _recent(entropy)
    if not early or not late or statistics.fmean(late) > left * statistics.fmean(early):
        return None
    return Signature(
        "Entropy collapse",
        f"entropy per token fell from {statistics.fmean(early):.3g} to {statistics.fmean(late):.3g} nats: sampling "
        f"repeats itself. Raise the sampling temperature or the offline share.",
        "watch",
    )


def _recent(curve: Curve) -> list[float]:
    """The values of the last tenth of the curve, at least five; none of a curve with fewer than ten points."""
    return [value for _, value in curve[-max(5, len(curve) // 10) :]] if len(curve) >= 10 else []


def _early(curve: Curve) -> list[float]:
    return [value for _, value in curve[: max(5, len(curve) // 10)]] if len(curve) >= 10 else []


def _rise(curve: Curve) -> float:
    return curve[-1][1] - curve[0][1]


def _gap(lower: Curve, upper: Curve) -> tuple[float, float]:
    return upper[0][1] - lower[0][1], upper[-1][1] - lower[-1][1]


def _first_last(curve: Curve) -> str:
    return f"{curve[0][1]:.1%} to {curve[-1][1]:.1%}"
