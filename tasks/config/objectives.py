"""What training minimises: objectives, the sources of data that they are for, and PPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.config.base import Fraction, PositiveInt, Section


class ObjectiveConfig(Section):
    """One objective of a data source (3.1.2, 3.1.3)."""

    kind: Literal["terminal", "reverse_q", "advantage", "monte_carlo", "policy_gradient"] = "terminal"
    """`policy_gradient` (section 6) is PPO's clipped loss with the cumulative value as baseline; it takes no `loss`
    and needs responses sampled at temperature 1, top-p 1."""
    loss: Literal["cross_entropy", "squared", "sigmoid"] = "cross_entropy"
    weight: float = 1.0
    reduction: Literal["mean", "sum"] = "mean"
    """Over tokens, for `reverse_q` and `monte_carlo`."""

    @model_validator(mode="after")
    def _loss_fits(self) -> ObjectiveConfig:
        if (self.kind == "advantage") != (self.loss == "sigmoid"):
            raise ValueError(f"objective {self.kind!r} cannot use loss {self.loss!r}: sigmoid belongs to advantage")
        return self


class SourceConfig(Section):
    """One source of training data: its share of every batch and its objectives."""

    share: Fraction
    objectives: tuple[ObjectiveConfig, ...] = (ObjectiveConfig(),)


SourceName = Literal["online", "offline", "pivotal", "pivotal_rollouts"]


class PPOConfig(Section):
    """PPO with generalised advantages from a value model (3.1.4); read when `train.algorithm` is `ppo`.

    `train.ratio_clip` clips its ratio and `train.beta` weighs its KL penalty. The paper gives none of these values.
    """

    epochs: PositiveInt = 1
    """Passes over a batch."""
    minibatches: PositiveInt = 4
    """Optimizer updates of one pass; each takes an equal part of the batch."""
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount per token; 1 keeps the objective of Eq. 1."""
    trace: Fraction = 0.95
    """Trace decay of the generalised advantages."""
    normalize_advantages: bool = True
    """Shift and scale the batch's advantages to mean 0 and deviation 1 over tokens."""
    value_coefficient: float = Field(default=0.5, gt=0)
    """Weight of the value loss; values are in reward units."""
    value_clip: float = Field(default=0.2, gt=0)
    """Distance that a value may move within a batch before its loss stops rewarding it, in reward units."""
    value_learning_rate: float | None = Field(default=None, gt=0)
    """Rate of the value model; None: the policy's."""
