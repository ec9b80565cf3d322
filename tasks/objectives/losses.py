"""Losses between a prediction and a target in log units (paper 3.1.1). Elementwise: any shape in, the same shape out.

Legend: y is Q/beta in nats; x = exp(y) is the probability of success that y stands for.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LN_2 = math.log(2)


def squared(prediction: Tensor, target: Tensor, *, beta: float) -> Tensor:
    """(Q_hat - Q)^2 in reward units: `beta` scales both values, given in nats.

    Paper: 3.1.1, L(y_hat, y) = (y_hat - y)^2.
    """
    return (beta * (prediction - target)).square()


def log1mexp(y: Tensor) -> Tensor:
    """log(1 - exp(y)) for y < 0, accurate at both ends, with finite gradients everywhere below 0.

    `log(-expm1(y))` above -ln 2 and `log1p(-exp(y))` below; each branch sees inputs that are safe for it,
    because a gradient through the branch not taken would otherwise be 0 * inf.
    """
    near = y > -LN_2
    near_y = torch.where(near, y, torch.full_like(y, -LN_2))
    far_y = torch.where(near, torch.full_like(y, -LN_2), y)
    return torch.where(near, torch.log(-torch.expm1(near_y)), torch.log1p(-torch.exp(far_y)))


class _ClipStraightThrough(torch.autograd.Function):
    """clip(y, max=bound) forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bound: float) -> Tensor:  # noqa: ARG004
        return y.clamp(max=bound)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return gradients[0], None


def clip_straight_through(y: Tensor, epsilon: float) -> Tensor:
    """y bounded by -epsilon; the gradient passes as if there were no bound.

    Paper: 3.1.1, clipping. Without it a failure's loss is infinite at y = 0; `epsilon` bounds its
    slope, 1/(e^-y - 1), by 1/(e^epsilon - 1).
    """
    clipped: Tensor = _ClipStraightThrough.apply(y, -epsilon)  # pyright: ignore[reportAssignmentType]
    return clipped


def cross_entropy(prediction: Tensor, target: Tensor, *, epsilon: float) -> Tensor:
    """Binary cross-entropy of success with target probability exp(min(target, 0)), in nats.

    Paper: 3.1.1, -x y_hat - (1 - x) log(1 - exp y_hat), with x * relu(-y_hat) for the positive term,
    so that nothing pulls a prediction above 0, and straight-through clipping in the negative one.
    """
    return cross_entropy_of_probability(prediction, target.clamp(max=0).exp(), epsilon=epsilon)


def cross_entropy_of_probability(prediction: Tensor, x: Tensor, *, epsilon: float) -> Tensor:
    """`cross_entropy` with the target given as the probability x itself; linear in x, hence unbiased in its estimates.

    Paper: 3.1.3.
    """
    negative = log1mexp(clip_straight_through(prediction, epsilon))
    return x * functional.relu(-prediction) - (1 - x) * negative


def sigmoid_cross_entropy(prediction: Tensor, target: Tensor, *, scale: float = 1.0) -> Tensor:
    """Binary cross-entropy between sigmoid(scale * target) and sigmoid(scale * prediction).

    Paper: 3.1.1, warping both sides of an equation by the sigmoid; used by advantage regression (3.1.2).
    """
    return functional.binary_cross_entropy_with_logits(
        scale * prediction, torch.sigmoid(scale * target).expand_as(prediction), reduction="none"
    )
