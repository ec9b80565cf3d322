"""From next-token logits to sampled tokens. Legend: B rows, V vocabulary.

Large vocabularies on a CPU are gone through row by row, so that a row stays in the processor's cache from its logits to
its token; everything else is computed for all rows at once.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GREEDY_BELOW = 1e-6
"""Temperatures below this are greedy."""
ROW_BY_ROW = 8192
"""Vocabularies from this size on are gone through row by row on a CPU."""
_FEW_ROWS = 8
"""Rows of a large vocabulary that stay in a processor's cache from one pass over them to the next."""
_FIRST_TRY = 64
"""Tokens looked at first when searching the nuclei of many rows: only rows flatter than that are sorted."""
_FEW = 1024
"""Tokens of one row that are sorted; while more could be the last of its nucleus, they are halved."""
_BLOCK = 256
_ONES = torch.ones(_BLOCK)


def choose(logits_BV: Tensor, temperature_B: Tensor, top_p_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Sampled token ids (B, int64) and their raw log-probabilities (B, float32, nats).

    Sampling is by inverse CDF in vocabulary order: row b takes the first token whose cumulative tempered and filtered
    probability exceeds `uniform_B[b]` times the total. The log-probability is before temperature and top-p; where a
    row has logits that are NaN or +inf it is NaN, and the token means nothing.
    """
    logits_BV = logits_BV.float()
    if logits_BV.device.type == "cpu" and logits_BV.shape[1] >= ROW_BY_ROW:
        return _row_by_row(logits_BV, temperature_B, top_p_B, uniform_B)
    return all_at_once(logits_BV, temperature_B, top_p_B, uniform_B)


def entropies_of(logits_BV: Tensor) -> Tensor:
    """Entropy of each row's untempered distribution, nats. Shape B."""
    at_once = _FEW_ROWS if logits_BV.device.type == "cpu" and logits_BV.shape[1] >= ROW_BY_ROW else len(logits_BV)
    return torch.cat([_entropies(rows_BV) for rows_BV in logits_BV.split(at_once)])


def _entropies(logits_BV: Tensor) -> Tensor:
    below_BV = logits_BV.float()
    below_BV = below_BV - below_BV.amax(dim=1, keepdim=True)
    weight_BV = below_BV.exp()
    sum_B = weight_BV.sum(dim=1)
    return sum_B.log() - torch.linalg.vecdot(weight_BV, below_BV) / sum_B


def all_at_once(logits_BV: Tensor, temperature_B: Tensor, top_p_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """`choose` for all rows at once, in float32."""
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


def _row_by_row(logits_BV: Tensor, *settings_B: Tensor) -> tuple[Tensor, Tensor]:
    """`choose`, one row after the other."""
    scratch = _Scratch(logits_BV.shape[1])
    settings = zip(*(values.tolist() for values in settings_B), strict=True)
    found = [scratch.choose(logits_V, *values) for logits_V, values in zip(logits_BV.unbind(), settings, strict=True)]
    return torch.tensor([token for token, _ in found]), torch.tensor([logp for _, logp in found])


class _Scratch:
    """Memory for one row of V logits: what was written last is still in the cache when it is read."""

    def __init__(self, vocabulary: int) -> None:
        self._room = torch.zeros(-(-vocabulary // _BLOCK) * _BLOCK)
        self._weight_V = self._room[:vocabulary]
        self._below_V = torch.empty(vocabulary)
        self._weights: NDArray[np.float32] = self._room.numpy()
        self._bits = np.empty(vocabulary, np.int32)

    def choose(self, logits_V: Tensor, temperature: float, top_p: float, uniform: float) -> tuple[int, float]:
        """Token and raw log-probability of one row; the latter is NaN where logits are NaN or +inf."""
        below_V, weight_V = self._below_V, self._weight_V
        torch.sub(logits_V, logits_V.amax(), out=below_V)
        torch.exp(below_V, out=weight_V)
        sums = block_sums(self._weights)
        log_total = math.log(sums.sum())
        if not math.isfinite(log_total):
            return 0, math.nan
        if temperature < GREEDY_BELOW:
            return int(below_V.argmax()), -log_total
        if temperature != 1:
            torch.exp(torch.div(below_V, temperature, out=weight_V), out=weight_V)
            sums = block_sums(self._weights)
        if top_p < 1:
            np.copyto(self._bits, self._weights[: len(self._bits)].view(np.int32))
            floor = last_kept(self._bits, top_p * float(sums.sum()))
            torch.threshold_(weight_V, float(np.nextafter(floor, np.float32(-1))), 0.0)
            sums = block_sums(self._weights)
        token = self._inverse(sums, uniform)
        return token, float(below_V[token]) - log_total

    def _inverse(self, sums: NDArray[np.float64], uniform: float) -> int:
        """First token whose cumulative weight exceeds `uniform` times the total: first its block, then the token."""
        ends = sums.cumsum()
        asked = uniform * ends[-1]
        block = int(ends.searchsorted(asked, side="right"))
        before = ends[block - 1] if block else 0.0
        inside = self._weights[block * _BLOCK : (block + 1) * _BLOCK].cumsum(dtype=np.float64)
        # The block's sum was rounded: what it has more than its tokens must not lead to one of weight 0.
        rest = min(asked - before, np.nextafter(inside[-1], 0.0))
        return block * _BLOCK + int(inside.searchsorted(rest, side="right"))


def block_sums(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sums of blocks of `weights`, the last of which may be shorter."""
    whole = len(weights) // _BLOCK * _BLOCK
    sums = torch.mv(torch.from_numpy(weights[:whole]).view(-1, _BLOCK), _ONES).numpy().astype(np.float64)
    return sums if whole == len(weights) else np.append(sums, weights[whole:].sum(dtype=np.float64))


def last_kept(bits: NDArray[np.int32], target: float) -> np.float32:
    """Smallest of some positive float32 numbers, given as `bits`, of which the larger ones sum to less than `target`.

    Positive floats are ordered as their bits are. The numbers are divided in two until few of them can be the one
    asked for, and reordered on the way.
    """
    low, high, above = 0, len(bits), 0.0
    cut = high - _FEW
    while high - low > _FEW:
        bits[low:high].partition(cut - low)
        upper = float(block_sums(bits[cut:high].view(np.float32)).sum())
        if above + upper >= target:
            low = cut
        else:
            above, high = above + upper, cut
        cut = (low + high) // 2
    descending = np.sort(bits[low:high])[::-1].view(np.float32)
    ends = above + descending.cumsum(dtype=np.float64)
    kept = int((ends - descending < target).sum())
    return descending[max(kept, 1) - 1]
