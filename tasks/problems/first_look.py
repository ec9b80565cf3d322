"""The first problems of a set, understood field by field: a look at what would take long to read whole.

Raises InvalidProblem where something cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tasks.config import ProblemFiles
from tasks.problems import hub, kattis
from tasks.problems.problem import Problem
from tasks.problems.records import Record, read_records
from tasks.problems.sources import is_of, none_of, problem_of

UNDERSTOOD = 200
"""Records of a file that are understood field by field."""
PATIENCE_S = 2.0
"""Time spent on the rest of one file."""

Clock = Callable[[], float]
"""Seconds from some moment on."""


def first_problems(one: ProblemFiles, clock: Clock) -> tuple[list[Problem], bool]:
    """The first problems of a set, and whether they are all it has."""
    if one.hub is not None:
        hub.require_reachable(one)
    if one.path is None:
        return [], False
    if one.source == "kattis":
        folders = kattis.packages(Path(one.path))
        return [kattis.read_package(f, "") for f in folders[:UNDERSTOOD]], len(folders) <= UNDERSTOOD
    path, problems = Path(one.path), list[Problem]()
    more = look(path, one.only, lambda record: problems.append(problem_of(record, one.source, "")), clock)
    if one.only and not problems and not more:
        raise none_of(path, one.only)
    return problems, not more


def look(path: Path, only: str | None, understand: Callable[[Record], object], clock: Clock) -> bool:
    """Understand the first records (of the split `only`) and read on for a while; whether there are more than those."""
    understood, more, until = 0, False, clock() + PATIENCE_S
    for record in read_records(path):
        if is_of(record, only) and understood < UNDERSTOOD:
            understand(record)
            understood += 1
            continue
        more = more or is_of(record, only)
        if clock() > until:
            return True
    return more
