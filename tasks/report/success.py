"""What a value says as a probability of success."""

from __future__ import annotations

import math


def success_of_value(y: float, beta: float) -> float:
    """S of a soft value y in nats: the inverse of y = ln(S + (1 - S) e^(-1/beta)), 0 below its floor and 1 above 0."""
    floor = math.exp(-1 / beta)
    return min(1.0, max(0.0, (math.exp(min(y, 0.0)) - floor) / (1 - floor)))
