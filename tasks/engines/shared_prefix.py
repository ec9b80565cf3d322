"""Attention of a decoding batch: what rows share is stored once and attended to once for all of them.

A row sees three segments: the beginning that all prompts of the call share, the rest of its prompt, which it has in
common with the other samples of the prompt, and its own response. Attention over each is computed for all rows at once,
and the three are added by their denominators.

The function `attend` is registered with transformers as the attention implementation "spo_shared_prefix". Without a
`decoding` argument it is ordinary causal attention; with one that object stores and attends.
Legend: B rows (samples being decoded), G groups (distinct prompts), M most rows of a group, H query heads,
J key-value heads, R = H / J, P longest rest of a prompt, S longest response so far, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

from tasks.engines.prefix_store import LayerTensors
from tasks.engines.segment_attention import attend_segment, bias_of, causal_attention, merged

IMPLEMENTATION = "spo_shared_prefix"
_FIRST_ROOM = 32
"""Response tokens there is room for at first."""
_KNOWN_ARGUMENTS = {"dropout", "scaling", "decoding", "position_ids", "is_causal", "use_cache", "cache_position"}


class Attending(Protocol):
    """What a forward pass with the argument `decoding` asks for attention."""

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention output (B, H, L, D) of layer `index`; stores `key` and `value` on the way."""
        ...


class Layer:
    """Keys and values of one layer: `trunk` of all rows, `group` of each prompt, `own` of each row."""

    def __init__(self, like: Tensor, *, groups: int, longest: int, rows: int, room: int) -> None:
        def zeros(count: int, length: int) -> Tensor:
            # Zeros, since padding takes part with weight 0 and 0 times whatever lay in memory may be NaN.
            return like.new_zeros(count, like.shape[0], length, like.shape[2])

        self.trunk_key, self.trunk_value = zeros(1, 0), zeros(1, 0)
        self.group_key, self.group_value = zeros(groups, longest), zeros(groups, longest)
        self.own_key, self.own_value = zeros(rows, room), zeros(rows, room)

    def widen(self, room: int) -> None:
        """Make room for longer responses."""
        for name in ("own_key", "own_value"):
            old: Tensor = getattr(self, name)
            new = old.new_zeros(old.shape[0], old.shape[1], room, old.shape[3])
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    @property
    def nbytes(self) -> int:
        """Memory of this layer's keys and values."""
        stored = (self.trunk_key, self.trunk_value, self.group_key, self.group_value, self.own_key, self.own_value)
        return sum(tensor.nbytes for tensor in stored)


class SharedPrefixCache:
    """Keys and values of a decoding batch: at most `rows` rows of at most `suffix` tokens, of `groups` prompts.

    Room for responses is doubled as they get longer, since most end early.
    Every group and row carries its length, by which padding is hidden.
    """

    def __init__(self, *, groups: int, longest: int, rows: int, suffix: int, device: torch.device) -> None:
        """`longest`: most tokens of a prompt after the trunk."""
        self._longest, self._room = suffix, min(suffix, _FIRST_ROOM)
        self._sizes = {"groups": groups, "longest": longest, "rows": rows}
        self._layers: list[Layer] = []
        self._width = 0
        self._device = device
        self._group_length_G = torch.zeros(groups, dtype=torch.long, device=device)
        self._positions = torch.arange(max(longest, suffix), device=device)

    @property
    def nbytes(self) -> int:
        """Memory of all keys and values."""
        return sum(layer.nbytes for layer in self._layers)

    def set_trunk(self, keys: LayerTensors, values: LayerTensors) -> None:
        """What all prompts begin with, by layer (J, L, D)."""
        self._make_layers(keys)
        for layer, key, value in zip(self._layers, keys, values, strict=True):
            layer.trunk_key, layer.trunk_value = key[None], value[None]

    def set_group(self, group: int, keys: LayerTensors, values: LayerTensors) -> None:
        """How the prompt of `group` goes on after the trunk, by layer (J, L, D)."""
        self._make_layers(keys)
        length = keys[0].shape[1]
        self._group_length_G[group] = length
        for layer, key, value in zip(self._layers, keys, values, strict=True):
            layer.group_key[group, :, :length] = key
            layer.group_value[group, :, :length] = value

    def start_step(self, group_B: Tensor, length_B: Tensor, groups: int) -> None:
        """The next forward pass appends one token per row; `length_B` are the response lengths before it."""
        self._length_B = length_B
        self._rows_B = torch.arange(len(group_B), device=self._device)
        self._width = int(length_B.max()) + 1
        if self._width > self._room:
            self._room = min(self._longest, max(2 * self._room, self._width))
            for layer in self._layers:
                layer.widen(self._room)
        dtype = self._layers[0].own_key.dtype
        self._own_bias = bias_of(self._positions[: self._width] <= length_B[:, None], dtype)[:, None, None]
        self._longest_group = int(self._group_length_G[:groups].max())
        visible_GP = self._positions[: self._longest_group] < self._group_length_G[:groups, None]
        self._group_bias = None if bool(visible_GP.all()) else bias_of(visible_GP, dtype)[:, None, None]
        self._groups = groups
        self._arrange(group_B, groups)

    def move_rows(self, sources: Tensor, targets: Tensor) -> None:
        """Copy the responses of rows `sources` over those of `targets`."""
        for layer in self._layers:
            for stored in (layer.own_key, layer.own_value):
                stored[targets, :, : self._width] = stored[sources, :, : self._width]

    def move_group(self, source: int, target: int) -> None:
        """Copy the prompt of group `source` over that of `target`."""
        self._group_length_G[target] = self._group_length_G[source]
        for layer in self._layers:
            layer.group_key[target] = layer.group_key[source]
            layer.group_value[target] = layer.group_value[source]

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention output (B, H, 1, D) of layer `index`; stores `key` and `value` on the way."""
        layer = self._layers[index]
        layer.own_key[self._rows_B, :, self._length_B] = key[:, :, 0]
        layer.own_value[self._rows_B, :, self._length_B] = value[:, :, 0]
        rows, heads, _, size = query.shape
        pairs = key.shape[1]
        asked = query.reshape(rows, pairs, heads // pairs, size)
        keys, values = (stored[:rows, :, : self._width] for stored in (layer.own_key, layer.own_value))
        parts = [attend_segment(asked, keys, values, scale, self._own_bias), self._over_groups(layer, asked, scale)]
        if layer.trunk_key.shape[2]:
            parts.append(self._over_trunk(layer, asked, scale))
        return merged(parts).reshape(rows, heads, 1, size)

    def _make_layers(self, like: Sequence[Tensor]) -> None:
        if not self._layers:
            self._layers = [Layer(tensor, **self._sizes, room=self._room) for tensor in like]

    def _arrange(self, group_B: Tensor, groups: int) -> None:
        """Where each row stands in the (G, M) table of rows by group, and the reverse."""
        rows = len(group_B)
        counts = torch.bincount(group_B, minlength=groups)
        self._most = int(counts.max())
        order = torch.argsort(group_B, stable=True)
        first = counts.cumsum(0) - counts
        slot = torch.empty_like(group_B)
        slot[order] = self._rows_B - first[group_B[order]]
        self._place_B = group_B * self._most + slot
        self._table = torch.zeros(groups * self._most, dtype=torch.long, device=self._device)
        self._table[self._place_B] = self._rows_B
        self._in_order = len(self._table) == rows and bool((self._table == self._rows_B).all())

    def _over_groups(self, layer: Layer, asked: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Each row's attention over the rest of its prompt."""
        _, pairs, ratio, size = asked.shape
        groups, most, length = self._groups, self._most, self._longest_group
        table = asked if self._in_order else asked[self._table]
        grouped = table.view(groups, most, pairs, ratio, size).transpose(1, 2).reshape(groups, pairs, -1, size)
        out, total = attend_segment(
            grouped,
            layer.group_key[:groups, :, :length],
            layer.group_value[:groups, :, :length],
            scale,
            self._group_bias,
        )
        out = out.reshape(groups, pairs, most, ratio, size).transpose(1, 2).reshape(-1, pairs, ratio, size)
        total = total.reshape(groups, pairs, most, ratio).transpose(1, 2).reshape(-1, pairs, ratio)
        return (out, total) if self._in_order else (out[self._place_B], total[self._place_B])

    def _over_trunk(self, layer: Layer, asked: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Every row's attention over what all prompts begin with."""
        rows, pairs, ratio, size = asked.shape
        together = asked.transpose(0, 1).reshape(1, pairs, rows * ratio, size)
        out, total = attend_segment(together, layer.trunk_key, layer.trunk_value, scale)
        out = out.reshape(pairs, rows, ratio, size).transpose(0, 1)
        return out, total.reshape(pairs, rows, ratio).transpose(0, 1)


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **arguments: Any
) -> tuple[Tensor, None]:
    """The attention function transformers calls: (B, H, L, D) in, (B, L, H, D) out."""
    unknown = sorted(name for name in arguments.keys() - _KNOWN_ARGUMENTS if arguments[name] is not None)
    if unknown or attention_mask is not None:
        raise NotImplementedError(f"attention with {', '.join(unknown) or 'a mask'}")
    scale = arguments.get("scaling") or query.shape[-1] ** -0.5
    decoding: Attending | None = arguments.get("decoding")
    if decoding is None:
        out = causal_attention(query, key, value, scale)
    else:
        out = decoding.attend(int(module.layer_idx), query, key, value, scale)  # pyright: ignore[reportArgumentType]
    return out.transpose(1, 2), None


def register() -> None:
    """Make `spo_shared_prefix` known to transformers; harmless when repeated."""
    AttentionInterface.register(IMPLEMENTATION, attend)
