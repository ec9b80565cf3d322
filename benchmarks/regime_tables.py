"""Tables and pictures of docs/evidence/regime.md, from the results of `spo study regime` that lie beside the page.

    python -m benchmarks.regime_tables [--path FILE] [--pictures FOLDER]

A test compares the tables with the page. In per cent: means over seeds and 95% Student intervals over seeds, which
fewer than three runs do not get. Differences are paired by seed. `--pictures` draws pass@1 and pass@10 along training
in four corners (paper: Figures 1, 2), for methods and for losses; the page's are in docs/pictures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks import harness
from flows import study_config
from tasks.estimators import mean_interval
from tasks.report import study_results
from tasks.report.arms import ArmResult
from tasks.report.chart_rendering import save_png
from tasks.report.charts import Panel, Series, curves
from tasks.report.study import series_of
from tasks.report.table_sections import markdown_table

RESULTS = Path(__file__).parents[1] / "docs" / "evidence" / "data" / "regime.jsonl"
PREFIX = {"few, large": "few-large-", "few, small": "few-", "many, large": "large-", "many, small": ""}
"""By corner, the beginning of its arms' names. A prefix of another one comes after it."""
CORNERS = tuple(PREFIX)
FEWEST = 3
"""Runs from which on an interval is given."""
Arms = Mapping[str, ArmResult]
"""By their names in the study, with or without the rate at the end."""
PPO = "ppo-3e-5"
"""PPO's arm where many problems meet small steps: the best of the rates that the search tried."""
SQUARED, SIGMOID = ("squared", "half-online-3e-5"), ("advantage-3e-5", "half-online-3e-5")
"""Cross-entropy at the rate of these losses stands beside them there."""
BOTH = ("pass@1", "pass@10")


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
PICTURES: Mapping[str, Mapping[str, str]] = {
    "regime-methods": {
        "SPO half online": "half-online",
        "SPO online": "online",
        "PPO": "ppo",
        "fine-tuning on the corpus": "rejection",
    },
    "regime-losses": {
        "cross-entropy": "half-online",
        "squared": "squared",
        "sigmoid of the advantage": "advantage",
        "reverse Q, squared": "reverse-q-squared",
        "reverse Q, cross-entropy": "reverse-q-cross-entropy",
    },
}
"""By label, the arm without its corner's prefix. A label that a corner lacks comes last, so that colours stay."""
SMALL_STEPS_OF_MANY = {
    "PPO": PPO,
    "cross-entropy": "half-online-3e-5",
    "sigmoid of the advantage": "advantage-3e-5",
    "reverse Q, cross-entropy": "",
}
"""Arms of many problems and small steps with other names; at these losses' rate there is no reverse Q with
cross-entropy."""


def read(path: Path = RESULTS) -> dict[str, ArmResult]:
    """The study's arms that the file has runs of."""
    plan = study_config.load("regime")
    results = study_results.read(path, plan.settings())
    known = {name: ArmResult(arm.label, (), (), ()) for name, arm in plan.arms.items() if name in results.arms}
    return {name: results.added(name, empty) for name, empty in known.items()}


def percent(values: Sequence[float], sign: str = "") -> str:
    """A mean with its interval, or the values of fewer than three runs. Fractions in, per cent out."""
    if len(values) < FEWEST:
        return ", ".join(f"{100 * value:{sign}.1f}" for value in values)
    mean, low, high = (f"{100 * end:{sign}.1f}" for end in mean_interval(values))
    return f"{mean} [{low}, {high}]"


def claims(arms: Arms) -> list[dict[str, str]]:
    """Every claim in the four corners: first arm minus second, points."""
    rows: list[dict[str, str]] = []
    for claim in CLAIMS:
        for measure in claim.measures:
            row = {"first, second": claim.text, "measure": measure, "the paper": claim.paper}
            for corner in CORNERS:
                first, second = (arms.get(name) for name in claim.pair(corner))
                row[corner] = percent(first.differences(second, measure), "+") if first and second else "not run"
            rows.append(row)
    return rows


def at_the_end(arms: Arms, rate: Mapping[str, float], corner: str) -> list[dict[str, str]]:
    """The arms of a corner at the end of training; pass@10 also after a third of it."""
    rows: list[dict[str, str]] = []
    for stem, label in LABELS.items():
        alike = [arm for arm in arms if re.fullmatch(re.escape(PREFIX[corner] + stem) + r"(-\de-\d)?", arm)]
        for number, name in enumerate(sorted(alike, key=lambda arm: -rate[arm])):
            arm, row = arms[name], {"arm": "" if number else label, "rate": study_config.short_text(rate[name])}
            few = f" (seed{'s' * (len(arm.seeds) > 1)} {', '.join(map(str, arm.seeds))})"
            row["pass@1"] = percent(arm.values("pass@1")) + (few if len(arm.seeds) < FEWEST else "")
            third = fmean(_pass_after(curve["pass@10"], 1 / 3) for curve in arm.curves)
            rows.append(row | {"pass@10": percent(arm.values("pass@10")), "after a third": f"{100 * third:.1f}"})
    return rows


def _pass_after(curve: Mapping[int, float], share: float) -> float:
    """The value at the last evaluated step within that share of training."""
    return curve[max(step for step in curve if step <= share * max(curve))]


def cost(arms: Arms) -> list[dict[str, str]]:
    """Hours of training by corner, and the number of runs."""
    rows: list[dict[str, str]] = []
    for corner in CORNERS:
        own = [
            arms[name] for name in arms if next(c for c, start in PREFIX.items() if name.startswith(start)) == corner
        ]
        hours = sum(sum(arm.values("train s")) for arm in own) / 3600
        runs = sum(len(arm.seeds) for arm in own)
        rows.append({"corner": corner, "runs": str(runs), "hours of training": f"{hours:.1f}"})
    return rows


def _corner(arm: str) -> str:
    return next(corner for corner, prefix in PREFIX.items() if arm.startswith(prefix))


def tables(arms: Arms) -> dict[str, str]:
    """Every table of the page by its name; that of a corner without a run is empty."""
    plan = study_config.load("regime")
    rate = {name: plan.config(name, 0).train.optimizer.learning_rate for name in plan.arms}
    found = {"claims": claims(arms), **{corner: at_the_end(arms, rate, corner) for corner in CORNERS}}
    found["cost"] = cost(arms)
    return {name: "\n".join(markdown_table(list(rows[0]), rows)) if rows else "" for name, rows in found.items()}


def arm_of(picture: str, label: str, corner: str) -> str:
    """The arm of a line in a corner; empty where it has none."""
    stem = PICTURES[picture][label]
    return SMALL_STEPS_OF_MANY.get(label, stem) if corner == "many, small" else PREFIX[corner] + stem


def series(label: str, arm: ArmResult, measure: str) -> Series:
    """The arm's curve by optimizer step, under the picture's label."""
    return replace(series_of(arm, measure, fewest=FEWEST), label=label)


def draw(arms: Arms, folder: Path) -> list[Path]:
    """Draws every picture, one for each measure, with four panels."""
    drawn: list[Path] = []
    for picture, labels in PICTURES.items():
        for measure in BOTH:
            panels: list[Panel] = []
            for corner in CORNERS:
                names = {label: arm_of(picture, label, corner) for label in labels}
                lines = [series(label, arms[name], measure) for label, name in names.items() if name in arms]
                panels.append(Panel("{} problems, {} steps".format(*corner.split(", ")), lines, share=True))
            chart = curves(picture, f"{measure} along training", panels, "optimizer step")
            drawn.append(save_png(chart, folder / f"{picture}-{measure.replace('@', '')}.png"))
    return drawn


if __name__ == "__main__":
    options = harness.options(__doc__, path=str(RESULTS), pictures=None)
    found = read(Path(options.path))
    for path in draw(found, Path(options.pictures)) if options.pictures else ():
        print(path)
    for title, table in tables(found).items():
        print(f"{title}\n\n{table}\n")
