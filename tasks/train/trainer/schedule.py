"""The learning rate: linear warm-up, then constant (paper, section 5)."""

from __future__ import annotations


def warmup_factor(step: int, warmup_steps: int) -> float:
    """Share of the learning rate in the optimizer step after `step` finished ones: from 1/warmup up to 1."""
    return min(1.0, (step + 1) / max(1, warmup_steps))
