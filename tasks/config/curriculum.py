"""Which training problems the rollout workers draw."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tasks.config.base import PositiveFraction, PositiveInt, Section

PromptRule = Literal["uniform", "learnability", "thompson"]


class CurriculumConfig(Section):
    """How problems are drawn where `train.prompts` is not `uniform` (docs/training.md#which-problems-are-drawn).

    The paper draws them uniformly. What is believed of a problem is a beta distribution of the chance that the present
    policy solves it: Q0's counts, and this run's rollouts, both counting less the older they are.
    """

    floor: PositiveFraction = 0.1
    """Share of the prompts that is drawn uniformly all the same: what a problem gets however hopeless or solved it
    looks, so that it can surprise."""
    half_life: PositiveInt = 20
    """Optimizer steps after which a rollout, and Q0, count half: how fast the policy is expected to change."""
    prior: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """Rollouts that Q0's counts weigh as much as, at the start. They are counts of pi_0, which training leaves."""
