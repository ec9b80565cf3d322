"""Attention within each sequence of a row, for unmodified transformers models.

Registered under `NAME` with transformers' attention interface. A row carries the tree of its sequences through the
model's keyword arguments; every token then attends to those before it in its own sequences, without a mask of the row's
length squared. On the CPU that is a few calls of flash attention (`tasks/scoring/tree_kernel.py`). On a GPU it is
FlexAttention with a block mask, or where no sequences share a beginning, variable-length flash attention.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from tasks.scoring.errors import UnsupportedModel
from tasks.scoring.tree import Tree
from tasks.scoring.tree_kernel import tree_attention

NAME = "spo_tree"
LEAST_HEAD_SIZE = 16
"""What FlexAttention's kernels for GPUs can multiply at least."""


def register() -> None:
    """Make `NAME` known to transformers; harmless when repeated. Without a mask function: it needs no mask."""
    AttentionInterface.register(NAME, row_attention)


def row_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree: Tree | None = None,
    scaling: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence. Shapes (1, heads, L, head size) in, (1, L, heads, head size) out.

    Raises UnsupportedModel for attention that is more than that.
    """
    if tree is None:
        raise UnsupportedModel(
            f"{type(module).__name__} does not hand on what the packed pass says of its sequences; "
            f'set train.packing = "padded"'
        )
    if attention_mask is not None:
        raise UnsupportedModel(
            f'{type(module).__name__} brings its own mask; set train.packing = "padded"', code="OwnMask"
        )
    window = rest.get("sliding_window")
    if window is not None and window < tree.longest:
        raise UnsupportedModel(
            'this model attends through a sliding window; set train.packing = "padded"', code="SlidingWindow"
        )
    if not query.is_cuda:
        return tree_attention(query, key, value, tree.blocks, scaling), None
    if tree.nested:
        return flex(query, key, value, tree.block_mask, scaling, compiled_flex()), None
    lengths = tuple(segment.stop - segment.start for segment in tree.segments)
    if query.dtype in (torch.bfloat16, torch.float16):
        return _flash(query, key, value, lengths, scaling), None
    return _per_sequence(query, key, value, lengths, scaling), None


def flex(q: Tensor, k: Tensor, v: Tensor, block_mask: Any, scale: float | None, kernel: Any) -> Tensor:
    """Attention under a block mask by `kernel`, which is FlexAttention, compiled or not."""
    size = q.shape[-1]
    if size < LEAST_HEAD_SIZE:  # zeros change no product
        scale = scale or size**-0.5
        q, k, v = (functional.pad(x, (0, LEAST_HEAD_SIZE - size)) for x in (q, k, v))
    output: Tensor = kernel(q, k, v, block_mask=block_mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])
    return output[..., :size].transpose(1, 2)


@cache
def compiled_flex() -> Any:
    """FlexAttention for rows of any length: compiled at its first call, and not again."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


def _per_sequence(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], scale: float | None) -> Tensor:
    parts = zip(q.split(lengths, 2), k.split(lengths, 2), v.split(lengths, 2), strict=True)
    grouped = q.shape[1] != k.shape[1]
    outputs = [
        functional.scaled_dot_product_attention(a, b, c, is_causal=True, scale=scale, enable_gqa=grouped)
        for a, b, c in parts
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2)


def _flash(q: Tensor, k: Tensor, v: Tensor, lengths: tuple[int, ...], scale: float | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    bounds = torch.tensor((0, *lengths), device=q.device).cumsum(0).to(torch.int32)
    longest = max(lengths)
    flat_q, flat_k, flat_v = (part[0].transpose(0, 1).contiguous() for part in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    output: Any = varlen_attn(
        flat_q, flat_k, flat_v, bounds, bounds, longest, longest, scale=scale, window_size=(-1, 0), enable_gqa=grouped
    )
    return output[None]
