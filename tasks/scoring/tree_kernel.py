"""Attention over a tree of beginnings on the CPU: flash attention once per block, the parts joined by log-sum-exp.

Legend: L tokens, H query heads in G groups of K key heads (H = K G), D head size.

A softmax over the keys of several blocks is the mean of the blocks' own, weighted by the sums of their exponentials.
Backwards it is simpler still: given the whole softmax's output and log-sum-exp, the kernel's backward pass of a block
returns exactly that block's part of the gradient, and the parts add up. So only the row's queries, keys, values, output
and log-sum-exp are kept, each token once, however many sequences continue it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tasks.scoring.tree import Block

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def tree_attention(q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[Block], scale: float | None) -> Tensor:
    """Attention of a row. Shapes (1, H, L, D), (1, K, L, D), (1, K, L, D) in, (1, L, H, D) out."""
    output: Any = _TreeAttention.apply(q, k, v, blocks, scale)
    return output


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: Sequence[Block], scale: float | None) -> Tensor:
        _, heads, length, size = q.shape
        groups = heads // k.shape[1]
        wide = torch.promote_types(q.dtype, torch.float32)
        output = q.new_empty((1, length, heads, size), dtype=wide)
        lse = q.new_empty((1, length, heads), dtype=wide)
        q_GKLD, out_GKLD = _grouped(q, groups), _grouped(output.transpose(1, 2), groups)
        lse_GKL = _grouped(lse.transpose(1, 2), groups)
        done = 0
        for block in blocks:
            rows, keys = slice(block.start, block.reach), slice(block.start, block.stop)
            mask, causal = _mask(block, q.dtype)
            part, part_lse = _forward(
                q_GKLD[:, :, rows],
                _each(k, keys, groups),
                _each(v, keys, groups),
                0.0,
                causal,
                attn_mask=mask,
                scale=scale,
            )
            known = max(0, min(done, block.reach) - block.start)
            old, new = slice(block.start, block.start + known), slice(block.start + known, block.reach)
            if known:
                _join(out_GKLD[:, :, old], lse_GKL[:, :, old], part[:, :, :known].to(wide), part_lse[:, :, :known])
            out_GKLD[:, :, new], lse_GKL[:, :, new] = part[:, :, known:], part_lse[:, :, known:]
            done = max(done, block.reach)
        output = output.to(q.dtype)
        ctx.save_for_backward(q, k, v, output, lse)
        ctx.blocks, ctx.scale, ctx.groups = blocks, scale, groups
        return output

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None]:
        *rest, lse = ctx.saved_tensors
        d_output, q, k, v, output = (x.to(lse.dtype) for x in (gradients[0], *rest))
        groups: int = ctx.groups
        d_q = torch.zeros_like(output)
        d_k, d_v = (x.new_empty((1, x.shape[2], x.shape[1], x.shape[3])).transpose(1, 2) for x in (k, v))
        d_q_GKLD = _grouped(d_q.transpose(1, 2), groups)
        whole = [_grouped(x.transpose(1, 2), groups) for x in (d_output, output, lse)]
        q_GKLD = _grouped(q, groups)
        for block in ctx.blocks:
            rows, keys = slice(block.start, block.reach), slice(block.start, block.stop)
            given, out, part_lse = (x[:, :, rows] for x in whole)
            mask, causal = _mask(block, q.dtype)
            part_q, part_k, part_v = _backward(
                given,
                q_GKLD[:, :, rows],
                _each(k, keys, groups),
                _each(v, keys, groups),
                out,
                part_lse,
                0.0,
                causal,
                attn_mask=mask,
                scale=ctx.scale,
            )
            d_q_GKLD[:, :, rows] += part_q
            d_k[0, :, keys] = part_k.sum(dim=0)
            d_v[0, :, keys] = part_v.sum(dim=0)
        given_type = rest[0].dtype
        return d_q.to(given_type).transpose(1, 2), d_k.to(given_type), d_v.to(given_type), None, None


def _grouped(x_1HL: Tensor, groups: int) -> Tensor:
    """(1, H, L, ...) as (G, K, L, ...), a view."""
    return x_1HL[0].unflatten(0, (-1, groups)).transpose(0, 1)


def _each(x_1KLD: Tensor, keys: slice, groups: int) -> Tensor:
    """Some keys or values, once for each group of query heads, without a copy. Shape G K (keys) D."""
    return x_1KLD[:, :, keys].expand(groups, -1, -1, -1)


def _mask(block: Block, dtype: torch.dtype) -> tuple[Tensor | None, bool]:
    """What to add to the products, and whether attention is causal instead."""
    if block.mask is None:
        return None, True
    return torch.zeros(block.mask.shape, dtype=dtype).masked_fill_(~block.mask, -torch.inf), False


def _join(out_GKLD: Tensor, lse_GKL: Tensor, part_GKLD: Tensor, part_lse_GKL: Tensor) -> None:
    """Take the attention to further keys into that to the keys so far."""
    out_GKLD.lerp_(part_GKLD, torch.sigmoid(part_lse_GKL - lse_GKL)[..., None])
    lse_GKL.copy_(torch.logaddexp(lse_GKL, part_lse_GKL))
