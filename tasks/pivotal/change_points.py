"""Where a success probability jumps along a trajectory, from binomial counts at some of its positions.

Model: S_t is constant but for jumps, which come at every token with probability `rate`; between jumps S has the
Jeffreys prior. Under it everything is a finite sum: `jump_probabilities` adds up, over all ways to cut the estimated
positions into segments, by the forward-backward recursion. Neighbouring positions of one segment thereby share their
counts, which is what makes ten rollouts a position enough.

Legend: M positions, G = M - 1 gaps between them. Source of the recursion: Fearnhead 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_PRIOR = 0.5
_NEGLIGIBLE = 1e-7


def jump_probabilities(
    positions: Sequence[int],
    counts: Sequence[tuple[float, float]],
    *,
    rate: float,
    min_jump: float,
) -> list[float]:
    """For each of the G gaps between positions: the probability that S jumps there by at least `min_jump`.

    `positions` increase; `counts` are (n, k), fractional allowed. Several small jumps inside a gap count as one.
    """
    if len(positions) != len(counts) or len(positions) < 2 or any(np.diff(positions) <= 0):
        raise ValueError("at least two increasing positions with one count each are needed")
    evidence, mean, variance = _segments(counts)
    lengths = np.diff(positions)
    stay = lengths * math.log1p(-rate)
    jump = np.log(-np.expm1(stay))
    so_far = np.concatenate([[0.0], np.cumsum(stay)])
    segment = evidence + so_far[None, :] - so_far[:, None]
    forward, backward = _forward(segment, jump), _backward(segment, jump)
    total = np.logaddexp.reduce(forward + segment[:, -1])
    result: list[float] = []
    for gap in range(len(positions) - 1):
        left, right = slice(0, gap + 1), slice(gap + 1, None)
        before = forward[left] + segment[left, gap]
        after = segment[gap + 1, right] + backward[right]
        weight = np.exp(before[:, None] + after[None, :] + jump[gap] - total)
        difference = mean[gap + 1, right][None, :] - mean[left, gap][:, None]
        spread = np.sqrt(variance[gap + 1, right][None, :] + variance[left, gap][:, None])
        heavy = weight > _NEGLIGIBLE
        result.append(min(1.0, float(weight[heavy] @ _at_least(difference[heavy], spread[heavy], min_jump))))
    return result


def _segments(counts: Sequence[tuple[float, float]]) -> tuple[Floats, Floats, Floats]:
    """Log evidence, posterior mean and variance of S for every segment [i, j], each (M, M); -inf below the diagonal."""
    size = len(counts)
    passed = np.concatenate([[0.0], np.cumsum([k for _, k in counts])])
    failed = np.concatenate([[0.0], np.cumsum([n - k for n, k in counts])])
    a = passed[None, 1:] - passed[:-1, None] + _PRIOR
    b = failed[None, 1:] - failed[:-1, None] + _PRIOR
    evidence = np.full((size, size), -np.inf)
    for i in range(size):
        for j in range(i, size):
            evidence[i, j] = _log_beta(round(float(a[i, j]), 6), round(float(b[i, j]), 6)) - _log_beta(_PRIOR, _PRIOR)
    upper = np.triu(np.ones((size, size), dtype=bool))
    a, b = np.where(upper, a, 1.0), np.where(upper, b, 1.0)
    mean = a / (a + b)
    return evidence, mean, mean * (1 - mean) / (a + b + 1)


def _forward(segment: Floats, jump: Floats) -> Floats:
    """Log evidence of everything before each position, with a jump right before it."""
    forward = np.full(len(segment), -np.inf)
    forward[0] = 0.0
    for i in range(1, len(segment)):
        forward[i] = np.logaddexp.reduce(forward[:i] + segment[:i, i - 1]) + jump[i - 1]
    return forward


def _backward(segment: Floats, jump: Floats) -> Floats:
    """Log evidence of everything after each position, with a jump right after it."""
    backward = np.full(len(segment), -np.inf)
    backward[-1] = 0.0
    for j in range(len(segment) - 2, -1, -1):
        backward[j] = jump[j] + np.logaddexp.reduce(segment[j + 1, j + 1 :] + backward[j + 1 :])
    return backward


def _at_least(difference: Floats, spread: Floats, bound: float) -> Floats:
    """P(|D| >= bound) for D normal with this mean and standard deviation."""
    from scipy.special import ndtr  # loaded when it is needed: it takes as long as the rest of a short command

    return np.asarray(ndtr((difference - bound) / spread) + ndtr((-difference - bound) / spread))


@lru_cache(maxsize=1 << 18)
def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
