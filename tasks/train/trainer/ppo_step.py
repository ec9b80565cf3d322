"""PPO in the trainer (paper 3.1.4): evaluate the batch once, then update policy and value model in minibatches.

Legend: B sequences, T response tokens, N response tokens of all sequences end to end. Returns, values and advantages
are in reward units (nats times beta).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks.config import TrainConfig
from tasks.objectives import ppo, spo
from tasks.objectives.dispatch import Evaluated, MissingAnnotation
from tasks.scoring.example import Example, behaviour_rows, evaluated, response_mask, to_rows
from tasks.scoring.packing import Pack, lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.algorithm import Update, group, merged
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
from tasks.train.trainer.spo_step import SequenceRecord, Share, StepResult, not_finite, sequence_records, shares
from tasks.train.trainer.value_model import ActorCritic, load_value_model


@dataclass(frozen=True, slots=True)
class Targets:
    """What a trajectory's tokens are trained towards while its batch lasts; one number per response token."""

    advantages: tuple[float, ...]
    returns: tuple[float, ...]
    values: tuple[float, ...]
    """Of the value model before the batch's first update."""
    kl: float
    """Sum of log pi_theta - log pi_0 before the first update, nats."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """What one process evaluated before the first update."""

    records: list[SequenceRecord] = field(default_factory=list[SequenceRecord])
    computed: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    targets: dict[str, Targets] = field(default_factory=dict[str, Targets])


@dataclass(frozen=True, slots=True)
class SequenceLosses:
    """What one sequence contributed to one update."""

    trajectory_id: str
    policy_loss: float
    value_loss: float
    tokens: int
    clipped: int
    """Tokens whose ratio is outside the clipping range."""
    kl_behaviour: float
    """Estimate of the summed KL divergence of the behaviour policy from the trained one, nats: w - 1 - log w."""


class ProximalPolicyOptimization:
    """PPO: advantages from a value model, several clipped updates per batch."""

    def __init__(self, config: TrainConfig, seed: int, start: float = 0.0) -> None:
        """`start` is the return that the value model expects of every state at first, reward units."""
        self.config = config
        self.seed = seed
        self.start = start

    def module(self, policy: Policy, reference: Path, dtype: str) -> nn.Module:
        """Policy and value model together; both start from the reference's network."""
        return ActorCritic(policy, load_value_model(reference, self.config, dtype, self.start))

    def parameter_groups(self, module: nn.Module) -> list[dict[str, Any]]:
        """One group for the policy, one for the value model."""
        assert isinstance(module, ActorCritic)
        rate = self.config.ppo.value_learning_rate or self.config.optimizer.learning_rate
        return [group(module.policy.parameters()), group(module.value_model.parameters(), lr=rate)]

    def update(
        self,
        engine: DeepSpeedEngine,
        reference: Reference,
        batch: Sequence[Example],
        stored: Mapping[str, Sequence[float]],
        step: int,
    ) -> Update:
        """Advantages of the whole batch, then `epochs` passes of `minibatches` updates. Raises NonFinite."""
        parts = shares(batch, stored, self.config, engine.world) if engine.rank == 0 else None
        found = engine.gather(estimate(engine, reference, engine.scatter(parts), self.config))
        targets = self._targets(found)
        losses: list[list[SequenceLosses]] = []
        norms: list[float] = []
        rate = engine.learning_rate
        for minibatch in self._minibatches(engine, batch, step):
            parts = shares(minibatch, {}, self.config, engine.world) if engine.rank == 0 else None
            share, towards = engine.scatter(parts and [(part, known(part, targets)) for part in parts])
            losses.append(accumulate_ppo(engine, share, towards, self.config))
            norms.append(engine.step())
        everything = [one for update in zip(*engine.gather(losses), strict=True) for part in update for one in part]
        if engine.rank:
            return Update()
        figures = {"learning_rate": rate, "grad_norm": sum(norms) / len(norms), "updates": float(len(norms))}
        update = merged([StepResult(e.records, e.computed) for e in found], figures | summary(everything, found))
        return replace(update, records=with_losses(update.records, everything, self.config))

    def _targets(self, found: Sequence[Estimates]) -> dict[str, Targets]:
        targets = {identity: one for part in found for identity, one in part.targets.items()}
        return normalized(targets) if self.config.ppo.normalize_advantages and targets else targets

    def _minibatches(self, engine: DeepSpeedEngine, batch: Sequence[Example], step: int) -> Iterator[list[Example]]:
        """The batch in parts, pass after pass, in an order that seed, step and pass decide; empty but on the first."""
        settings = self.config.ppo
        for epoch in range(settings.epochs):
            start = f"{self.seed}/{step}/{epoch}/"
            shuffled = sorted(batch, key=lambda e: hashlib.blake2b((start + e.trajectory_id).encode()).digest())
            for part in range(settings.minibatches):
                yield shuffled[part :: settings.minibatches] if engine.rank == 0 else []


def known(share: Share, targets: Mapping[str, Targets]) -> dict[str, Targets]:
    """The targets of the share's trajectories."""
    return {e.trajectory_id: targets[e.trajectory_id] for pack in share.packs for e in pack}


@torch.no_grad()
def estimate(engine: DeepSpeedEngine, reference: Reference, share: Share, config: TrainConfig) -> Estimates:
    """Evaluate the share under policy, reference and value model; no gradients."""
    found = Estimates()
    for examples, weight in zip(share.packs, share.weights, strict=True):
        pack = lay_out(examples, config.packing).to(engine.device)
        ref_logp_N, computed = reference.logprobs(pack, share.stored)
        logp_N, entropy_N, value_N = engine.forward(pack)
        if not weight:
            continue
        data = evaluated(examples, logp_N, ref_logp_N)
        a_BT = data.advantage()
        y_T_B = spo.terminal_value(data.y0_B, a_BT)
        found.targets.update(_targets_of(examples, data, value_N, config))
        found.records.extend(sequence_records(examples, torch.zeros_like(y_T_B), y_T_B, entropy_N, a_BT))
        found.computed.update(computed)
    return found


def _targets_of(
    examples: Sequence[Example], data: Evaluated, value_N: Tensor, config: TrainConfig
) -> dict[str, Targets]:
    a_BT = data.advantage()
    lengths = [len(example.response_ids) for example in examples]
    value_BT = to_rows(value_N, lengths)
    advantage_BT, return_BT = advantages(a_BT, value_BT, data.terminal_B, data.mask_BT, config)
    found: dict[str, Targets] = {}
    for row, (example, length) in enumerate(zip(examples, lengths, strict=True)):
        columns = [tuple(x[row, :length].tolist()) for x in (advantage_BT, return_BT, value_BT)]
        found[example.trajectory_id] = Targets(*columns, kl=float(a_BT[row].sum()))
    return found


def advantages(
    logp_ratio_BT: Tensor, value_BT: Tensor, terminal_B: Tensor, mask_BT: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor]:
    """Generalised advantages and the returns that the value model is trained towards, reward units. Shape B T."""
    reward_BT = config.beta * ppo.kl_regularized_rewards(terminal_B, logp_ratio_BT, mask_BT)
    settings = config.ppo
    advantage_BT = ppo.generalized_advantage(
        reward_BT, value_BT, mask_BT, discount=settings.discount, trace=settings.trace
    )
    return advantage_BT, advantage_BT + value_BT.detach()


def normalized(targets: Mapping[str, Targets]) -> dict[str, Targets]:
    """The same with advantages of mean 0 and deviation 1 over all tokens; left at 0 when they are all equal."""
    flat = [a for one in targets.values() for a in one.advantages]
    mean = math.fsum(flat) / len(flat)
    deviation = math.sqrt(math.fsum((a - mean) ** 2 for a in flat) / len(flat))
    scale = 1 / deviation if deviation > 0 else 0.0
    return {
        identity: replace(one, advantages=tuple((a - mean) * scale for a in one.advantages))
        for identity, one in targets.items()
    }


def accumulate_ppo(
    engine: DeepSpeedEngine, share: Share, targets: Mapping[str, Targets], config: TrainConfig
) -> list[SequenceLosses]:
    """Forward and backward over the share of a minibatch; nothing is updated. Collective. Raises NonFinite."""
    found: list[SequenceLosses] = []
    error = None
    for examples, weight in zip(share.packs, share.weights, strict=True):
        pack = lay_out(examples, config.packing).to(engine.device)
        logp_N, _, value_N = engine.forward(pack)
        loss_B, losses = ppo_pack_loss(pack, logp_N, value_N, targets, config)
        error = error or not_finite((one.trajectory_id, one.policy_loss + one.value_loss) for one in losses)
        engine.backward(weight * loss_B.sum() / share.sequences)
        found += losses if weight else []
    engine.raise_together(error)
    return found


def ppo_pack_loss(
    pack: Pack, logp_N: Tensor, value_N: Tensor, targets: Mapping[str, Targets], config: TrainConfig
) -> tuple[Tensor, list[SequenceLosses]]:
    """Clipped policy loss plus weighted value loss of every sequence (shape B), and their parts.

    Raises MissingAnnotation when a response has no log-probabilities of the policy that sampled it.
    """
    lengths = [len(example.response_ids) for example in pack.examples]
    logp_BT, value_BT = to_rows(logp_N, lengths), to_rows(value_N, lengths)
    behaviour_BT = behaviour_rows(pack.examples, logp_BT)
    if behaviour_BT is None:
        raise MissingAnnotation("PPO needs the sampler's log-probabilities of every response; use an engine that gives")
    mask_BT = response_mask(lengths, logp_BT)
    towards = [targets[example.trajectory_id] for example in pack.examples]
    advantage_BT = _rows([one.advantages for one in towards], logp_BT)
    old_BT = _rows([one.values for one in towards], value_BT)
    return_BT = _rows([one.returns for one in towards], value_BT)
    policy_B = ppo.clipped_policy_loss(logp_BT, behaviour_BT, advantage_BT, mask_BT, clip=config.ratio_clip)
    value_B = ppo.value_loss(value_BT, old_BT, return_BT, mask_BT, clip=config.ppo.value_clip)
    log_ratio_BT = torch.where(mask_BT, logp_BT.detach() - behaviour_BT, 0.0)
    losses = _sequence_losses(pack.examples, policy_B, value_B, log_ratio_BT, config.ratio_clip)
    return policy_B + config.ppo.value_coefficient * value_B, losses


def _sequence_losses(
    examples: Sequence[Example], policy_B: Tensor, value_B: Tensor, log_ratio_BT: Tensor, clip: float
) -> list[SequenceLosses]:
    ratio_BT = log_ratio_BT.exp()
    columns = (
        [example.trajectory_id for example in examples],
        policy_B.tolist(),
        value_B.tolist(),
        [len(example.response_ids) for example in examples],
        ((ratio_BT - 1).abs() > clip).sum(dim=1).tolist(),
        (ratio_BT - 1 - log_ratio_BT).sum(dim=1).tolist(),
    )
    return [SequenceLosses(*row) for row in zip(*columns, strict=True)]


def _rows(values: Iterable[Sequence[float]], like: Tensor) -> Tensor:
    rows = [torch.tensor(row, dtype=like.dtype, device=like.device) for row in values]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def with_losses(
    records: Iterable[SequenceRecord], losses: Iterable[SequenceLosses], config: TrainConfig
) -> list[SequenceRecord]:
    """The records with each sequence's loss in the first pass over the batch."""
    first: dict[str, float] = {}
    for one in losses:
        first.setdefault(one.trajectory_id, one.policy_loss + config.ppo.value_coefficient * one.value_loss)
    return [replace(record, loss=first[record.trajectory_id]) for record in records]


def summary(losses: Sequence[SequenceLosses], found: Iterable[Estimates]) -> dict[str, float]:
    """PPO's figures of a batch: losses and clipping over all updates; values and KL to pi_0 before the first."""
    targets = [one for part in found for one in part.targets.values()]
    returns = [x for one in targets for x in one.returns]
    values = [x for one in targets for x in one.values]
    tokens = sum(one.tokens for one in losses)
    return {
        "policy_loss": math.fsum(one.policy_loss for one in losses) / len(losses),
        "value_loss": math.fsum(one.value_loss for one in losses) / len(losses),
        "explained_variance": explained_variance(values, returns),
        "value": math.fsum(values) / len(values),
        "return": math.fsum(returns) / len(returns),
        "kl": math.fsum(one.kl for one in targets) / len(targets),
        "kl_behaviour": math.fsum(one.kl_behaviour for one in losses) / len(losses),
        "clip_fraction": sum(one.clipped for one in losses) / tokens,
    }


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float:
    """1 - Var(returns - values) / Var(returns); 0 when the returns do not vary."""
    spread = _variance(returns)
    return 1 - _variance([r - v for r, v in zip(returns, values, strict=True)]) / spread if spread > 0 else 0.0


def _variance(numbers: Sequence[float]) -> float:
    mean = math.fsum(numbers) / len(numbers)
    return math.fsum((x - mean) ** 2 for x in numbers) / len(numbers)
