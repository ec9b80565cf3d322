"""Entropy of the policy along responses that exist: a prompt, and what prompts share, is computed once for all of them.

Legend: n positions of a response, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.engines.prefill import PackedPieces, Piece, packs, prefill
from tasks.engines.prefix_store import PrefixStore
from tasks.engines.protocol import ScoredSequence

_PROMPTS = 16
"""Prompts whose keys and values are held at once, beyond what the store keeps."""
_ROWS = 8
"""Logits that stay in a processor's cache from one pass over them to the next."""


@torch.inference_mode()
def mean_entropies(model: Any, store: PrefixStore, sequences: Sequence[ScoredSequence]) -> list[float | None]:
    """Mean entropy (nats per token) of the untempered policy over each response's positions; None for an empty one."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for number, (prompt, response) in enumerate(sequences):
        if response:
            by_prompt.setdefault(tuple(prompt), []).append(number)
    found: list[float | None] = [None] * len(sequences)
    prompts = sorted(by_prompt)
    for first in range(0, len(prompts), _PROMPTS):
        now = prompts[first : first + _PROMPTS]
        before = sorted({prompt[:-1] for prompt in now} - {()})
        if before:
            prefill(model, store, before)
        numbers = [number for prompt in now for number in by_prompt[prompt]]
        pieces = [Piece((*sequences[i][0], *sequences[i][1]), len(sequences[i][0]) - 1) for i in numbers]
        entropies = [entropy for pack in packs(pieces) for entropy in _of_pack(model, store, pack)]
        for number, entropy in zip(numbers, entropies, strict=True):
            found[number] = entropy
        store.trim()
    return found


def _of_pack(model: Any, store: PrefixStore, pieces: Sequence[Piece]) -> list[float]:
    """The mean entropy at each piece's tokens but its last, which predicts nothing that was drawn."""
    packed = PackedPieces(store, pieces, model.device)
    ids = torch.tensor([packed.token_ids], device=model.device)
    positions = torch.tensor([packed.positions], device=model.device)
    hidden_1LD = model.base_model(ids, position_ids=positions, use_cache=False, decoding=packed).last_hidden_state
    head = model.get_output_embeddings()
    return [_entropy(head, hidden_1LD[0, part.start : part.stop - 1]) for part in packed.parts]


def _entropy(head: Any, hidden_nD: Tensor) -> float:
    """Mean entropy of the distributions that follow some hidden states."""
    total = 0.0
    for rows_nD in hidden_nD.split(128):
        for logits_nV in head(rows_nD).split(_ROWS):
            below_nV = logits_nV.float()
            below_nV = below_nV - below_nV.amax(dim=1, keepdim=True)
            weight_nV = below_nV.exp()
            sum_n = weight_nV.sum(dim=1)
            total += float((sum_n.log() - torch.linalg.vecdot(weight_nV, below_nV) / sum_n).sum())
    return total / len(hidden_nD)
