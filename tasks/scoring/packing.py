"""A batch's sequences laid out as few forward passes: every beginning once, and no step spent on padding.

Legend: L tokens of the row, N response tokens, M tokens that predict one or more of them, B sequences. `shared` rows
hold every beginning of the pack once (`tasks/scoring/prefix_tree.py`), `packed` rows every sequence whole; attention is
kept within a sequence by the tree that travels with the row (`tasks/scoring/attention.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

import torch
from torch import Tensor

from tasks.scoring.example import Example
from tasks.scoring.prefix_tree import Row, common_lengths, separate_row, shared_row
from tasks.scoring.tree import Tree

Layout = Literal["shared", "packed", "padded"]


@dataclass(frozen=True, slots=True)
class Pack:
    """Input of one forward pass over `examples`. `ids` and `position_ids` have shape (1, L), padded (B, L)."""

    examples: tuple[Example, ...]
    ids: Tensor
    position_ids: Tensor
    tree: Tree | None
    """Which tokens of the row attend to which; None when padded."""
    attention_mask: Tensor | None
    """(B, L), 1 on tokens; None unless padded."""
    predictors_M: Tensor
    """Index, in the flattened row(s), of every token that stands before a response token: its hidden state predicts."""
    predictor_N: Tensor
    """For each response token, sequence after sequence, the index into `predictors_M` of the token before it."""
    targets_N: Tensor
    """The response tokens, sequence after sequence."""

    def to(self, device: torch.device) -> Pack:
        """The same on `device`."""
        mask = self.attention_mask
        return Pack(
            self.examples,
            self.ids.to(device),
            self.position_ids.to(device),
            None if self.tree is None else self.tree.to(device),
            None if mask is None else mask.to(device),
            self.predictors_M.to(device),
            self.predictor_N.to(device),
            self.targets_N.to(device),
        )


def plan(examples: Sequence[Example], layout: Layout, *, most_tokens: int, multiple: int = 1) -> list[list[int]]:
    """Indices of the examples in groups that are a pack each, of at most `most_tokens` tokens, largest group first.

    Tokens are those a pack has to compute: in the shared layout, a beginning counts once. Among the divisions of the
    examples in order of their tokens (of their lengths, where nothing is shared) it is the one with the fewest tokens
    in all, then the fewest groups, then the most even. A sequence longer than `most_tokens` gets a group of its own.
    The number of groups is a multiple of `multiple` when there are enough sequences for it: the largest groups are cut.
    """
    sequences = [example.input_ids for example in examples]
    if layout == "shared":
        order = sorted(range(len(sequences)), key=lambda i: (sequences[i], i))
        common = common_lengths([sequences[i] for i in order])
    else:
        order = sorted(range(len(sequences)), key=lambda i: (-len(sequences[i]), i))
        common = [0] * len(order)
    lengths = [len(sequences[i]) for i in order]
    new = [0, *accumulate(length - kept for length, kept in zip(lengths, common, strict=True))]

    def tokens(first: int, end: int) -> int:
        return lengths[first] + new[end] - new[first + 1]

    groups = _cheapest(len(order), tokens, most_tokens)
    while len(groups) % multiple and any(end - first > 1 for first, end in groups):
        largest = max((g for g in groups if g[1] - g[0] > 1), key=lambda g: (tokens(*g), g))
        groups.remove(largest)
        groups += _halves(*largest, tokens)
    return [[order[i] for i in range(*group)] for group in sorted(groups, key=lambda g: (-tokens(*g), g))]


def _cheapest(count: int, tokens: Callable[[int, int], int], most_tokens: int) -> list[tuple[int, int]]:
    """The best division of 0..count into ranges of at most `most_tokens`: dynamic programming over where they end."""
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    begins = [0]
    for end in range(1, count + 1):
        choices: list[tuple[tuple[int, int, int], int]] = []
        for first in range(end - 1, -1, -1):
            cost = tokens(first, end)
            if cost > most_tokens and choices:
                break
            total, groups, squares = best[first]
            choices.append(((total + cost, groups + 1, squares + cost * cost), first))
        score, first = min(choices)
        best.append(score)
        begins.append(first)
    found: list[tuple[int, int]] = []
    while count:
        found.append((begins[count], count))
        count = begins[count]
    return found


def _halves(first: int, end: int, tokens: Callable[[int, int], int]) -> list[tuple[int, int]]:
    cut = min(range(first + 1, end), key=lambda i: (max(tokens(first, i), tokens(i, end)), i))
    return [(first, cut), (cut, end)]


def lay_out(examples: Sequence[Example], layout: Layout = "shared") -> Pack:
    """`examples` as the input of one forward pass."""
    examples = tuple(examples)
    sequences = [example.input_ids for example in examples]
    if layout == "padded":
        return _padded(examples, sequences)
    row = shared_row(sequences) if layout == "shared" else separate_row(sequences)
    return _in_one_row(examples, row)


def _in_one_row(examples: tuple[Example, ...], row: Row) -> Pack:
    predictors_M, predictor_N = _predictors(examples, row.places)
    return Pack(
        examples=examples,
        ids=torch.tensor([row.tokens]),
        position_ids=torch.tensor([row.positions]),
        tree=Tree.of(row),
        attention_mask=None,
        predictors_M=predictors_M,
        predictor_N=predictor_N,
        targets_N=_targets(examples),
    )


def _padded(examples: tuple[Example, ...], sequences: Sequence[tuple[int, ...]]) -> Pack:
    longest = max(map(len, sequences))
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    places = [range(row * longest, row * longest + len(sequence)) for row, sequence in enumerate(sequences)]
    predictors_M, predictor_N = _predictors(examples, places)
    return Pack(
        examples=examples,
        ids=ids,
        position_ids=torch.arange(longest).expand_as(ids),
        tree=None,
        attention_mask=mask,
        predictors_M=predictors_M,
        predictor_N=predictor_N,
        targets_N=_targets(examples),
    )


def _predictors(examples: Sequence[Example], places: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Where hidden states predict response tokens, each place once; and which of them each response token needs."""
    needed = [place[len(e.prompt_ids) - 1 :] for e, place in zip(examples, places, strict=True)]
    return torch.tensor(list(chain.from_iterable(needed)), dtype=torch.long).unique(return_inverse=True)


def _targets(examples: Sequence[Example]) -> Tensor:
    return torch.tensor(list(chain.from_iterable(example.response_ids for example in examples)))
