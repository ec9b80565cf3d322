"""From next-token logits to sampled tokens. Legend: B rows, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

GREEDY_BELOW = 1e-6
"""Temperatures below this are greedy."""
_FIRST_TRY = 64
"""Tokens looked at first when searching a nucleus: a full sort is needed only by rows flatter than that."""


def choose(logits_BV: Tensor, temperature_B: Tensor, top_p_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Sampled token ids (B, int64) and their raw log-probabilities (B, float32, nats).

    Sampling is by inverse CDF in vocabulary order: row b takes the first token whose cumulative tempered and filtered
    probability exceeds `uniform_B[b]` times the total. The log-probability is before temperature and top-p.
    """
    logits_BV = logits_BV.float()
    tempered_BV = logits_BV
    if not bool((temperature_B == 1).all()):
        tempered_BV = logits_BV / temperature_B.clamp(min=GREEDY_BELOW)[:, None]
    probability_BV = tempered_BV.softmax(dim=-1)
    nucleus = top_p_B < 1
    if bool(nucleus.any()):
        floor_B = nucleus_floor(probability_BV, top_p_B)
        probability_BV = probability_BV.masked_fill(probability_BV < floor_B[:, None], 0.0)
    cumulative_BV = probability_BV.cumsum(dim=-1)
    threshold_B1 = (uniform_B * cumulative_BV[:, -1])[:, None]
    token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0]
    token_B = token_B.clamp(max=logits_BV.shape[1] - 1)
    greedy = temperature_B < GREEDY_BELOW
    if bool(greedy.any()):
        token_B = torch.where(greedy, logits_BV.argmax(dim=-1), token_B)
    logp_B = logits_BV.gather(1, token_B[:, None])[:, 0] - logits_BV.logsumexp(dim=-1)
    return token_B, logp_B


def nucleus_floor(probability_BV: Tensor, top_p_B: Tensor) -> Tensor:
    """Smallest probability kept by nucleus sampling, per row (B); 0 where top_p is 1.

    The nucleus is the shortest prefix of the tokens in descending probability whose sum reaches top_p.
    """
    vocabulary = probability_BV.shape[1]
    largest_BK = probability_BV.topk(min(_FIRST_TRY, vocabulary), dim=-1).values
    unfinished = (largest_BK.sum(dim=-1) < top_p_B) & (top_p_B < 1)
    floor_B = _floor(largest_BK, top_p_B)
    if largest_BK.shape[1] < vocabulary and bool(unfinished.any()):
        sorted_XV = probability_BV[unfinished].sort(dim=-1, descending=True).values
        floor_B[unfinished] = _floor(sorted_XV, top_p_B[unfinished])
    return torch.where(top_p_B < 1, floor_B, torch.zeros_like(floor_B))


def _floor(descending_BK: Tensor, top_p_B: Tensor) -> Tensor:
    before_BK = descending_BK.cumsum(dim=-1) - descending_BK
    kept_B = (before_BK < top_p_B[:, None]).sum(dim=-1).clamp(min=1)
    return descending_BK.gather(1, (kept_B - 1)[:, None])[:, 0]
