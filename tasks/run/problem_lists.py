"""Names of lists of problems: what tells a stage that the problems it read have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import astuple

from tasks.problems.problem import Problem
from tasks.run.identity import digest


def fingerprint(problems: Sequence[Problem]) -> str:
    """Identity of a list of problems, in any order."""
    parts = sorted(f"{p.problem_id}/{p.split}/{p.content_hash}" for p in problems)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]


def known_of(problems: Sequence[Problem]) -> str:
    """Identity of what else is known of these problems: programs for them, and why some cannot be judged."""
    parts = [
        [p.problem_id, (p.unjudgeable_reason or "").partition(" (")[0], *(astuple(one) for one in p.solutions)]
        for p in problems
        if p.solutions or p.unjudgeable_reason
    ]
    return digest(known=sorted(parts, key=lambda part: str(part[0])))


def problems_batch(problems: Sequence[Problem]) -> str:
    """The batch that these problems are written in: another one when anything that is read of them differs."""
    return f"problems/{fingerprint(problems)}/{known_of(problems)}"
