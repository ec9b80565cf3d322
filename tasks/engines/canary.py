"""The drift guard: an engine must compute what its weights compute."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.engines.protocol import EngineDrift


def check_drift(engine_scores: Sequence[float], expected: Sequence[float], tolerance: float) -> float:
    """Largest difference between two lists of log-probabilities (nats); raises EngineDrift beyond `tolerance`."""
    if len(engine_scores) != len(expected):
        raise EngineDrift(f"the engine scored {len(engine_scores)} tokens of a canary, expected {len(expected)}")
    worst = max((abs(a - b) for a, b in zip(engine_scores, expected, strict=True)), default=0.0)
    if not worst <= tolerance:
        raise EngineDrift(
            f"the engine's log-probabilities are off by {worst:.3g} nats on the canary (allowed {tolerance:g}): "
            f"its weights are not the published ones; restart the worker"
        )
    return worst
