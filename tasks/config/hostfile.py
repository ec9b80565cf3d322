"""A line of a hostfile: a machine and how many processes it trains with."""

from __future__ import annotations

import re


def host_of(line: str) -> tuple[str, int]:
    """Name and processes: 8 for `name slots=8`, 1 where the line does not say. Raises ValueError."""
    found = re.fullmatch(r"\s*(\S+)(?:\s+slots=([1-9]\d{0,3}))?\s*", line)
    if found is None:
        raise ValueError(f"hosts: cannot read {line!r}; write it as in a hostfile: `name slots=8`")
    return found[1], int(found[2] or 1)
