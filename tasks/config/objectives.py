"""What training minimises: objectives, the sources of data that they are for, and PPO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.config.base import Factor, Fraction, PositiveFraction, PositiveInt, Section

SourceName = Literal["online", "offline", "pivotal", "pivotal_rollouts", "replay", "earlier", "pairs"]
ObjectiveKind = Literal[
    "terminal",
    "reverse_q",
    "advantage",
    "monte_carlo",
    "policy_gradient",
    "likelihood",
    "a_star_po",
    "oapl",
    "tba",
    "grpo",
    "rloo",
    "max_rl",
    "pass_at_k",
    "asymre",
    "dpo",
]
ON_POLICY: frozenset[str] = frozenset({"grpo", "rloo", "max_rl", "pass_at_k"})
"""Policy gradients: unbiased for what the present policy samples alone."""
IN_GROUPS: frozenset[str] = ON_POLICY | {"oapl", "tba", "asymre"}
"""Objectives that compare all responses to one prompt."""
OTHER_METHODS: frozenset[str] = IN_GROUPS | {"a_star_po", "dpo"}
"""The objectives of docs/reference/methods.md that are not the paper's: each has a loss of its own."""
READ_BY: dict[str, frozenset[str]] = {
    "reduction": frozenset({"reverse_q", "monte_carlo", "likelihood", "grpo"}),
    "normalize": frozenset({"grpo"}),
    "clip_high": ON_POLICY,
    "truncation": ON_POLICY,
    "kl": frozenset({"grpo", "rloo"}),
    "k": frozenset({"pass_at_k"}),
    "baseline_shift": frozenset({"asymre"}),
    "regression_beta": frozenset({"a_star_po", "oapl"}),
}
"""Which objectives read the settings that not all of them have."""


Clip = Annotated[float, Field(gt=0, le=10)]


class ObjectiveConfig(Section):
    """One objective of a data source (3.1.2, 3.1.3), or another method's (docs/reference/methods.md)."""

    kind: ObjectiveKind = "terminal"
    """`terminal`: Q-regression at the last token, the paper's main objective. `reverse_q`: at every token, towards
    reverse-Q targets. `advantage`: advantage regression. `monte_carlo`: at the tokens of a pivotal search; for the
    source `pivotal` alone. `policy_gradient` (section 6): PPO's clipped loss with the cumulative value as baseline;
    needs temperature 1 and top-p 1. `likelihood`: cross-entropy of the tokens of successes; on the corpus alone it is
    rejection fine-tuning. Other methods (docs/reference/methods.md): `a_star_po`, `oapl`, `tba`, `grpo`, `rloo`,
    `max_rl`, `pass_at_k`, `asymre`, and `dpo` for the source `pairs`."""
    loss: Literal["cross_entropy", "squared", "sigmoid"] = "cross_entropy"
    """`cross_entropy`: between success probabilities (paper's main comparison). `squared`: between rewards. `sigmoid`:
    for `advantage` only. `policy_gradient` has none."""
    weight: Factor = 1.0
    """Factor on the objective where a source has several."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction over tokens, for `reverse_q`, `monte_carlo`, `likelihood` and `grpo`. With `sum` long responses count
    for more, as in Dr. GRPO."""
    normalize: bool = True
    """`grpo`: divide advantages by the deviation of the group's rewards. Dr. GRPO does not."""
    clip_high: Clip | None = None
    """Upper clip distance of the ratio for `grpo`, `rloo`, `max_rl` and `pass_at_k` (DAPO: 0.28). None:
    `train.ratio_clip`."""
    truncation: Annotated[float, Field(gt=0, le=1000)] | None = None
    """Truncated importance sampling: weigh the gradient by the ratio to the sampler, cut off here (usually 2). None:
    clip."""
    kl: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight of the distance to the reference, in reward units per nat. `grpo` adds it to the loss, `rloo` subtracts it
    from the reward."""
    k: PositiveInt = 4
    """The k of `pass_at_k`, at most `train.responses_per_prompt`."""
    baseline_shift: Annotated[float, Field(ge=-1, le=1)] = -0.1
    """`asymre`: added to the group's mean reward to form the baseline. Below 0, successes count for more, which suits
    off-policy data."""
    regression_beta: Annotated[float, Field(ge=0.0001, le=100)] | None = None
    """`a_star_po`, `oapl`: beta of the log-ratio in the regression, in reward units. None: `train.beta`."""

    @property
    def in_groups(self) -> bool:
        """Whether it compares all responses to one prompt."""
        return self.kind in IN_GROUPS

    @property
    def compares_log_ratios(self) -> bool:
        """Whether a sequence's loss depends on the present log-ratios of others: a forward pass more."""
        return self.kind in {"tba", "dpo"} or (self.kind == "rloo" and self.kl > 0)

    @property
    def clips_ratios(self) -> bool:
        """Whether it reads `train.ratio_clip`."""
        return self.kind == "policy_gradient" or (self.kind in ON_POLICY and self.truncation is None)

    @model_validator(mode="after")
    def _loss_fits(self) -> ObjectiveConfig:
        if (self.kind == "advantage") != (self.loss == "sigmoid"):
            raise ValueError(f"objective {self.kind!r} cannot use loss {self.loss!r}: sigmoid belongs to advantage")
        if self.kind == "policy_gradient":
            self.refuse_ignored("loss", reason="objective 'policy_gradient' is a loss of its own")
        if self.kind == "likelihood":
            self.refuse_ignored("loss", reason="objective 'likelihood' is the cross-entropy of tokens")
        if self.kind in OTHER_METHODS:
            self.refuse_ignored("loss", reason=f"objective {self.kind!r} is a loss of its own")
        return self

    @model_validator(mode="after")
    def _kind_reads_its_settings(self) -> ObjectiveConfig:
        for name, readers in READ_BY.items():
            if self.kind not in readers:
                self.refuse_ignored(name, reason=f"objective {self.kind!r} does not read it")
        if self.truncation is not None:
            self.refuse_ignored("clip_high", reason="truncation takes the place of clipping")
        return self


class SourceConfig(Section):
    """One source of training data: its share of every batch and its objectives."""

    share: Fraction
    """Share of every batch; the shares of all sources add up to 1 (paper: 0.5 online, 0.5 offline)."""
    objectives: Annotated[tuple[ObjectiveConfig, ...], Field(min_length=1)] = (ObjectiveConfig(),)
    """Objectives of its sequences; the loss is their weighted sum. `replay` uses those of `online` unless it names its
    own."""


class PPOConfig(Section):
    """PPO with generalised advantages from a value model (3.1.4), read when `train.algorithm` is `ppo`.

    `train.ratio_clip` clips its ratio and `train.beta` weighs its KL penalty. The paper names no values.
    """

    epochs: Annotated[int, Field(ge=1, le=1000)] = 1
    """Passes over a batch."""
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
    """Distance, in reward units, that a value may move within a batch before its loss is clipped."""
    value_learning_rate: PositiveFraction | None = None
    """Learning rate of the value model; None: the policy's."""
    value_start: Literal["mean_return", "zero"] = "mean_return"
    """Initial prediction of the value model: the mean return of Q0's samples, or 0. From 0 it must first fall to the
    mean; meanwhile long failures are punished less."""
