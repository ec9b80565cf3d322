"""What the algorithms do differently: which module is trained, and what a batch does to it.

Everything else of the trainer (data, reference, checkpoints, publication, metrics) is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from tasks.config import TrainConfig
from tasks.objectives import spo
from tasks.scoring.example import Example, evaluated
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
from tasks.train.trainer.groups import with_group_values
from tasks.train.trainer.spo_step import SequenceRecord, Share, StepResult, accumulate_spo, shares

Stored = Mapping[str, Sequence[float]]
"""Known reference log-probabilities by trajectory."""


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
        stored: Stored,
        step: int,
    ) -> Update:
        """Learn from the batch of `step`, which only the first process holds, with what is stored of log pi_0.

        Collective. Raises NonFinite.
        """
        ...


class SoftPolicyOptimization:
    """SPO: one optimizer update of the weighted objectives per batch (3.1.2, 3.1.3); so are the other methods.

    What an objective wants to know of a response's group is worked out for the whole batch before it is divided: it
    does not depend on packs and processes.
    """

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
        stored: Stored,
        step: int,  # noqa: ARG002
    ) -> Update:
        """One forward and backward pass over the batch, then the optimizer's step.

        Where log-ratios are compared, a forward pass over it comes before.
        """
        batch, computed = self._with_groups(engine, reference, batch, stored)
        parts = shares(batch, {**stored, **computed}, self.config, engine.world) if engine.rank == 0 else None
        result = accumulate_spo(engine, reference, engine.scatter(parts), self.config)
        figures = {"learning_rate": engine.learning_rate, "grad_norm": engine.step()}
        update = merged(engine.gather(result), figures)
        return replace(update, computed=computed | update.computed)

    def _with_groups(
        self, engine: DeepSpeedEngine, reference: Reference, batch: Sequence[Example], stored: Stored
    ) -> tuple[Sequence[Example], dict[str, list[float]]]:
        """The batch with what groups say, and the reference log-probabilities computed on the way. Collective."""
        objectives = [o for source in self.config.learnt_from.values() for o in source.objectives]
        ratios, computed = None, dict[str, list[float]]()
        if any(objective.compares_log_ratios for objective in objectives):
            parts = shares(batch, stored, self.config, engine.world) if engine.rank == 0 else None
            found = engine.gather(log_ratios(engine, reference, engine.scatter(parts), self.config))
            ratios = {identity: ratio for part, _ in found for identity, ratio in part.items()}
            computed = {identity: values for _, part in found for identity, values in part.items()}
        return (with_group_values(batch, self.config, ratios) if engine.rank == 0 else batch), computed


@torch.no_grad()
def log_ratios(
    engine: DeepSpeedEngine, reference: Reference, share: Share, config: TrainConfig
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """log pi_theta/pi_0 of every response of the share, nats, and what of log pi_0 was not stored. Collective."""
    ratios, computed = dict[str, float](), dict[str, list[float]]()
    for examples in share.packs:
        pack = lay_out(examples, config.packing).to(engine.device)
        ref_logp_N, fresh = reference.logprobs(pack, share.stored)
        data = evaluated(examples, engine.forward(pack)[0], ref_logp_N)
        ratio_B = spo.advantage(data.logp_BT, data.ref_logp_BT, data.mask_BT).sum(dim=1)
        ratios |= {example.trajectory_id: ratio for example, ratio in zip(examples, ratio_B.tolist(), strict=True)}
        computed |= fresh
    return ratios, computed


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
