"""The pictures of docs/evidence/regime.md: pass@1 and pass@10 along training in four corners (paper: Figures 1, 2).

    python -m benchmarks.regime_pictures [FOLDER]          # docs/pictures without one

Drawn from the results of `spo study regime` that lie beside the page. Means over seeds; bands are 95% Student intervals
over seeds, which fewer than three runs do not get.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.regime_tables import BOTH, CORNERS, FEWEST, PPO, PREFIX, Arms, read
from tasks.report.chart_rendering import save_png
from tasks.report.charts import Panel, Series, curves
from tasks.report.study import ArmResult, series_of

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
TITLES = {corner: "{} problems, {} steps".format(*corner.split(", ")) for corner in CORNERS}
METHODS = {
    "SPO half online": "half-online",
    "SPO online": "online",
    "PPO": "ppo",
    "fine-tuning on the corpus": "rejection",
}
LOSSES = {
    "cross-entropy": "half-online",
    "squared": "squared",
    "sigmoid of the advantage": "advantage",
    "reverse Q, squared": "reverse-q-squared",
    "reverse Q, cross-entropy": "reverse-q-cross-entropy",
}
"""By label, the arm without its corner's prefix; what a corner lacks is last, so that colours stay."""
PICTURES: Mapping[str, Mapping[str, str]] = {"regime-methods": METHODS, "regime-losses": LOSSES}
SMALL_STEPS_OF_MANY: Mapping[str, Mapping[str, str]] = {
    "regime-methods": {"PPO": PPO},
    "regime-losses": {
        "cross-entropy": "half-online-3e-5",
        "sigmoid of the advantage": "advantage-3e-5",
        "reverse Q, cross-entropy": "",
    },
}
"""The arms of many problems and small steps with other names; at the losses' rate there is no reverse Q with
cross-entropy."""


def arm_of(picture: str, label: str, corner: str) -> str:
    """The arm of a line in a corner; empty where it has none."""
    stem = PICTURES[picture][label]
    return SMALL_STEPS_OF_MANY[picture].get(label, stem) if corner == "many, small" else PREFIX[corner] + stem


def series(label: str, arm: ArmResult, measure: str) -> Series:
    """The arm's curve by optimizer step, under another name than the study has for it."""
    return replace(series_of(arm, measure, fewest=FEWEST), label=label)


def draw(arms: Arms, folder: Path) -> list[Path]:
    """Every picture, one for each measure: four panels."""
    drawn: list[Path] = []
    for picture, labels in PICTURES.items():
        for measure in BOTH:
            panels = [
                Panel(TITLES[corner], _lines(arms, picture, list(labels), corner, measure), share=True)
                for corner in CORNERS
            ]
            chart = curves(picture, f"{measure} along training", panels, "optimizer step")
            drawn.append(save_png(chart, folder / f"{picture}-{measure.replace('@', '')}.png"))
    return drawn


def _lines(arms: Arms, picture: str, labels: Sequence[str], corner: str, measure: str) -> list[Series]:
    names = {label: arm_of(picture, label, corner) for label in labels}
    return [series(label, arms[name], measure) for label, name in names.items() if name in arms]


if __name__ == "__main__":
    for path in draw(read(), Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER):
        print(path)
