"""Attention within each sequence of a packed row, for unmodified transformers models.

Registered under `NAME` with transformers' attention interface. A packed row carries its sequence lengths through the
model's keyword arguments; every sequence then attends causally to itself alone, without a mask of the row's length
squared. On a GPU this is PyTorch's variable-length flash attention, elsewhere one causal kernel call per sequence.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

from tasks.scoring.errors import UnsupportedModel

NAME = "spo_sequence_sdpa"


def register() -> None:
    """Make `NAME` known to transformers; harmless when repeated. Without a mask function: it needs no mask."""
    AttentionInterface.register(NAME, sequence_attention)


def sequence_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    sequence_lengths: tuple[int, ...],
    scaling: float | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Causal attention inside each sequence. Shapes (1, heads, L, head size) in, (1, L, heads, head size) out.

    Raises UnsupportedModel for attention that is more than that.
    """
    if attention_mask is not None:
        raise UnsupportedModel(f'{type(module).__name__} brings its own mask; set train.packing = "padded"')
    window = rest.get("sliding_window")
    if window is not None and window < max(sequence_lengths):
        raise UnsupportedModel('this model attends through a sliding window; set train.packing = "padded"')
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _flash(query, key, value, sequence_lengths, scaling), None
    return _per_sequence(query, key, value, sequence_lengths, scaling), None


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
