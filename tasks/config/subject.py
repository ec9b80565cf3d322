"""The section `subject`: what `spo eval` evaluates, where that is not a run's policy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tasks.config.base import Section
from tasks.config.offline import OtherModelConfig


class SubjectConfig(Section):
    """Subject of `spo eval`."""

    kind: Literal["checkpoint", "endpoint", "samples"]
    """`checkpoint`: the model of the section `reference`. `endpoint`: a model behind an OpenAI-compatible server.
    `samples`: programs in a file."""
    endpoint: OtherModelConfig | None = None
    """Model to sample, for `endpoint`; `evaluate.samples` replaces its `samples`."""
    path: Annotated[str, Field(min_length=1)] | None = None
    """File of samples, for `samples` (docs/guides/evaluate.md). Relative paths start at the folder of `spo eval`."""

    @model_validator(mode="after")
    def _one_of_them(self) -> SubjectConfig:
        given = {"endpoint": self.endpoint is not None, "samples": self.path is not None}
        wanted = {name: name == self.kind for name in given}
        if given != wanted:
            raise ValueError(f"kind {self.kind!r} takes `endpoint` for an endpoint, `path` for samples, else neither")
        if self.endpoint is not None and self.endpoint.endpoint is None:
            raise ValueError("endpoint.endpoint, the server's address, is missing")
        return self
