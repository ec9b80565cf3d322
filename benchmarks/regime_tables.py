"""The tables of docs/regime.md, out of the results of `spo study regime` that lie beside it.

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

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "data" / "regime.jsonl"
CORNERS = ("few, large", "few, small", "many, large", "many, small")
PREFIX: dict[str, str] = dict(zip(CORNERS, ("few-large-", "few-", "large-", ""), strict=True))
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
    Claim("SPO half online against SPO online", "ahead", "half-online", "online"),
    Claim("SPO online against PPO", "ahead on pass@10", "online", "ppo", BOTH, ("online", PPO)),
    Claim("SPO half online against PPO", "ahead on pass@10", "half-online", "ppo", BOTH, ("half-online", PPO)),
    Claim("squared against cross-entropy", "faster", "squared", "half-online", BOTH, SQUARED),
    Claim("advantage, sigmoid, against cross-entropy", "no better", "advantage", "half-online", BOTH, SIGMOID),
    Claim("reverse Q against terminal, cross-entropy", "much worse", "reverse-q-cross-entropy", "half-online", BOTH),
    Claim("reverse Q against terminal, squared", "as good", "reverse-q-squared", "squared", BOTH),
    Claim("Monte-Carlo targets against none", "better", "monte-carlo", "half-online"),
    Claim("their rollouts alone against none", "as good", "pivotal-rollouts", "half-online"),
    Claim("SPO half online against fine-tuning on the corpus", "", "half-online", "rejection", BOTH),
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


def percent(values: Sequence[float], sign: str = "") -> str:
    """A mean with its interval, or the values of fewer than three runs. Fractions in, per cent out."""
    if len(values) < FEWEST:
        return ", ".join(f"{100 * value:{sign}.1f}" for value in values)
    mean, low, high = (f"{100 * end:{sign}.1f}" for end in mean_interval(values))
    return f"{mean} [{low}, {high}]"


def differences(arms: Arms, first: str, second: str, measure: str) -> list[float]:
    """One arm's final measure minus another's, of the seeds that both have."""
    one, other = (dict(zip(arms[name].seeds, arms[name].measures, strict=True)) for name in (first, second))
    return [one[seed][measure] - other[seed][measure] for seed in sorted(one.keys() & other.keys())]


def claims(arms: Arms) -> str:
    """Every claim in the four corners: first arm minus second, points."""
    rows: list[dict[str, str]] = []
    for claim in CLAIMS:
        for measure in claim.measures:
            row = {"claim": f"{claim.text}, {measure}", "the paper": claim.paper}
            for corner in CORNERS:
                pair = claim.pair(corner)
                known = all(name in arms for name in pair)
                row[corner] = percent(differences(arms, *pair, measure), "+") if known else "not run"
            rows.append(row)
    return "\n".join(markdown_table(("claim", "the paper", *CORNERS), rows))


def corner(arms: Arms, name: str) -> str:
    """The arms of a corner at the end of training; pass@10 also after a third of it."""
    rows: list[dict[str, str]] = []
    rate = rates()
    for stem, label in LABELS.items():
        alike = [arm for arm in arms if re.fullmatch(re.escape(PREFIX[name] + stem) + r"(-\de-\d)?", arm)]
        for arm in sorted(alike, key=lambda arm: -rate[arm]):
            row = {"arm": "" if alike.index(arm) else label, "rate": f"{rate[arm]:.0e}".replace("e-0", "e-")}
            rows.append(row | _figures(arms[arm]))
    return "\n".join(markdown_table(list(rows[0]), rows)) if rows else ""


def _figures(arm: ArmResult) -> dict[str, str]:
    third = [_pass_after(curve["pass@10"], 1 / 3) for curve in arm.curves]
    minutes = sum(arm.values("train s")) / 60 / len(arm.seeds)
    seeds = "" if len(arm.seeds) >= FEWEST else f" (seed{'s' * (len(arm.seeds) > 1)} {', '.join(map(str, arm.seeds))})"
    return {
        "pass@1": percent(arm.values("pass@1")) + seeds,
        "pass@10": percent(arm.values("pass@10")),
        "after a third": f"{100 * fmean(third):.1f}",
        "distinct correct": f"{fmean(arm.values('distinct correct')):.1f}",
        "duplicates": f"{100 * fmean(arm.values('duplicates')):.0f}",
        "online responses": f"{fmean(arm.values('online trajectories')):,.0f}",
        "minutes": f"{minutes:.0f}",
    }


def _pass_after(curve: Mapping[int, float], share: float) -> float:
    """The value at the last evaluated step within that share of training."""
    return curve[max(step for step in curve if step <= share * max(curve))]


def cost(arms: Arms) -> str:
    """Hours of training by corner, and the runs that they are of."""
    rows: list[dict[str, str]] = []
    for name in CORNERS:
        others = [prefix for prefix in PREFIX.values() if len(prefix) > len(PREFIX[name])]
        own = [arm for arm in arms if arm.startswith(PREFIX[name]) and not arm.startswith(tuple(others))]
        hours = sum(sum(arms[arm].values("train s")) for arm in own) / 3600
        runs = sum(len(arms[arm].seeds) for arm in own)
        rows.append({"corner": name, "runs": str(runs), "hours of training": f"{hours:.1f}"})
    return "\n".join(markdown_table(list(rows[0]), rows))


def tables(arms: Arms) -> dict[str, str]:
    """Every table of the page, by what it is of; none of a corner without a run."""
    corners = {name: corner(arms, name) for name in CORNERS}
    return {"claims": claims(arms), **{name: table for name, table in corners.items() if table}, "cost": cost(arms)}


if __name__ == "__main__":
    for title, table in tables(read(*map(Path, sys.argv[1:]))).items():
        print(f"{title}\n\n{table}\n")
