"""How training changes weights, and what stops it: AdamW, low-rank adapters, guards."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from tasks.config.base import Count, Fraction, PositiveFraction, PositiveInt, Section

Decay = Annotated[float, Field(ge=0, lt=1)]
Ratio = Annotated[float, Field(gt=1, le=1_000_000)]


class OptimizerConfig(Section):
    """AdamW with warm-up, then a constant rate (5), with optional decay at the end."""

    learning_rate: PositiveFraction = 6e-8
    """Rate after warm-up (paper: 6e-8 for 8 B parameters). Small models need a larger one; too large shows as a rising
    gradient norm."""
    warmup_steps: Count = 200
    """Steps of the linear rise at the start (paper: 200)."""
    decay_steps: Annotated[int, Field(ge=0, le=1_000_000_000, exclude_if=lambda given: given == 0)] = 0
    """Steps of the linear fall to zero at the end; 0: constant, as in the paper."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """AdamW's decay rates of mean and square; the paper names none."""
    weight_decay: Fraction = 0.0
    """AdamW's weight decay; the paper names none."""
    max_grad_norm: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    """Gradients are scaled down to this norm; the paper names none."""


class AdapterConfig(Section):
    """Low-rank adapters (LoRA, Hu et al. 2021; not in the paper)."""

    rank: Annotated[int, Field(ge=1, le=65_536)] = 16
    """Rank of an adapter."""
    alpha: PositiveInt = 32
    """Scale: an adapter's product is multiplied by alpha / rank."""
    modules: Annotated[tuple[str, ...], Field(min_length=1)] = ("all-linear",)
    """Linear layers with an adapter; `all-linear`: all but the output head."""

    @model_validator(mode="after")
    def _all_or_some(self) -> AdapterConfig:
        if "all-linear" in self.modules and len(self.modules) > 1:
            raise ValueError("modules: 'all-linear' stands alone; leave it out to name layers")
        return self


class GuardConfig(Section):
    """Checks that stop a run or warn; none of them is in the paper."""

    canary_interval: PositiveInt = 50
    """Optimizer steps between two checks of stored reference log-probabilities."""
    max_logprob_drift: Annotated[float, Field(gt=0, le=100)] | None = None
    """Largest mean difference per token (nats) between stored and fresh reference log-probabilities; more stops the
    run. None: 0.00025 in float32, 0.1 in bfloat16 (docs/guides/training.md#noise)."""
    warn_grad_norm_ratio: Ratio = 10.0
    """Warn when the gradient norm exceeds this multiple of its earlier median (five steps)."""
    warn_pull_above: Fraction = 0.75
    """Warn when failures with y_T above 0 cause more than this share of the pull (five steps)."""
    warn_clipped_fraction: Fraction = 0.5
    """Warn when this share of the failures has y_T above 0 (five steps)."""
    warn_stop_fraction: Fraction = 0.5
    """Warn when fewer online responses than this end with the end token (five steps)."""
    warn_log_ratio: Annotated[float, Field(gt=0, le=100)] = 0.2
    """Warn when the policy is further than this (nats a token) from the sampler of the replayed trajectories (five
    steps)."""
    warn_length_ratio: Ratio = 1.5
    """Warn when online responses grow or shrink by this factor within fifty steps."""
    warn_value_error: Annotated[float, Field(gt=0, le=100)] = 0.2
    """Warn when PPO's value model explains nothing and its mean error exceeds this (reward units, five batches)."""
