"""What a stored policy says along a response: values and entropies, computed from checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from tasks.config import RunConfig


@dataclass(frozen=True, slots=True)
class PolicyAlong:
    """What a policy says along a response."""

    values: list[float]
    """y_t = Q_t/beta in nats after each token: y_0 plus the log-ratios so far. Paper: Eq. 12."""
    entropies: list[float]
    """Entropy (nats) of its untempered distribution over the token that comes there."""


def policy_along(
    config: RunConfig, policy: Path, reference: Path, sequence: tuple[Sequence[int], Sequence[int]], start: float
) -> PolicyAlong:
    """A stored policy's values, from y_0 = `start`, and entropies along a (prompt, response); loads both folders."""
    import torch

    from tasks.engines.transformers_engine import TransformersEngine

    torch.set_num_threads(config.engine.threads)
    found: list[tuple[list[float], list[float]]] = []
    for folder in dict.fromkeys((policy, reference)):
        with closing(TransformersEngine(folder, dtype=config.reference.dtype, prefix_store_bytes=0)) as engine:
            found += engine.evaluated([sequence])
    (own, entropies), (before, _) = found[0], found[-1]
    values = accumulate((a - b for a, b in zip(own, before, strict=True)), initial=start)
    return PolicyAlong(list(values)[1:], entropies)
