"""What every section of the configuration is built from.

Errors
------
ConfigError
    UnknownRecipe, InvalidConfig
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PositiveInt = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class ConfigError(Exception):
    """Something is wrong with a recipe or an override; the message names the field."""


class UnknownRecipe(ConfigError):
    """No such recipe file."""


class InvalidConfig(ConfigError):
    """A field is unknown, of the wrong type, or impossible together with another."""


class Section(BaseModel):
    """A part of the configuration: immutable, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class BehaviourConfig(Section):
    """How responses are drawn: whose weights, which temperature, which nucleus."""

    weights: Literal["latest", "reference"] = "latest"
    """`latest`: the newest weights that training has published. `reference`: those of pi_0."""
    temperature: tuple[float, float] = (0.1, 0.8)
    """Drawn uniformly per response from [low, high]; equal bounds fix it. Low temperatures repeat the same few answers,
    high ones break programs (paper: 0.1 to 0.8 online, 0.4 in evaluation)."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Nucleus: tokens are drawn from the likeliest ones that together have this probability (paper: 0.95); 1 is the
    whole vocabulary."""

    @model_validator(mode="after")
    def _ordered(self) -> BehaviourConfig:
        low, high = self.temperature
        if not 0 <= low <= high:
            raise ValueError(f"temperature needs 0 <= low <= high, got {low}, {high}")
        return self
