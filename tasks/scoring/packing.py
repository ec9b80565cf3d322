"""Sequences laid end to end in one row, so that no step is spent on padding.

Legend: L tokens of the row, N response tokens, B sequences. Position ids restart at every sequence; attention is kept
within a sequence by the sequence lengths that travel with the row (`tasks/scoring/attention.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from tasks.scoring.example import Example

Layout = Literal["packed", "padded"]


@dataclass(frozen=True, slots=True)
class Pack:
    """Input of one forward pass over `examples`. `ids` and `position_ids` have shape (1, L) packed, (B, L) padded."""

    examples: tuple[Example, ...]
    ids: Tensor
    position_ids: Tensor
    lengths: tuple[int, ...] | None
    """Sequence lengths of a packed row; None when padded."""
    attention_mask: Tensor | None
    """(B, L), 1 on tokens; None when packed."""
    predictors_N: Tensor
    """Index, in the flattened row(s), of the token before each response token: its hidden state predicts it."""
    targets_N: Tensor
    """The response tokens, sequence after sequence."""

    def to(self, device: torch.device) -> Pack:
        """The same on `device`."""
        mask = self.attention_mask
        return Pack(
            self.examples,
            self.ids.to(device),
            self.position_ids.to(device),
            self.lengths,
            None if mask is None else mask.to(device),
            self.predictors_N.to(device),
            self.targets_N.to(device),
        )


def plan(lengths: Sequence[int], *, most_tokens: int, multiple: int = 1) -> list[list[int]]:
    """Indices grouped so that each group has at most `most_tokens` tokens: longest first into the first that fits.

    A sequence longer than that gets a group of its own. The number of groups is a multiple of `multiple` when there
    are enough sequences for it: the largest groups are halved. Depends on the lengths alone.
    """
    groups: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        place = next((g for g, free in enumerate(room) if free >= lengths[index]), None)
        if place is None:
            groups.append([])
            room.append(most_tokens)
            place = len(groups) - 1
        groups[place].append(index)
        room[place] -= lengths[index]
    while len(groups) % multiple and any(len(group) > 1 for group in groups):
        largest = max((group for group in groups if len(group) > 1), key=lambda g: sum(lengths[i] for i in g))
        groups.append(largest[1::2])
        largest[:] = largest[0::2]
    return groups


def lay_out(examples: Sequence[Example], layout: Layout = "packed") -> Pack:
    """`examples` as the input of one forward pass."""
    return _packed(tuple(examples)) if layout == "packed" else _padded(tuple(examples))


def _packed(examples: tuple[Example, ...]) -> Pack:
    lengths = tuple(example.length for example in examples)
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    ids = list(chain.from_iterable((*example.prompt_ids, *example.response_ids) for example in examples))
    return Pack(
        examples=examples,
        ids=torch.tensor([ids]),
        position_ids=torch.cat([torch.arange(length) for length in lengths])[None, :],
        lengths=lengths,
        attention_mask=None,
        predictors_N=_predictors(examples, starts),
        targets_N=_targets(examples),
    )


def _padded(examples: tuple[Example, ...]) -> Pack:
    longest = max(example.length for example in examples)
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(examples):
        ids[row, : example.length] = torch.tensor((*example.prompt_ids, *example.response_ids))
        mask[row, : example.length] = 1
    return Pack(
        examples=examples,
        ids=ids,
        position_ids=torch.arange(longest).expand_as(ids),
        lengths=None,
        attention_mask=mask,
        predictors_N=_predictors(examples, [row * longest for row in range(len(examples))]),
        targets_N=_targets(examples),
    )


def _predictors(examples: Sequence[Example], starts: Sequence[int]) -> Tensor:
    spans: list[Tensor] = []
    for example, start in zip(examples, starts, strict=True):
        first = start + len(example.prompt_ids) - 1
        spans.append(torch.arange(first, first + len(example.response_ids)))
    return torch.cat(spans)


def _targets(examples: Sequence[Example]) -> Tensor:
    return torch.tensor(list(chain.from_iterable(example.response_ids for example in examples)))
