"""How training changes weights, and what stops it: AdamW, low-rank adapters, guards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from tasks.config.base import Count, Fraction, PositiveFraction, PositiveInt, Section

Decay = Annotated[float, Field(ge=0, lt=1)]
Ratio = Annotated[float, Field(gt=1, le=1_000_000)]


class OptimizerConfig(Section):
    """AdamW with warm-up, then a constant rate (5), which may decay at the end."""

    learning_rate: PositiveFraction = 6e-8
    """Rate after warm-up (paper: 6e-8, for 8 B parameters). Small models need a larger one; one that is too large shows
    as a rising gradient norm and pass@k that falls."""
    warmup_steps: Count = 200
    """Steps over which the rate rises linearly from its first fraction (paper: 200)."""
    decay_steps: Annotated[int, Field(ge=0, le=1_000_000_000, exclude_if=lambda given: given == 0)] = 0
    """Last steps of training (`train.steps`) over which the rate falls linearly to zero; 0: it stays constant, as in
    the paper."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """AdamW's decay rates of the gradient's mean and of its square; the paper gives none."""
    weight_decay: Fraction = 0.0
    """AdamW's weight decay; the paper gives none."""
    max_grad_norm: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """Gradients are scaled down to this norm; the paper gives none."""


class AdapterConfig(Section):
    """Low-rank adapters (LoRA, Hu et al. 2021; not in the paper)."""

    rank: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Rank of an adapter: how many directions of a layer's weights can change."""
    alpha: PositiveInt = 32
    """Scale: an adapter's product is multiplied by alpha / rank."""
    modules: Annotated[tuple[str, ...], Field(min_length=1)] = ("all-linear",)
    """Names of the linear layers that get one; `all-linear`: all but the output head, which can have none."""

    @model_validator(mode="after")
    def _all_or_some(self) -> AdapterConfig:
        if "all-linear" in self.modules and len(self.modules) > 1:
            raise ValueError("modules: 'all-linear' stands alone; leave it out to name layers")
        return self


class GuardConfig(Section):
    """What stops a run or warns before it is spoilt; none of it is in the paper."""

    canary_interval: PositiveInt = 50
    """Optimizer steps between two checks that stored reference log-probabilities still come out the same."""
    max_logprob_drift: Annotated[float, Field(gt=0, le=100)] | None = None
    """Largest mean difference per token (nats) between a sequence's stored and fresh reference log-probabilities; four
    times that for all its tokens but a twentieth. More stops the run, for its targets would be wrong. None: 0.00025 in
    float32, 0.1 in bfloat16, where other kernels alone make 0.024 (docs/training.md#noise)."""
    warn_grad_norm_ratio: Ratio = 10.0
    """Warn when the gradient norm of five steps exceeds this many times what it was (medians)."""
    warn_pull_above: Fraction = 0.75
    """Warn when, over five steps, more of the pull at the policy than this comes from failures with y_T above 0."""
    warn_clipped_fraction: Fraction = 0.5
    """Warn when, over five steps, this share of the failures has y_T above 0: they all push with the largest slope."""
    warn_stop_fraction: Fraction = 0.5
    """Warn when, over five steps, fewer online responses than this end with the end token."""
    warn_log_ratio: Annotated[float, Field(gt=0, le=100)] = 0.2
    """Warn when, over five steps, the policy is further than this, in nats a token, from the weights that sampled what
    `replay` draws: beyond it nothing is known to go well (docs/decisions/0014-trajectories-used-again.md)."""
    warn_length_ratio: Ratio = 1.5
    """Warn when online responses get this many times longer or shorter within fifty steps."""
    warn_value_error: Annotated[float, Field(gt=0, le=100)] = 0.2
    """Warn when, over five batches, PPO's value model explains nothing of the returns and is further than this, in
    reward units, from them on average."""
