"""Ranks of a study's arms, with what the seeds leave open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from tasks.report.arms import ArmResult
from tasks.report.report_page import ReportTable

LEAST_ARMS = 3


def table(members: Sequence[ArmResult], measure: str) -> ReportTable | None:
    """A row for each arm, the highest mean first; None with fewer than three arms or two seeds that all share.

    An arm's rank in a seed is one more than the number of arms above it, ties share the mean of theirs. The possible
    ranks are those that paired differences leave: behind every arm that is above by a 95% Student interval of the
    paired difference, ahead of every arm that is below by one.
    """
    ended = [arm for arm in members if arm.values(measure)]
    seeds = set[int].intersection(*(set(arm.seeds) for arm in ended)) if ended else set[int]()
    if len(ended) < LEAST_ARMS or len(seeds) < 2:
        return None
    by_seed = [_ranks([_value(arm, measure, seed) for arm in ended]) for seed in sorted(seeds)]
    rows: list[Mapping[str, str]] = []
    for index in sorted(range(len(ended)), key=lambda n: -fmean(ended[n].values(measure))):
        arm, ranks = ended[index], [found[index] for found in by_seed]
        others = [other for other in ended if other is not arm]
        above = sum(arm.against(other, measure)[2] < 0 for other in others)
        below = sum(arm.against(other, measure)[1] > 0 for other in others)
        rows.append(
            {
                "arm": arm.label,
                "mean rank": f"{fmean(ranks):.1f}",
                "over seeds": f"{min(ranks):g} to {max(ranks):g}",
                "possible": f"{above + 1} to {len(ended) - below}",
            }
        )
    note = (
        f"Of {len(ended)} arms over {len(seeds)} seeds; possible: what 95% intervals of paired differences leave, "
        f"one pair at a time, so that with many arms some will be wrong."
    )
    return ReportTable(f"Ranks ({measure})", ("arm", "mean rank", "over seeds", "possible"), rows, note=note)


def _value(arm: ArmResult, measure: str, seed: int) -> float:
    return arm.measures[list(arm.seeds).index(seed)][measure]


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the highest; equal values share the mean of their ranks."""
    return [
        1 + sum(other > value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]
