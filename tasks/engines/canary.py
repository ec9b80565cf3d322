"""How far two computations of the same log-probabilities may be apart, and the guard of engines that says so.

Two kernels add in another order. In float32 that moves a token by 5e-5 nats at most; in bfloat16, with SmolLM2, by
0.024 on average and 0.3 now and then, and the largest of many tokens grows with their number. So what is held to a
limit is the mean over a sequence, and four times the mean for all tokens but a twentieth. What moves a sequence by
less, nobody can tell from noise by its log-probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.engines.protocol import EngineDrift

MEAN_DRIFT = {"float32": 2.5e-4, "bfloat16": 0.1}
"""Largest mean difference per token (nats) over a sequence that passes for noise, by the dtype of the weights: in
float32 five times the largest difference measured, in bfloat16 four times the mean."""
TAIL = 4.0
"""All tokens but a twentieth (one at least) may differ by this many times the mean's limit."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How far two lists of log-probabilities are apart, in nats per token."""

    mean: float
    tail: float
    """The largest difference without the largest twentieth of them; 0 where nothing is left."""

    @classmethod
    def between(cls, found: Sequence[float], expected: Sequence[float]) -> Drift:
        """The drift between two lists of one length; nan where one of them has it, 0 where they are empty."""
        apart = sorted(abs(a - b) for a, b in zip(found, expected, strict=True))
        if not apart:
            return cls(0.0, 0.0)
        return cls(math.fsum(apart) / len(apart), max(apart[: len(apart) - math.ceil(len(apart) / 20)], default=0.0))

    def within(self, most: float) -> bool:
        """Whether it passes for noise where the mean may be `most`."""
        return self.mean <= most and self.tail <= TAIL * most

    def __str__(self) -> str:
        return f"{self.mean:.3g} nats a token on average, and {self.tail:.3g} in nineteen of twenty"


def check_drift(engine_scores: Sequence[float], expected: Sequence[float], most: float) -> float:
    """Mean difference of two lists of log-probabilities (nats a token); raises EngineDrift where it is no noise.

    `most` is the largest mean that is (MEAN_DRIFT).
    """
    if len(engine_scores) != len(expected):
        raise EngineDrift(
            f"the engine scored {len(engine_scores)} tokens of a canary, expected {len(expected)}", code="OtherLength"
        )
    found = Drift.between(engine_scores, expected)
    if not found.within(most):
        raise EngineDrift(
            f"the engine's log-probabilities are off by {found} on the canary (allowed {most:g} and {TAIL * most:g}): "
            f"its weights are not the published ones; restart the worker"
        )
    return found.mean
