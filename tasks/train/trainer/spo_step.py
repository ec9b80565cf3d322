"""One optimizer step: forward and backward over the packs of this process, then the update.

Sum over tokens, mean over the sequences of the whole step: nothing depends on how they are laid out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tasks.config import SourceName, TrainConfig
from tasks.objectives import spo
from tasks.objectives.dispatch import Scales, weighted_loss
from tasks.scoring.example import Example, evaluated
from tasks.scoring.packing import Pack, lay_out, plan
from tasks.scoring.reference import Reference
from tasks.train.shared.errors import NonFinite
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine


@dataclass(frozen=True, slots=True)
class SequenceRecord:
    """What one sequence contributed; values in nats."""

    trajectory_id: str
    source: SourceName
    length: int
    stopped: bool
    y0: float
    y_T: float
    terminal: float
    loss: float
    entropy: float
    largest_advantage: float
    pull: float = 0.0
    """Sum over tokens of |d loss / d log pi_theta|: how hard the sequence pulls at the policy."""
    log_ratio: float | None = None
    """log of pi_theta over the weights that sampled it, nats a token; None where the sampler's are not known."""
    sampled_step: int | None = None
    """Optimizer steps of this run behind the weights that sampled it; None for what the run did not sample."""


@dataclass(frozen=True, slots=True)
class Share:
    """One process's part of a step."""

    packs: tuple[tuple[Example, ...], ...]
    weights: tuple[float, ...]
    """1 per pack; 0 for a repeated pack that only keeps the processes in step."""
    sequences: int
    """Sequences of the whole step: the loss's denominator."""
    stored: Mapping[str, Sequence[float]]
    """Known reference log-probabilities."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a process did in a step."""

    records: list[SequenceRecord]
    computed: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Reference log-probabilities that were not stored."""


def shares(
    batch: Sequence[Example], stored: Mapping[str, Sequence[float]], config: TrainConfig, world: int
) -> list[Share]:
    """The batch divided over `world` processes: as many packs for each, and as even as the lengths allow."""
    groups = plan(batch, config.packing, most_tokens=config.micro_batch_tokens, multiple=world)
    packs = [tuple(batch[index] for index in sorted(group)) for group in groups]
    weights = [1.0] * len(packs)
    while len(packs) % world:
        packs.append(packs[-1])
        weights.append(0.0)
    return [
        Share(
            packs=tuple(packs[rank::world]),
            weights=tuple(weights[rank::world]),
            sequences=len(batch),
            stored=_known(packs[rank::world], stored),
        )
        for rank in range(world)
    ]


def _known(packs: Sequence[tuple[Example, ...]], stored: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    ids = [example.trajectory_id for pack in packs for example in pack]
    return {identity: stored[identity] for identity in ids if identity in stored}


def accumulate_spo(engine: DeepSpeedEngine, reference: Reference, share: Share, config: TrainConfig) -> StepResult:
    """Forward and backward over the share; gradients are added up, nothing is updated. Collective. Raises NonFinite."""
    result, error = StepResult([]), None
    for examples, weight in zip(share.packs, share.weights, strict=True):
        pack = lay_out(examples, config.packing).to(engine.device)
        ref_logp_N, computed = reference.logprobs(pack, share.stored)
        logp_N, entropy_N = engine.forward(pack)
        loss_B, records = spo_pack_loss(pack, logp_N, ref_logp_N, entropy_N, config)
        error = error or not_finite((r.trajectory_id, value) for r in records for value in (r.loss, r.y_T))
        engine.backward(weight * loss_B.sum() / share.sequences)
        if weight:
            result.records.extend(records)
            result.computed.update(computed)
    engine.raise_together(error)  # not before: every process must make its passes
    return result


def spo_pack_loss(
    pack: Pack, logp_N: Tensor, ref_logp_N: Tensor, entropy_N: Tensor, config: TrainConfig
) -> tuple[Tensor, list[SequenceRecord]]:
    """Loss of every sequence of the pack under its source's objectives (shape B), and the sequences' records."""
    lengths = [len(example.response_ids) for example in pack.examples]
    pieces = list(zip(logp_N.split(lengths), ref_logp_N.split(lengths), entropy_N.split(lengths), strict=True))
    scales = Scales(config.beta, config.clip_epsilon, config.sigmoid_scale, config.ratio_clip)
    losses: list[Tensor] = []
    records: list[SequenceRecord] = []
    sources: list[SourceName] = list(dict.fromkeys(example.source for example in pack.examples))
    for source in sources:
        rows = [row for row, example in enumerate(pack.examples) if example.source == source]
        examples = [pack.examples[row] for row in rows]
        data = evaluated(examples, torch.cat([pieces[r][0] for r in rows]), torch.cat([pieces[r][1] for r in rows]))
        loss_B = weighted_loss(config.sources[source].objectives, data, scales)
        losses.append(loss_B)
        a_BT = data.advantage().detach()
        y_T_B = spo.terminal_value(data.y0_B, a_BT)
        entropy_n = torch.cat([pieces[r][2] for r in rows])
        figures = sequence_records(examples, loss_B, y_T_B, entropy_n, a_BT, pulls(loss_B, data.logp_BT))
        records += with_log_ratios(figures, examples, data.logp_BT.detach().sum(dim=1))
    return torch.cat(losses), records


def pulls(loss_B: Tensor, logp_BT: Tensor) -> Tensor:
    """How hard each sequence pulls at the log-probabilities of its tokens: sum of |d loss / d log pi|. Shape B.

    Goes back through the objectives alone, not through the model. 0 where no gradient is wanted.
    """
    if not loss_B.requires_grad:
        return torch.zeros_like(loss_B)
    return torch.autograd.grad(loss_B.sum(), logp_BT, retain_graph=True)[0].abs().sum(dim=1)


def sequence_records(
    examples: Sequence[Example],
    loss_B: Tensor,
    y_T_B: Tensor,
    entropy_N: Tensor,
    advantage_BT: Tensor,
    pull_B: Tensor | None = None,
) -> list[SequenceRecord]:
    """One record per example; `entropy_N` is that of their response tokens end to end."""
    entropies = entropy_N.split([len(example.response_ids) for example in examples])
    figures = zip(
        examples,
        loss_B.tolist(),
        y_T_B.tolist(),
        [entropy.mean().item() for entropy in entropies],
        advantage_BT.abs().amax(dim=1).tolist(),
        (torch.zeros_like(loss_B) if pull_B is None else pull_B).tolist(),
        strict=True,
    )
    return [_record(*figure) for figure in figures]


def with_log_ratios(
    records: Sequence[SequenceRecord], examples: Sequence[Example], logp_B: Tensor
) -> list[SequenceRecord]:
    """The records with how far the policy is from what sampled each; `logp_B` is log pi_theta of the responses."""
    return [
        record
        if example.sampled_logp is None
        else replace(record, log_ratio=(logp - example.sampled_logp) / len(example.response_ids))
        for record, example, logp in zip(records, examples, logp_B.tolist(), strict=True)
    ]


def not_finite(figures: Iterable[tuple[str, float]]) -> NonFinite | None:
    """The error that names the trajectories whose figure is NaN or infinite; None when there are none."""
    bad = [(identity, value) for identity, value in figures if not math.isfinite(value)]
    if not bad:
        return None
    ids = list(dict.fromkeys(identity for identity, _ in bad))
    listed = ", ".join(f"{identity} ({value})" for identity, value in bad[:8])
    return NonFinite.over(ids, f"{len(ids)} sequence(s) have a loss or value that is not finite: {listed}")


def _record(example: Example, loss: float, y_T: float, *figures: float) -> SequenceRecord:
    entropy, largest, pull = figures
    return SequenceRecord(
        trajectory_id=example.trajectory_id,
        source=example.source,
        length=len(example.response_ids),
        stopped=example.stopped,
        y0=example.y0,
        y_T=y_T,
        terminal=example.terminal,
        loss=loss,
        entropy=entropy,
        largest_advantage=largest,
        pull=pull,
        sampled_step=example.sampled_step,
    )
