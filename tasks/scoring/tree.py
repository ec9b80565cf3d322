"""Which tokens of a row attend to which, in the form that attention kernels want it.

Token q attends to token k when k <= q < reach(k). A kernel is called once per block: a run of keys, and the queries
from the first of these keys to the last token that attends to any of them. A block of one segment needs no mask, since
causal attention of more queries than keys is just that. Short segments are put together in one block with a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.scoring.prefix_tree import Row, Segment

CALL = 2048
"""What a call of the kernel costs, in products of one query with one key."""
QUERY = 16
"""What each query of a call costs beside its products: reading it, and adding its part to the other calls'."""


@dataclass(frozen=True, slots=True)
class Block:
    """One call of the attention kernel: keys start..stop, queries start..reach."""

    start: int
    stop: int
    reach: int
    mask: Tensor | None
    """True where a query attends to a key, shape (queries, keys); None for causal attention."""


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The attention of a row of L tokens."""

    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    reach_L: Tensor
    """The tokens that attend to token k end before reach_L[k]."""
    longest: int
    """Tokens of the longest sequence."""
    block_mask: Any = None
    """FlexAttention's form of it, on a GPU only."""

    @classmethod
    def of(cls, row: Row) -> Tree:
        """The tree of a row, on the CPU."""
        parts = [torch.full((s.stop - s.start,), s.reach) for s in row.segments]
        reach_L = torch.cat(parts)
        return cls(row.segments, _blocks(row.segments, reach_L), reach_L, max(row.positions) + 1)

    @property
    def nested(self) -> bool:
        """Whether any sequences share a beginning."""
        return any(segment.reach > segment.stop for segment in self.segments)

    def to(self, device: torch.device) -> Tree:
        """The same on `device`."""
        reach_L = self.reach_L.to(device)
        mask = block_mask(reach_L) if device.type == "cuda" and self.nested else None
        return Tree(self.segments, self.blocks, reach_L, self.longest, mask)


def block_mask(reach_L: Tensor) -> Any:
    """The tree as FlexAttention's block mask."""
    from torch.nn.attention.flex_attention import create_block_mask

    length = len(reach_L)

    def attends(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        return (key <= query) & (query < reach_L[key])

    return create_block_mask(attends, None, None, length, length, device=str(reach_L.device))


def _blocks(segments: Sequence[Segment], reach_L: Tensor) -> tuple[Block, ...]:
    """The calls: neighbours are put together where one call with a mask is cheaper than two."""
    found: list[Segment] = []
    for segment in segments:
        if found:
            last = found[-1]
            both = Segment(last.start, segment.stop, max(last.reach, segment.reach))
            if _cost(both) < _cost(last) + _cost(segment):
                found[-1] = both
                continue
        found.append(segment)
    plain = set(segments)
    return tuple(Block(s.start, s.stop, s.reach, None if s in plain else _mask(s, reach_L)) for s in found)


def _cost(segment: Segment) -> int:
    return CALL + (segment.reach - segment.start) * (QUERY + segment.stop - segment.start)


def _mask(block: Segment, reach_L: Tensor) -> Tensor:
    query = torch.arange(block.start, block.reach)[:, None]
    key = torch.arange(block.start, block.stop)
    return (key <= query) & (query < reach_L[block.start : block.stop])
