"""The tables of docs/evidence/regime.md, out of the results of `spo study regime` that lie beside it.

    python -m benchmarks.regime_tables [FILE]

A test compares them with the page. Per cent; means over seeds and 95% Student intervals over seeds, which fewer than
three runs do not get; differences are paired by seed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from flows import study_config
from tasks.estimators import mean_interval
from tasks.report import study_results
from tasks.report.study import ArmResult
from tasks.report.table_sections import markdown_table

RESULTS = Path(__file__).parents[1] / "docs" / "evidence" / "data" / "regime.jsonl"
PREFIX = {"few, large": "few-large-", "few, small": "few-", "many, large": "large-", "many, small": ""}
"""By corner, what the names of its arms begin with; one that another begins with comes after it."""
CORNERS = tuple(PREFIX)
FEWEST = 3
"""Runs from which on an interval is given."""

Arms = Mapping[str, ArmResult]
"""By their names in the study, with or without the rate at the end."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One arm against another in every corner, named without the corner's prefix."""

    text: str
    paper: str
    arm: str
    against: str
    measures: Sequence[str] = ("pass@10",)
    small: tuple[str, str] | None = None
    """The two arms where many problems meet small steps, if others: those of the same rate."""

    def pair(self, corner: str) -> tuple[str, str]:
        """The names of the two arms in a corner."""
        if corner == "many, small":
            return self.small or (self.arm, self.against)
        return PREFIX[corner] + self.arm, PREFIX[corner] + self.against


PPO = "ppo-3e-5"
"""PPO's arm where many problems meet small steps: the best of the rates that the search tried."""
SQUARED, SIGMOID = ("squared", "half-online-3e-5"), ("advantage-3e-5", "half-online-3e-5")
"""Cross-entropy at the rate of these losses stands beside them there."""
BOTH = ("pass@1", "pass@10")
CLAIMS = (
    Claim("half online, online", "ahead", "half-online", "online"),
    Claim("online, PPO", "ahead on pass@10", "online", "ppo", BOTH, ("online", PPO)),
    Claim("half online, PPO", "ahead on pass@10", "half-online", "ppo", BOTH, ("half-online", PPO)),
    Claim("squared, cross-entropy", "faster", "squared", "half-online", BOTH, SQUARED),
    Claim("sigmoid, cross-entropy", "no better", "advantage", "half-online", BOTH, SIGMOID),
    Claim("reverse Q, terminal (cross-entropy)", "much worse", "reverse-q-cross-entropy", "half-online", BOTH),
    Claim("reverse Q, terminal (squared)", "as good", "reverse-q-squared", "squared", BOTH),
    Claim("Monte-Carlo targets, none", "better", "monte-carlo", "half-online"),
    Claim("their rollouts alone, none", "as good", "pivotal-rollouts", "half-online"),
    Claim("half online, fine-tuning", "", "half-online", "rejection", BOTH),
)
LABELS = {
    "online": "SPO online",
    "half-online": "SPO half online",
    "rejection": "rejection fine-tuning",
    "rejection-own": "on pi_0's own programs",
    "ppo": "PPO",
    "squared": "squared",
    "advantage": "advantage, sigmoid",
    "reverse-q-squared": "reverse Q, squared",
    "reverse-q-cross-entropy": "reverse Q, cross-entropy",
    "monte-carlo": "Monte-Carlo targets",
    "pivotal-rollouts": "their rollouts alone",
}


def read(path: Path = RESULTS) -> dict[str, ArmResult]:
    """The study's arms that the file has runs of."""
    plan = study_config.load("regime")
    results = study_results.read(path, plan.settings())
    return {
        name: results.added(name, ArmResult(plan.arms[name].label, (), (), ()))
        for name in plan.arms
        if name in results.arms
    }


def rates() -> dict[str, float]:
    """The learning rate of each arm."""
    plan = study_config.load("regime")
    return {name: plan.config(name, 0).train.optimizer.learning_rate for name in plan.arms}


def corner_of(arm: str) -> str:
    """The corner that an arm's name says."""
    return next(corner for corner, prefix in PREFIX.items() if arm.startswith(prefix))


def percent(values: Sequence[float], sign: str = "") -> str:
    """A mean with its interval, or the values of fewer than three runs. Fractions in, per cent out."""
    if len(values) < FEWEST:
        return ", ".join(f"{100 * value:{sign}.1f}" for value in values)
    mean, low, high = (f"{100 * end:{sign}.1f}" for end in mean_interval(values))
    return f"{mean} [{low}, {high}]"


def claims(arms: Arms) -> str:
    """Every claim in the four corners: first arm minus second, points."""
    rows: list[dict[str, str]] = []
    for claim in CLAIMS:
        for measure in claim.measures:
            row = {"first, second": claim.text, "measure": measure, "the paper": claim.paper}
            for corner in CORNERS:
                first, second = (arms.get(name) for name in claim.pair(corner))
                row[corner] = percent(first.differences(second, measure), "+") if first and second else "not run"
            rows.append(row)
    return "\n".join(markdown_table(("first, second", "measure", "the paper", *CORNERS), rows))


def at_the_end(arms: Arms, rate: Mapping[str, float], corner: str) -> str:
    """The arms of a corner at the end of training; pass@10 also after a third of it. Empty without a run."""
    rows: list[dict[str, str]] = []
    for stem, label in LABELS.items():
        alike = [arm for arm in arms if re.fullmatch(re.escape(PREFIX[corner] + stem) + r"(-\de-\d)?", arm)]
        for number, arm in enumerate(sorted(alike, key=lambda arm: -rate[arm])):
            row = {"arm": "" if number else label, "rate": study_config.short_text(rate[arm])}
            rows.append(row | _figures(arms[arm]))
    return "\n".join(markdown_table(list(rows[0]), rows)) if rows else ""


def _figures(arm: ArmResult) -> dict[str, str]:
    third = [_pass_after(curve["pass@10"], 1 / 3) for curve in arm.curves]
    seeds = "" if len(arm.seeds) >= FEWEST else f" (seed{'s' * (len(arm.seeds) > 1)} {', '.join(map(str, arm.seeds))})"
    return {
        "pass@1": percent(arm.values("pass@1")) + seeds,
        "pass@10": percent(arm.values("pass@10")),
        "after a third": f"{100 * fmean(third):.1f}",
    }


def _pass_after(curve: Mapping[int, float], share: float) -> float:
    """The value at the last evaluated step within that share of training."""
    return curve[max(step for step in curve if step <= share * max(curve))]


def cost(arms: Arms) -> str:
    """Hours of training by corner, and the runs that they are of."""
    rows: list[dict[str, str]] = []
    for corner in CORNERS:
        own = [arms[name] for name in arms if corner_of(name) == corner]
        hours = sum(sum(arm.values("train s")) for arm in own) / 3600
        runs = sum(len(arm.seeds) for arm in own)
        rows.append({"corner": corner, "runs": str(runs), "hours of training": f"{hours:.1f}"})
    return "\n".join(markdown_table(list(rows[0]), rows))


def tables(arms: Arms) -> dict[str, str]:
    """Every table of the page, by what it is of; that of a corner without a run is empty."""
    rate = rates()
    return {"claims": claims(arms), **{name: at_the_end(arms, rate, name) for name in CORNERS}, "cost": cost(arms)}


if __name__ == "__main__":
    for title, table in tables(read(*map(Path, sys.argv[1:]))).items():
        print(f"{title}\n\n{table}\n")
