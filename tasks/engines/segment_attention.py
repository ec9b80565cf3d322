"""Attention over one segment of what a token sees, and the exact sum of several segments.

Legend: N batch, J key-value heads, M queries that share a key-value head, P keys, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

NEVER = float("-inf")
_fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def attend_segment(
    query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention (N, J, M, D) of `query` over the keys (N, J, P, D), and the logarithms of its denominators (N, J, M).

    `bias` is added to the scores; each query must see at least one key.
    """
    if query.device.type == "cpu":
        return _fused(query, key, value, 0.0, False, attn_mask=bias, scale=scale)
    return plain_segment(query, key, value, scale, bias)


def plain_segment(
    query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same in plain matrix products, for devices without the fused kernel."""
    score = (query @ key.transpose(-1, -2)).float() * scale
    if bias is not None:
        score = score + bias
    total = score.logsumexp(dim=-1)
    return (score - total[..., None]).exp().to(value.dtype) @ value, total


def merged(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Attention over all segments together, from the attention and log-denominator over each of them."""
    if len(parts) == 1:
        return parts[0][0]
    share = torch.stack([total for _, total in parts]).softmax(dim=0)[..., None].to(parts[0][0].dtype)
    out = parts[0][0] * share[0]
    for (part, _), weight in zip(parts[1:], share[1:], strict=True):
        out.addcmul_(part, weight)
    return out


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Ordinary causal attention over whole sequences, (B, H, L, D); keys and values may have fewer heads."""
    ratio = query.shape[1] // key.shape[1]
    if ratio > 1:
        key, value = key.repeat_interleave(ratio, dim=1), value.repeat_interleave(ratio, dim=1)
    return scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1, scale=scale)


def bias_of(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `visible`, minus infinity elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, NEVER)
