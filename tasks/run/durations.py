"""Times and paces that people read."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`4.2 s`, `45 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def pace(per_second: float) -> str:
    """`53.1/s`; below one a second the time for each: `1.4 s each`, `12 s each`."""
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{duration(1 / per_second)} each"
