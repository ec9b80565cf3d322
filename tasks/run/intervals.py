"""How an interval is told to people."""

from __future__ import annotations

import math


def interval_text(low: float, high: float, between: str) -> str:
    """`+4.5 to +20.1`, in points; `unknown` where a set has a single problem."""
    return "unknown" if math.isnan(low) else f"{100 * low:+.1f}{between}{100 * high:+.1f}"
