"""Every sequence of a tiny vocabulary: policies as tables, so that theorems can be checked by enumeration.

Legend: V = 3 tokens, sequences of length T = 4, all V^T of them; values in nats; float64.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

VOCABULARY, LENGTH = 3, 4
BETA = 0.25
SEQUENCES = list(itertools.product(range(VOCABULARY), repeat=LENGTH))
PREFIXES = [prefix for t in range(LENGTH) for prefix in itertools.product(range(VOCABULARY), repeat=t)]
ROW = {prefix: row for row, prefix in enumerate(PREFIXES)}

ROWS = torch.tensor([[ROW[s[:t]] for t in range(LENGTH)] for s in SEQUENCES])
TOKENS = torch.tensor(SEQUENCES)


@dataclass(frozen=True)
class World:
    """A reference policy by its next-token logits per prefix, and a reward in [-1, 0] per sequence."""

    ref_logits: Tensor
    reward: Tensor

    @property
    def terminal(self) -> Tensor:
        """r/beta of every sequence."""
        return self.reward / BETA


def world(seed: int = 0) -> World:
    """A random world in which about a third of the sequences succeed."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(PREFIXES), VOCABULARY, generator=generator, dtype=torch.float64)
    reward = -(torch.rand(len(SEQUENCES), generator=generator) < 0.67).double()
    return World(logits, reward)


def random_logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(PREFIXES), VOCABULARY, generator=generator, dtype=torch.float64)


def token_logprobs(logits: Tensor) -> Tensor:
    """log pi(a_t | a_<t) along every sequence. Shape V^T, T; differentiable."""
    logp = logits.log_softmax(dim=1)
    return logp[ROWS, TOKENS]


def optimal_logits(w: World) -> Tensor:
    """Logits of pi* = pi_0 exp(r/beta)/Z (Eq. 2), by summing over continuations."""
    weight = (token_logprobs(w.ref_logits).sum(1) + w.terminal).exp()
    table = torch.zeros(len(PREFIXES), VOCABULARY, dtype=torch.float64)
    for sequence, mass in zip(SEQUENCES, weight, strict=True):
        for t in range(LENGTH):
            table[ROW[sequence[:t]], sequence[t]] += mass
    return table.log()


def true_values(w: World) -> dict[tuple[int, ...], float]:
    """y = log E_{pi_0}[exp(r/beta) | prefix] of every prefix, complete ones included, by enumeration."""
    logp = token_logprobs(w.ref_logits)
    values: dict[tuple[int, ...], float] = {}
    for t in range(LENGTH + 1):
        for prefix in itertools.product(range(VOCABULARY), repeat=t):
            rows = [i for i, s in enumerate(SEQUENCES) if s[:t] == prefix]
            terms = logp[rows, t:].sum(1) + w.terminal[rows]
            values[prefix] = float(torch.logsumexp(terms, 0))
    return values


def value_table(w: World) -> Tensor:
    """True y_t along every sequence, t = 1..T. Shape V^T, T."""
    values = true_values(w)
    return torch.tensor([[values[s[: t + 1]] for t in range(LENGTH)] for s in SEQUENCES], dtype=torch.float64)


def total_variation(logits: Tensor, w: World) -> float:
    """Distance between the sequence distribution of `logits` and pi*."""
    p = token_logprobs(logits).sum(1).exp()
    q = token_logprobs(optimal_logits(w)).sum(1).exp()
    return float(0.5 * (p - q).abs().sum())
