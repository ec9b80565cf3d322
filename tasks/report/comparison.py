"""Two policies on the same problems.

Errors
------
NothingToCompare
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import CodedError
from tasks.estimators import PairedDifference, average_paired_difference, same_numbers
from tasks.evaluate.eval_samples import Scores, policy_pass_at_k, samples_text
from tasks.report import run_history
from tasks.report.run_history import Point, RunHistory
from warehouse import Warehouse


class NothingToCompare(CodedError):
    """A policy was not evaluated, or the two have no problem or k in common; the message says what to run."""


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


@dataclass(frozen=True, slots=True)
class PairedScores:
    """The counts of two policies on the problems that ask and demand the same of both."""

    first: Scores
    second: Scores
    common: int
    """Problems that both were evaluated on."""
    judged_otherwise: int
    """Of them those that other tests judged, or that were worded otherwise: in none of the scores."""
    shown_otherwise: int
    """Of the others those whose prompts differ."""
    sampled_otherwise: bool = False
    """Whether the samples were drawn in another way."""

    @property
    def notes(self) -> list[str]:
        """What a reader should know about them."""
        found: list[str] = []
        if self.judged_otherwise:
            found.append(
                f"warning: {self.judged_otherwise} of {self.common} problems were judged by other tests (or worded "
                f"otherwise) and are left out"
            )
        if self.sampled_otherwise:
            found.append("warning: the two were sampled differently, so the difference is not the policies' alone")
        if self.shown_otherwise:
            found.append(f"{self.shown_otherwise} problems were shown by other prompts (another template or tokenizer)")
        if not same_numbers(self.first, self.second):
            found.append(
                f"the first has {samples_text(self.first)}, the second {samples_text(self.second)}: more samples make "
                f"more problems better or worse by chance alone, so no p is given (set evaluate.samples alike)"
            )
        return found


def paired(first: tuple[RunHistory, Point], second: tuple[RunHistory, Point]) -> PairedScores:
    """Two policies on the problems that have the same statement and the same suite in both runs.

    Prompts are named by their token ids, so another tokenizer or template gives other ones for the same question:
    they are counted, not left out. Raises NothingToCompare when no problem is left.
    """
    (one, a), (other, b) = first, second
    common = {(name, p) for name, found in a.scores.items() for p in found if p in b.scores.get(name, {})}
    if not common:
        raise NothingToCompare(
            f"{one.run_id} and {other.run_id} were evaluated on different problems; none is common to both"
        )
    same = {(name, p) for name, p in common if _demanded(one, p) == _demanded(other, p)}
    if not same:
        raise NothingToCompare(
            f"{one.run_id} and {other.run_id} were evaluated on {len(common)} common problems, but all of them were "
            f"judged by other tests or worded otherwise; `spo eval` gives both policies on the tests of today"
        )
    return PairedScores(
        _only(a.scores, same),
        _only(b.scores, same),
        len(common),
        len(common) - len(same),
        sum(_prompt(one, p) != _prompt(other, p) for _, p in same),
        one.sampling != other.sampling,
    )


def common_ks(histories: Sequence[RunHistory]) -> list[int]:
    """The k of pass@k that all of the runs have, in order. Raises NothingToCompare when there is none."""
    ks = sorted(set.intersection(*(set(history.config.evaluate.ks) for history in histories)))
    if not ks:
        had = "; ".join(f"{h.run_id}: {', '.join(map(str, h.config.evaluate.ks))}" for h in histories)
        names = " and ".join(h.run_id for h in histories)
        raise NothingToCompare(
            f"{names} have no k of pass@k in common (evaluate.ks; {had}); `spo report RUN` shows each alone"
        )
    return ks


def compare(store: Warehouse, home: Path, first: str, second: str) -> RunComparison:
    """The policies `RUN` (its last evaluated one) or `RUN@STEP` on the problems that both were evaluated on.

    Raises UnknownRun and NothingToCompare.
    """
    histories = [run_history.read(store, home, name.partition("@")[0]) for name in (first, second)]
    points = [_point(history, name) for history, name in zip(histories, (first, second), strict=True)]
    pairs = paired((histories[0], points[0]), (histories[1], points[1]))
    a, b = pairs.first, pairs.second
    rows = [
        ComparedK(k, policy_pass_at_k(a, k).value, policy_pass_at_k(b, k).value, average_paired_difference(a, b, k))
        for k in common_ks(histories)
    ]
    return RunComparison(rows, _notes(histories, points, pairs))


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


def _demanded(history: RunHistory, problem_id: str) -> tuple[str, str] | None:
    """What decides whether a program solves the problem: its words and its tests."""
    found = history.problems.get(problem_id)
    return (found.problem.statement, found.problem.suite_hash) if found else None


def _prompt(history: RunHistory, problem_id: str) -> str | None:
    found = history.problems.get(problem_id)
    return found.prompt_id if found else None


def _only(scores: Scores, wanted: Set[tuple[str, str]]) -> Scores:
    """The problems of `scores` that are wanted; sets without any are left out."""
    found = {name: {p: n for p, n in own.items() if (name, p) in wanted} for name, own in scores.items()}
    return {name: own for name, own in found.items() if own}


def _notes(histories: Sequence[RunHistory], points: Sequence[Point], pairs: PairedScores) -> list[str]:
    shared = pairs.first
    sets = f" of {len(shared)} problem sets, each weighing the same" if len(shared) > 1 else ""
    notes = [
        f"{sum(map(len, shared.values()))} problems{sets}; change in points with its interval; problems better, worse "
        f"and equal in the second; p of the exact sign test"
    ]
    for history, point in zip(histories, points, strict=True):
        left_out = sum(map(len, point.scores.values())) - pairs.common
        skipped = f", {left_out} problems only there" if left_out else ""
        notes.append(f"{history.run_id}: step {point.step}, {samples_text(point.scores)}{skipped}, {history.sampling}")
    return [*notes, *pairs.notes]
