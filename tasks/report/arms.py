"""An arm of a study: the curves and measures of its runs by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.estimators import mean_interval


@dataclass(frozen=True, slots=True)
class Spent:
    """Samples, tokens and seconds of a run up to a step; nothing before the first."""

    trajectories: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm: a curve and final measures per seed."""

    label: str
    seeds: Sequence[int]
    """Of the runs that ended well, in the order of `curves` and `measures`."""
    curves: Sequence[Mapping[str, Mapping[int, float]]]
    """Per seed: `pass@k` by optimizer step."""
    measures: Sequence[Mapping[str, float]]
    """Per seed: name to value; a measure that is unknown is absent."""
    spent: Sequence[Mapping[int, Spent]] = ()
    """Per seed: what had been sampled and trained by optimizer step."""
    stopped: Sequence[int] = ()
    """Seeds whose training was stopped by its guards: they have no measures, so the table must say that they were."""
    problems: Sequence[Mapping[str, str]] = ()
    """Per seed: a digest of its problems by split; empty where a file of results does not say."""

    def interval(self, measure: str, level: float = 0.95) -> tuple[float, float, float]:
        """Mean over seeds, and the ends of its Student interval (nan with fewer than two seeds)."""
        return mean_interval(self.values(measure), level)

    def values(self, measure: str) -> list[float]:
        """Of the seeds where it is known."""
        return [found[measure] for found in self.measures if measure in found]

    def against(self, other: ArmResult, measure: str, level: float = 0.95) -> tuple[float, float, float]:
        """This arm's value minus the other's, paired by seed: the runs of a seed share Q0 and corpus."""
        return mean_interval(self.differences(other, measure), level)

    def differences(self, other: ArmResult, measure: str) -> list[float]:
        """This arm's value minus the other's for each seed that both know, by seed."""
        mine, theirs = (
            {seed: found[measure] for seed, found in zip(arm.seeds, arm.measures, strict=True) if measure in found}
            for arm in (self, other)
        )
        return [mine[seed] - theirs[seed] for seed in sorted(mine.keys() & theirs.keys())]
