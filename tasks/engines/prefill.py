"""Computing prompts: each beginning that prompts share is computed once, several of them in one forward pass.

A token's keys and values are the same bits whether its beginning was stored before or is computed now, alone or
beside others: its attention always runs over its whole beginning at once, in blocks of the same
sizes, and a forward pass has a multiple of `TOKENS` tokens, since the libraries below round what is left over
differently (tests/tasks/engines/test_prefill.py says where that was seen to hold).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from tasks.engines.prefix_store import LayerTensors, PrefixStore, Tokens, common_length
from tasks.engines.segment_attention import attend_segment, bias_of

TOKENS = 16
"""A forward pass has a multiple of so many tokens; the rest is padding. Fewer cost as much and round differently."""
MOST_TOKENS = 512
"""Tokens of one forward pass."""
WORTH_SHARING = 16
"""Tokens that prompts must have in common for a pass of their own."""
_QUERIES = 32
_FEW_KEYS, _KEYS = 64, 512
_FEW = 128
"""Attention runs over multiples of so many queries and keys, for the same reason: of up to `_FEW` keys every number is
summed in the same order, of more only the whole blocks in which the fused kernel takes them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens `start` and later of `ids`, to be computed after those before them."""

    ids: Tokens
    start: int

    def __len__(self) -> int:
        return len(self.ids) - self.start


def prefill(model: Any, store: PrefixStore, prompts: Sequence[Tokens]) -> Tensor:
    """Next-token logits (len(prompts), V) after each of some distinct prompts, whose keys and values are stored."""
    whole = set(prompts)
    logits: dict[Tokens, Tensor] = {}
    for wave in waves(prompts):
        pieces = [piece for ids in wave for piece in _missing(store, ids, last=ids in whole)]
        for group in packs(pieces):
            found = _forward(model, store, group)
            logits.update({piece.ids: row for piece, row in zip(group, found, strict=True)})
    return torch.stack([logits[ids] for ids in prompts])


def waves(prompts: Sequence[Tokens]) -> list[list[Tokens]]:
    """Beginnings to be computed one wave after another: what several prompts share comes before its continuations."""
    found: list[list[Tokens]] = []
    groups = [(sorted(set(prompts)), 0)]
    while groups:
        wave: list[Tokens] = []
        following: list[tuple[list[Tokens], int]] = []
        for alike, depth in groups:
            for run in _runs(alike, depth + WORTH_SHARING):
                shared = len(run[0]) if len(run) == 1 else common_length(run[0], run[-1])
                wave.append(run[0][:shared])
                rest = [ids for ids in run if len(ids) > shared]
                if rest:
                    following.append((rest, shared))
        found.append(wave)
        groups = following
    return found


def _runs(ordered: Sequence[Tokens], shared: int) -> list[list[Tokens]]:
    """Neighbours with at least `shared` first tokens in common."""
    runs = [[ordered[0]]]
    for ids in ordered[1:]:
        if common_length(runs[-1][-1], ids) >= shared:
            runs[-1].append(ids)
        else:
            runs.append([ids])
    return runs


def _missing(store: PrefixStore, ids: Tokens, *, last: bool) -> Iterator[Piece]:
    """What is to be computed of `ids`, in order; of a whole prompt at least the last token."""
    start = store.length(ids[:-1] if last else ids)
    while start < len(ids):
        end = min(len(ids), start + MOST_TOKENS)
        yield Piece(ids[:end], start)
        start = end


def packs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Pieces that fit into one forward pass; a piece never stands beside its own beginning."""
    pack: list[Piece] = []
    for piece in pieces:
        follows = pack and piece.start == len(pack[-1].ids) and piece.ids[: piece.start] == pack[-1].ids
        if pack and (follows or sum(map(len, pack)) + len(piece) > MOST_TOKENS):
            yield pack
            pack = []
        pack.append(piece)
    if pack:
        yield pack


def _forward(model: Any, store: PrefixStore, pieces: Sequence[Piece]) -> Tensor:
    """Compute and store the pieces; next-token logits (len(pieces), V) after each."""
    packed = PackedPieces(store, pieces, model.device)
    count = len(packed.token_ids)
    ids = torch.tensor([packed.token_ids], device=model.device)
    positions = torch.tensor([packed.positions], device=model.device)
    ends = torch.tensor([part.stop - 1 for part in packed.parts], device=model.device)
    kept = torch.cat((ends, ends.new_full((_padded(len(ends), TOKENS) - len(ends),), count - 1)))
    out = model(ids, position_ids=positions, use_cache=False, decoding=packed, logits_to_keep=kept)
    packed.store()
    return out.logits[0, : len(pieces)]


class PackedPieces:
    """One forward pass over several pieces side by side, each of which sees its own beginning only."""

    def __init__(self, store: PrefixStore, pieces: Sequence[Piece], device: torch.device) -> None:
        self._store, self._pieces, self._device = store, pieces, device
        self._before = [store.read(piece.ids[: piece.start]) for piece in pieces]
        self._keys: LayerTensors = []
        self._values: LayerTensors = []
        self._biases: list[Tensor] = []
        self.parts: list[slice] = []
        """Where each piece lies in the pass."""
        self.token_ids: list[int] = []
        self.positions: list[int] = []
        for piece in pieces:
            self.parts.append(slice(len(self.token_ids), len(self.token_ids) + len(piece)))
            self.token_ids += piece.ids[piece.start :]
            self.positions += range(piece.start, len(piece.ids))
        padding = _padded(len(self.token_ids), TOKENS) - len(self.token_ids)
        self.token_ids += [0] * padding
        self.positions += [0] * padding

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attention output (1, H, L, D) of layer `index`; keeps `key` and `value` on the way."""
        heads, pairs = query.shape[1], key.shape[1]
        if not self._biases:
            self._biases = [self._bias(piece, heads // pairs, query.dtype) for piece in self._pieces]
        self._keys.append(key[0])
        self._values.append(value[0])
        out = torch.zeros_like(query)
        for number, part in enumerate(self.parts):
            bias = self._biases[number]
            asked = query[:, :, part].reshape(1, pairs, -1, query.shape[3])
            rows = asked.shape[2]
            asked = pad(asked, (0, 0, 0, bias.shape[2] - rows))
            keys, values = (
                self._whole(before[index] if before else None, new[0, :, part], bias.shape[-1])
                for before, new in zip(self._before[number], (key, value), strict=True)
            )
            found, _ = attend_segment(asked, keys, values, scale, bias)
            out[:, :, part] = found[:, :, :rows].reshape(1, heads, -1, query.shape[3])
        return out

    def store(self) -> None:
        """Put every piece's keys and values into the store."""
        for piece, part in zip(self._pieces, self.parts, strict=True):
            keys, values = ([tensor[:, part] for tensor in tensors] for tensors in (self._keys, self._values))
            self._store.add(piece.ids, piece.start, keys, values)

    def _bias(self, piece: Piece, ratio: int, dtype: torch.dtype) -> Tensor:
        """Hides later tokens and the padding, (1, 1, R * L and padding, P)."""
        length = len(piece.ids)
        columns = torch.arange(_padded(length, _FEW_KEYS if length <= _FEW else _KEYS), device=self._device)
        visible = columns <= torch.arange(piece.start, length, device=self._device)[:, None]
        rows = ratio * len(piece)
        return pad(bias_of(visible, dtype).repeat(ratio, 1), (0, 0, 0, _padded(rows, _QUERIES) - rows))[None, None]

    def _whole(self, before: Tensor | None, new: Tensor, length: int) -> Tensor:
        """Keys or values of a piece and of all that comes before it, (1, J, P, D), padded with zeros."""
        known = [] if before is None else [before]
        padding = length - new.shape[1] - sum(tensor.shape[1] for tensor in known)
        return torch.cat((*known, new, new.new_zeros(new.shape[0], padding, new.shape[2])), dim=1)[None]


def _padded(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple
