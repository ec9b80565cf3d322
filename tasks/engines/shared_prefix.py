"""Attention for many samples of few prompts: each prompt's keys and values are stored once, not once per sample.

The function `attend` is registered with transformers as the attention implementation "spo_shared_prefix". Without a
`decoding` argument it is ordinary causal attention; with one it fills or reads a `SharedPrefixCache`.
Legend: B rows (samples being decoded), G groups (distinct prompts), M most rows of a group, H query heads,
J key-value heads, R = H / J, P longest prompt, S longest response so far, D head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

IMPLEMENTATION = "spo_shared_prefix"
_NEVER = float("-inf")
_FIRST_ROOM = 32
"""Response tokens there is room for at first."""
_KNOWN_ARGUMENTS = {"dropout", "scaling", "decoding", "position_ids", "is_causal", "use_cache", "cache_position"}


class Layer:
    """Keys and values of one layer: `prefix` per group, `suffix` per row."""

    def __init__(self, key: Tensor, value: Tensor, *, groups: int, prefix: int, rows: int, suffix: int) -> None:
        def room(count: int, length: int, like: Tensor) -> Tensor:
            # Zeros, since padding takes part with weight 0 and 0 times whatever lay in memory may be NaN.
            return torch.zeros(count, like.shape[1], length, like.shape[3], dtype=like.dtype, device=like.device)

        self.prefix_key, self.prefix_value = room(groups, prefix, key), room(groups, prefix, value)
        self.suffix_key, self.suffix_value = room(rows, suffix, key), room(rows, suffix, value)

    def widen(self, suffix: int) -> None:
        """Make room for longer responses."""
        for name in ("suffix_key", "suffix_value"):
            old: Tensor = getattr(self, name)
            new = old.new_zeros(old.shape[0], old.shape[1], suffix, old.shape[3])
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    @property
    def nbytes(self) -> int:
        """Memory of this layer's keys and values."""
        stored = (self.prefix_key, self.prefix_value, self.suffix_key, self.suffix_value)
        return sum(tensor.nbytes for tensor in stored)


class SharedPrefixCache:
    """Keys and values of a decoding batch: at most `rows` rows of at most `suffix` tokens, of `groups` prompts.

    Room for responses is doubled as they get longer, since most end early.
    Every group and row carries its length, by which padding is hidden.
    """

    def __init__(self, *, groups: int, prefix: int, rows: int, suffix: int, device: torch.device) -> None:
        self._longest, self._room = suffix, min(suffix, _FIRST_ROOM)
        self._sizes = {"groups": groups, "prefix": prefix, "rows": rows}
        self._layers: dict[int, Layer] = {}
        self._prefilling: int | None = None
        self._width = 0
        self._device = device
        self._prefix_length_G = torch.zeros(groups, dtype=torch.long, device=device)
        self._positions = torch.arange(max(prefix, suffix), device=device)

    @property
    def nbytes(self) -> int:
        """Memory of all keys and values."""
        return sum(layer.nbytes for layer in self._layers.values())

    def start_prefill(self, group: int, length: int) -> None:
        """The next forward pass is the prompt of `group`, of `length` tokens."""
        self._prefilling = group
        self._prefix_length_G[group] = length

    def start_step(self, group_B: Tensor, length_B: Tensor, groups: int) -> None:
        """The next forward pass appends one token per row; `length_B` are the suffix lengths before it."""
        rows = len(group_B)
        self._prefilling = None
        self._length_B = length_B
        self._rows_B = self._positions_of(rows)
        self._width = int(length_B.max()) + 1
        if self._width > self._room:
            self._room = min(self._longest, max(2 * self._room, self._width))
            for layer in self._layers.values():
                layer.widen(self._room)
        visible_BS = self._positions[: self._width] <= length_B[:, None]
        self._suffix_bias = _bias(visible_BS)[:, None, None, :]
        prefix = int(self._prefix_length_G[:groups].max())
        visible_GP = self._positions[:prefix] < self._prefix_length_G[:groups, None]
        self._prefix = prefix
        self._prefix_bias = None if bool(visible_GP.all()) else _bias(visible_GP)[:, None, None, :]
        self._groups = groups
        self._arrange(group_B, groups)

    def move_rows(self, sources: Tensor, targets: Tensor) -> None:
        """Copy the suffixes of rows `sources` over those of `targets`."""
        for layer in self._layers.values():
            for stored in (layer.suffix_key, layer.suffix_value):
                stored[targets, :, : self._width] = stored[sources, :, : self._width]

    def move_group(self, source: int, target: int) -> None:
        """Copy the prompt of group `source` over that of `target`."""
        self._prefix_length_G[target] = self._prefix_length_G[source]
        for layer in self._layers.values():
            layer.prefix_key[target] = layer.prefix_key[source]
            layer.prefix_value[target] = layer.prefix_value[source]

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention output (B, H, L, D) of layer `index`; stores `key` and `value` on the way."""
        if self._prefilling is not None:
            layer = self._layers.get(index)
            if layer is None:
                layer = self._layers[index] = Layer(key, value, **self._sizes, suffix=self._room)
            length = key.shape[2]
            layer.prefix_key[self._prefilling, :, :length] = key[0]
            layer.prefix_value[self._prefilling, :, :length] = value[0]
            return causal_attention(query, key, value, scale)
        layer = self._layers[index]
        layer.suffix_key[self._rows_B, :, self._length_B] = key[:, :, 0]
        layer.suffix_value[self._rows_B, :, self._length_B] = value[:, :, 0]
        return self._decode(layer, query, scale)

    def _positions_of(self, rows: int) -> Tensor:
        return torch.arange(rows, device=self._device)

    def _arrange(self, group_B: Tensor, groups: int) -> None:
        """Where each row stands in the (G, M) table of rows by group, and the reverse."""
        rows = len(group_B)
        counts = torch.bincount(group_B, minlength=groups)
        most = int(counts.max())
        order = torch.argsort(group_B, stable=True)
        first = counts.cumsum(0) - counts
        slot = torch.empty_like(group_B)
        slot[order] = torch.arange(rows, device=self._device) - first[group_B[order]]
        self._place_B = group_B * most + slot
        table = torch.zeros(groups * most, dtype=torch.long, device=self._device)
        table[self._place_B] = self._rows_B
        self._table, self._most = table, most
        self._one_group = groups == 1

    def _decode(self, layer: Layer, query: Tensor, scale: float) -> Tensor:
        rows, heads, _, size = query.shape
        pairs = layer.suffix_key.shape[1]
        query = query.reshape(rows, pairs, heads // pairs, size) * scale
        prefix_score = self._from_groups(
            self._to_groups(query) @ layer.prefix_key[: self._groups, :, : self._prefix].transpose(-1, -2), heads
        )
        suffix_score = query @ layer.suffix_key[:rows, :, : self._width].transpose(-1, -2) + self._suffix_bias
        weight = torch.cat((prefix_score, suffix_score), dim=-1).softmax(dim=-1, dtype=torch.float32).to(query.dtype)
        suffix = weight[..., self._prefix :] @ layer.suffix_value[:rows, :, : self._width]
        grouped = self._to_groups(weight[..., : self._prefix]) @ layer.prefix_value[: self._groups, :, : self._prefix]
        out = suffix + self._from_groups(grouped, heads, masked=False)
        return out.reshape(rows, heads, 1, -1)

    def _to_groups(self, rows_BJRX: Tensor) -> Tensor:
        """(B, J, R, X) -> (G, J, M * R, X)."""
        rows, pairs, ratio, width = rows_BJRX.shape
        if self._one_group:
            return rows_BJRX.transpose(0, 1).reshape(1, pairs, rows * ratio, width)
        table = rows_BJRX[self._table].view(self._groups, self._most, pairs, ratio, width)
        return table.transpose(1, 2).reshape(self._groups, pairs, self._most * ratio, width)

    def _from_groups(self, grouped: Tensor, heads: int, *, masked: bool = True) -> Tensor:
        """(G, J, M * R, X) -> (B, J, R, X), with the prompts' padding hidden when `masked`."""
        groups, pairs, _, width = grouped.shape
        if masked and self._prefix_bias is not None:
            grouped = grouped + self._prefix_bias
        table = grouped.view(groups, pairs, self._most, heads // pairs, width).transpose(1, 2)
        flat = table.reshape(groups * self._most, pairs, heads // pairs, width)
        return flat if self._one_group else flat[self._place_B]


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """Ordinary causal attention over whole sequences, (B, H, L, D); keys and values may have fewer heads."""
    ratio = query.shape[1] // key.shape[1]
    if ratio > 1:
        key, value = key.repeat_interleave(ratio, dim=1), value.repeat_interleave(ratio, dim=1)
    return scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1, scale=scale)


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **arguments: Any
) -> tuple[Tensor, None]:
    """The attention function transformers calls: (B, H, L, D) in, (B, L, H, D) out."""
    unknown = sorted(name for name in arguments.keys() - _KNOWN_ARGUMENTS if arguments[name] is not None)
    if unknown or attention_mask is not None:
        raise NotImplementedError(f"attention with {', '.join(unknown) or 'a mask'}")
    scale = arguments.get("scaling") or query.shape[-1] ** -0.5
    cache: SharedPrefixCache | None = arguments.get("decoding")
    if cache is None:
        out = causal_attention(query, key, value, scale)
    else:
        out = cache.attend(int(module.layer_idx), query, key, value, scale)  # pyright: ignore[reportArgumentType]
    return out.transpose(1, 2), None


def register() -> None:
    """Make `spo_shared_prefix` known to transformers; harmless when repeated."""
    AttentionInterface.register(IMPLEMENTATION, attend)


def _bias(visible: Tensor) -> Tensor:
    return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, _NEVER)
