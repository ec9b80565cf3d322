"""What the algorithms do differently: which module is trained, and what a batch does to it.

Everything else of the trainer (data, reference, checkpoints, publication, metrics) is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from tasks.config import TrainConfig
from tasks.scoring.example import Example
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
from tasks.train.trainer.spo_step import SequenceRecord, StepResult, accumulate_spo, shares


@dataclass(frozen=True, slots=True)
class Update:
    """What a batch did; complete on the first process, empty on the others."""

    records: list[SequenceRecord] = field(default_factory=list[SequenceRecord])
    computed: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Reference log-probabilities that were not stored."""
    figures: dict[str, float] = field(default_factory=dict[str, float])
    """`learning_rate`, `grad_norm`, and what only this algorithm measures."""


class Algorithm(Protocol):
    """A way to learn from batches."""

    def module(self, policy: Policy, reference: Path, dtype: str) -> nn.Module:
        """What the engine trains; `policy` is, or is a part of, it. `reference` is pi_0's checkpoint folder."""
        ...

    def parameter_groups(self, module: nn.Module) -> list[dict[str, Any]]:
        """The optimizer's groups; the first one's rate is the policy's."""
        ...

    def update(
        self,
        engine: DeepSpeedEngine,
        reference: Reference,
        batch: Sequence[Example],
        stored: Mapping[str, Sequence[float]],
        step: int,
    ) -> Update:
        """Learn from the batch of `step`, which only the first process holds, with what is stored of log pi_0.

        Collective. Raises NonFinite.
        """
        ...


class SoftPolicyOptimization:
    """SPO: one optimizer update of the weighted objectives per batch (3.1.2, 3.1.3)."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def module(self, policy: Policy, reference: Path, dtype: str) -> nn.Module:  # noqa: ARG002
        """The policy itself: its log-ratio to the reference is the value function."""
        return policy

    def parameter_groups(self, module: nn.Module) -> list[dict[str, Any]]:
        """One group."""
        return [group(module.parameters())]

    def update(
        self,
        engine: DeepSpeedEngine,
        reference: Reference,
        batch: Sequence[Example],
        stored: Mapping[str, Sequence[float]],
        step: int,  # noqa: ARG002
    ) -> Update:
        """One forward and backward pass over the batch, then the optimizer's step."""
        parts = shares(batch, stored, self.config, engine.world) if engine.rank == 0 else None
        result = accumulate_spo(engine, reference, engine.scatter(parts), self.config)
        figures = {"learning_rate": engine.learning_rate, "grad_norm": engine.step()}
        return merged(engine.gather(result), figures)


def group(parameters: Iterable[nn.Parameter], **settings: Any) -> dict[str, Any]:
    """The trained ones of `parameters` as an optimizer group."""
    return {"params": [parameter for parameter in parameters if parameter.requires_grad], **settings}


def merged(results: Sequence[StepResult], figures: Mapping[str, float]) -> Update:
    """What all processes did, as one; empty when there are no results."""
    if not results:
        return Update()
    return Update(
        records=[record for result in results for record in result.records],
        computed={identity: values for result in results for identity, values in result.computed.items()},
        figures=dict(figures),
    )
