"""What every section of the configuration is built from.

Errors
------
ConfigError
    UnknownRecipe, InvalidConfig
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from tasks.errors import CodedError

MOST = 1_000_000_000
"""Bound of counts that have no other: what is larger is a slip of the keyboard."""

PositiveInt = Annotated[int, Field(ge=1, le=MOST)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Parallel = Annotated[int, Field(ge=1, le=4096)]
"""Processes, threads or requests at a time."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=10)]
Factor = Annotated[float, Field(gt=0, le=1000)]
"""A weight or a scale."""
Depth = Annotated[int | None, Field(ge=1, le=6, exclude_if=lambda depth: depth is None)]
"""Filters and maps of a composition. Not dumped while it is None: what was identified before it came stays the same."""


class ConfigError(CodedError):
    """A recipe or an override is wrong; the message names the field."""


class UnknownRecipe(ConfigError):
    """No such recipe file."""


class InvalidConfig(ConfigError):
    """A field is unknown, of the wrong type, or impossible together with another."""


def _of_numbers(annotation: Any) -> bool:
    """Whether a field of this type holds numbers, or true and false, and nothing else."""
    if get_origin(annotation) is Annotated:
        return _of_numbers(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return False
    inner = [one for one in get_args(annotation) if one not in (type(None), ...)]
    return all(map(_of_numbers, inner)) if inner else annotation in (bool, int, float)


class Section(BaseModel):
    """A part of the configuration: immutable; unknown fields, infinities and nan are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_written_so(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1, and pydantic "007" for 7, which Prefect's check of parameters refuses."""
        items: tuple[Any, ...] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        annotation = cls.model_fields[info.field_name or ""].annotation
        if annotation is not bool and any(isinstance(i, bool) for i in items):
            raise ValueError(f"true and false have no place here, got {value!r}")
        if any(isinstance(i, str) for i in items) and _of_numbers(annotation):
            wanted = "true or false" if annotation is bool else "a number"
            raise ValueError(f"{wanted} is needed, got the text {value!r}")
        return value

    def refuse_ignored(self, *names: str, reason: str) -> None:
        """Raise ValueError when one of the fields is set to something else than its default: it would be ignored."""
        fields = type(self).model_fields
        found = [name for name in names if getattr(self, name) != fields[name].get_default(call_default_factory=True)]
        if found:
            raise ValueError(f"{', '.join(found)} would be ignored: {reason}; leave it out, or override it with null")


class BehaviourConfig(Section):
    """Sampling settings: weights, temperature, nucleus."""

    weights: Literal["latest", "reference"] = "latest"
    """`latest`: the newest published weights. `reference`: those of pi_0."""
    temperature: tuple[Temperature, Temperature] = (0.1, 0.8)
    """Range [low, high]; each response draws its temperature uniformly from it. Equal bounds fix it (paper: 0.1 to 0.8
    online, 0.4 in evaluation)."""
    top_p: PositiveFraction = 0.95
    """Nucleus: sampling uses the likeliest tokens that together have this probability. 1 is the whole vocabulary
    (paper: 0.95)."""

    @property
    def exact(self) -> bool:
        """Whether responses are drawn from the policy itself: temperature 1, the whole vocabulary."""
        return self.temperature == (1.0, 1.0) and self.top_p == 1

    @model_validator(mode="after")
    def _ordered(self) -> BehaviourConfig:
        low, high = self.temperature
        if low > high:
            raise ValueError(f"temperature needs low <= high, got {low}, {high}")
        return self
