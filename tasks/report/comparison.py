"""Two policies on the same problems.

Errors
------
NothingToCompare
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.estimators import PairedDifference, average_paired_difference
from tasks.evaluate.eval_samples import Scores, policy_pass_at_k
from tasks.report import run_history
from tasks.report.run_history import Point, RunHistory
from warehouse import Warehouse


class NothingToCompare(Exception):
    """A policy was not evaluated, or the two have no problem in common; the message says what to run."""


@dataclass(frozen=True, slots=True)
class ComparedK:
    """pass@k of both policies, and the paired difference second - first."""

    k: int
    first: float
    second: float
    difference: PairedDifference


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The rows by k, and what a reader should know about them."""

    rows: Sequence[ComparedK]
    notes: Sequence[str]


def compare(store: Warehouse, home: Path, first: str, second: str) -> RunComparison:
    """The policies `RUN` (its last evaluated one) or `RUN@STEP` on the problems that both were evaluated on.

    Raises UnknownRun and NothingToCompare.
    """
    histories = [run_history.read(store, home, name.partition("@")[0]) for name in (first, second)]
    points = [_point(history, name) for history, name in zip(histories, (first, second), strict=True)]
    a, b = _common(points[0].scores, points[1].scores), _common(points[1].scores, points[0].scores)
    if not a:
        raise NothingToCompare(f"{first} and {second} were evaluated on different problems; none is common to both")
    ks = sorted(set(histories[0].config.evaluate.ks) & set(histories[1].config.evaluate.ks))
    if not ks:
        raise NothingToCompare(f"{first} and {second} have no k of pass@k in common (evaluate.ks)")
    rows = [
        ComparedK(k, policy_pass_at_k(a, k).value, policy_pass_at_k(b, k).value, average_paired_difference(a, b, k))
        for k in ks
    ]
    return RunComparison(rows, _notes(histories, points, a))


def _point(history: RunHistory, name: str) -> Point:
    _, at, step = name.partition("@")
    evaluated = {str(point.step): point for point in history.points}
    if at and step not in evaluated:
        raise NothingToCompare(f"run {history.run_id!r} has no evaluated step {step!r}; it has {', '.join(evaluated)}")
    if not evaluated:
        raise NothingToCompare(
            f"no policy of run {history.run_id!r} has been evaluated; "
            f"run `prefect deployment run spo/evaluate -p run={history.run_id}`"
        )
    return evaluated[step] if at else history.points[-1]


def _common(mine: Scores, others: Scores) -> Scores:
    """The problems of `mine` that are in `others` too."""
    shared = {name: {p: n for p, n in found.items() if p in others.get(name, {})} for name, found in mine.items()}
    return {name: found for name, found in shared.items() if found}


def _notes(histories: Sequence[RunHistory], points: Sequence[Point], shared: Scores) -> list[str]:
    problems = sum(map(len, shared.values()))
    sets = f" of {len(shared)} problem sets, each weighing the same" if len(shared) > 1 else ""
    notes = [
        f"{problems} problems{sets}; change in points with its interval; problems better, worse and equal in the "
        f"second; p of the exact sign test"
    ]
    for history, point in zip(histories, points, strict=True):
        left_out = sum(map(len, point.scores.values())) - problems
        skipped = f", {left_out} problems only there" if left_out else ""
        samples = sorted({n for found in point.scores.values() for n, _ in found.values()})
        notes.append(f"{history.run_id}: step {point.step}, {samples[0]} samples each{skipped}, {history.sampling}")
    if histories[0].sampling != histories[1].sampling:
        notes.append("warning: the two were sampled differently, so the difference is not the policies' alone")
    return notes
