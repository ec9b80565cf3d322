"""What a chart is, and how it becomes a PNG file, or an SVG that takes its colours from the page it stands in.

Knows no data; `tasks/report/charts.py` builds the charts. Equal charts give equal bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure

Axes: TypeAlias = Any
"""matplotlib's Axes; its methods are only partly typed."""

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "++")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a chart. In the page's theme they are names that `svg` turns into CSS variables."""

    ink: str
    faint: str
    paper: str
    series: tuple[str, ...]


PRINT = Theme("#1b1f24", "#c9ced6", "#ffffff", ("#1a4f9c", "#d9631e", "#0f766e", "#7e22ce", "#b58900", "#be185d"))
PAGE = Theme("#01fe01", "#02fe02", "#03fe03", ("#11fe01", "#12fe02", "#13fe03", "#14fe04", "#15fe05", "#16fe06"))
"""Stand-ins, chosen so that no other colour of a chart equals them."""
CSS_NAMES: Mapping[str, str] = {
    PAGE.ink: "var(--ink)",
    PAGE.faint: "var(--faint)",
    PAGE.paper: "var(--paper)",
    **{color: f"var(--series-{i + 1})" for i, color in enumerate(PAGE.series)},
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing that can be rendered in any theme."""

    name: str
    """File name without suffix."""
    title: str
    alt: str
    """What a reader who cannot see the picture should know."""
    draw: Callable[[Figure, Theme], None] = field(repr=False)
    size: tuple[float, float] = (8.0, 3.4)
    """Width and height in inches."""


def save_png(chart: Chart, path: Path, dpi: int = 150) -> Path:
    """Write the chart on a white ground; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_settings(PRINT)):
        _render(chart, PRINT).savefig(path, dpi=dpi, metadata={"Software": None})
    return path


def svg(chart: Chart) -> str:
    """The chart as an `<svg>` element for a page that defines --ink, --faint, --paper and --series-1 to -6."""
    buffer = io.StringIO()
    with mpl.rc_context({**_settings(PAGE), "svg.hashsalt": chart.name, "svg.fonttype": "none"}):
        figure = _render(chart, PAGE)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for color, name in CSS_NAMES.items():
        text = text.replace(color, name)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    label = chart.alt.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def legend_below(figure: Figure, all_axes: Sequence[Axes]) -> None:
    """One legend for all axes, below the figure; none for a single entry."""
    entries: dict[str, Any] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if len(entries) > 1:
        figure.legend(entries.values(), entries.keys(), loc="outside lower left", ncols=3, handlelength=3.2)


def _render(chart: Chart, theme: Theme) -> Figure:
    figure = Figure(figsize=chart.size, layout="constrained")
    chart.draw(figure, theme)
    return figure


def _settings(theme: Theme) -> dict[Any, Any]:
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.titlecolor": theme.ink,
        "axes.facecolor": "none",
        "axes.axisbelow": True,
        "figure.facecolor": theme.paper,
        "grid.color": theme.faint,
        "grid.linewidth": 0.7,
        "hatch.linewidth": 0.8,
        "legend.frameon": False,
        "text.color": theme.ink,
        "text.parse_math": False,  # names of runs and arms may hold dollar signs
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
    }
