"""Whole groups: which responses are compared with one another, and what their group says of each.

A group is `train.group_size` responses to one prompt out of one rollout batch, so that all of them are by the same
weights. It is formed when the responses arrive, named by its first member, and stays together from there: in the
queue, in batches, in replay, and in what a resumed run finds recorded, where its members stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import torch

from tasks.config import ObjectiveConfig, TrainConfig
from tasks.objectives.dispatch import Scales, group_values
from tasks.scoring.example import Example

Member = TypeVar("Member")


def arrived(examples: Iterable[Example], batches: Mapping[str, str], size: int) -> list[Example]:
    """The whole groups among new responses, sorted by rollout batch (`batches`: its id by trajectory) and trajectory.

    A response whose group lost a member (the sandbox failed on it) is left out: it has nothing to be compared with.
    """
    if size == 1:
        return list(examples)

    def prompt(example: Example) -> tuple[str, str]:
        return batches[example.trajectory_id], example.problem_id

    ordered = sorted(examples, key=lambda example: (*prompt(example), example.trajectory_id))
    return [e for _, members in groupby(ordered, prompt) for group in _cut(list(members), size) for e in named(group)]


def kept_together(ids: Sequence[str], found: Mapping[str, Example], size: int) -> list[Example]:
    """The groups that stood side by side in `ids`, without those of which a member is not `found` any more."""
    if size == 1:
        return [found[identity] for identity in ids if identity in found]
    whole = (group for group in _cut(ids, size) if all(identity in found for identity in group))
    return [example for group in whole for example in named([found[identity] for identity in group])]


def named(group: Sequence[Example]) -> list[Example]:
    """The members of a group, each with the name of the first."""
    return [replace(example, group=group[0].trajectory_id) for example in group]


def with_group_values(
    batch: Sequence[Example], train: TrainConfig, log_ratios: Mapping[str, float] | None
) -> list[Example]:
    """The batch with what its groups say of each member, in order; single responses stay as they are.

    `log_ratios`: log pi_theta/pi_0 of each trajectory in nats, where an objective compares them.
    """
    groups: dict[tuple[str, str], dict[str, Example]] = {}
    for example in batch:
        if example.group is not None:
            groups.setdefault((example.source, example.group), {})[example.trajectory_id] = example
    scales = Scales(train.beta, train.clip_epsilon, train.sigmoid_scale, train.ratio_clip)
    values: dict[tuple[str, str], tuple[float, ...]] = {}
    for (source, _), members in groups.items():
        group = list(members.values())
        objectives = train.sources[group[0].source].objectives
        for example, row in zip(group, _values(group, objectives, log_ratios, scales), strict=True):
            values[source, example.trajectory_id] = row
    return [replace(e, group_values=values.get((e.source, e.trajectory_id), ())) for e in batch]


def _values(
    group: Sequence[Example],
    objectives: Sequence[ObjectiveConfig],
    log_ratios: Mapping[str, float] | None,
    scales: Scales,
) -> Iterator[tuple[float, ...]]:
    """A row per member, a column per objective; float64."""
    terminal_K = torch.tensor([example.terminal for example in group], dtype=torch.float64)
    ratio_K = None
    if log_ratios is not None:
        ratio_K = torch.tensor([log_ratios[example.trajectory_id] for example in group], dtype=torch.float64)
    columns = [group_values(objective, terminal_K, ratio_K, scales).tolist() for objective in objectives]
    return zip(*columns, strict=True)


def _cut(members: Sequence[Member], size: int) -> Iterator[Sequence[Member]]:
    """Consecutive parts of that size; what is left over is left out."""
    return (members[start : start + size] for start in range(0, len(members) - size + 1, size))
