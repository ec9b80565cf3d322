"""Which training problems the rollout workers draw."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tasks.config.base import PositiveFraction, PositiveInt, Section

PromptRule = Literal["uniform", "learnability", "thompson"]


class CurriculumConfig(Section):
    """Beliefs for `train.prompts` other than `uniform` (docs/guides/training.md#selection-of-problems).

    A beta distribution per problem holds the policy's chance of success. It counts Q0 and this run's rollouts; old
    evidence counts less.
    """

    floor: PositiveFraction = 0.1
    """Share of the prompts that stays uniform, so that every problem is tried again."""
    half_life: PositiveInt = 20
    """Optimizer steps after which evidence counts half."""
    prior: Annotated[int, Field(ge=1, le=1_000_000)] = 8
    """Rollouts that Q0's counts weigh as much as at the start."""
