"""What training minimises: objectives, the sources of data that they are for, and PPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.config.base import Factor, Fraction, PositiveFraction, PositiveInt, Section

SourceName = Literal["online", "offline", "pivotal", "pivotal_rollouts", "replay", "earlier"]


class ObjectiveConfig(Section):
    """One objective of a data source (3.1.2, 3.1.3)."""

    kind: Literal["terminal", "reverse_q", "advantage", "monte_carlo", "policy_gradient", "likelihood"] = "terminal"
    """`terminal`: Q-regression at the last token, the paper's main objective. `reverse_q`: at every token, towards
    reverse-Q targets. `advantage`: advantage regression. `monte_carlo`: at the tokens a pivotal search has visited;
    for the source `pivotal` alone. `policy_gradient` (section 6): PPO's clipped loss with the cumulative value as
    baseline; it needs responses sampled at temperature 1, top-p 1. `likelihood`: cross-entropy of the tokens of
    successes, failures count nothing; from the corpus alone it is rejection fine-tuning, the plain baseline."""
    loss: Literal["cross_entropy", "squared", "sigmoid"] = "cross_entropy"
    """`cross_entropy`: between success probabilities (paper's main comparison). `squared`: between rewards. `sigmoid`
    belongs to `advantage`. `policy_gradient` takes none."""
    weight: Factor = 1.0
    """Factor on the objective where a source has several."""
    reduction: Literal["mean", "sum"] = "mean"
    """Over tokens, for `reverse_q`, `monte_carlo` and `likelihood`. `sum` lets long responses count for more."""

    @model_validator(mode="after")
    def _loss_fits(self) -> ObjectiveConfig:
        if (self.kind == "advantage") != (self.loss == "sigmoid"):
            raise ValueError(f"objective {self.kind!r} cannot use loss {self.loss!r}: sigmoid belongs to advantage")
        if self.kind == "policy_gradient":
            self.refuse_ignored("loss", reason="objective 'policy_gradient' is a loss of its own")
        if self.kind == "likelihood":
            self.refuse_ignored("loss", reason="objective 'likelihood' is the cross-entropy of tokens")
        if self.kind not in {"reverse_q", "monte_carlo", "likelihood"}:
            self.refuse_ignored("reduction", reason=f"objective {self.kind!r} has one term per sequence")
        return self


class SourceConfig(Section):
    """One source of training data: its share of every batch and its objectives."""

    share: Fraction
    """Share of every batch; the shares of all sources add up to 1 (paper: 0.5 online, 0.5 offline)."""
    objectives: Annotated[tuple[ObjectiveConfig, ...], Field(min_length=1)] = (ObjectiveConfig(),)
    """Objectives of its sequences; their weighted sum is minimised."""


class PPOConfig(Section):
    """PPO with generalised advantages from a value model (3.1.4); read when `train.algorithm` is `ppo`.

    `train.ratio_clip` clips its ratio and `train.beta` weighs its KL penalty. The paper gives none of these values.
    """

    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Passes over a batch. Many passes learn more from a sample, until the policy has left what sampled it."""
    minibatches: PositiveInt = 4
    """Optimizer updates of one pass; each takes an equal part of the batch."""
    discount: PositiveFraction = 1.0
    """Discount per token; 1 keeps the objective of Eq. 1."""
    trace: Fraction = 0.95
    """Trace decay of the generalised advantages: 0 trusts the value model, 1 the outcome alone."""
    normalize_advantages: bool = True
    """Shift and scale the batch's advantages to mean 0 and deviation 1 over tokens."""
    value_coefficient: Factor = 0.5
    """Weight of the value loss; values are in reward units."""
    value_clip: Factor = 0.2
    """Distance that a value may move within a batch before its loss stops rewarding it, in reward units."""
    value_learning_rate: PositiveFraction | None = None
    """Learning rate of the value model; None: the policy's."""
