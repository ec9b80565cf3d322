"""Charts from plain rows: as PNG files, and as SVG that takes its colours from the page it stands in.

Every chart is a `Chart`: build it from rows with one of the functions below, then `save_png(chart, path)` or
`svg(chart)`. Series differ by colour, line style and marker, bars by hatching, so that everything survives a
black-and-white print. Knows no warehouse; equal rows give equal bytes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

Axes: TypeAlias = Any
"""matplotlib's Axes; its methods are only partly typed."""

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "++")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a chart. In the page's theme they are names that `svg` turns into CSS variables."""

    ink: str
    faint: str
    paper: str
    series: tuple[str, ...]


PRINT = Theme("#1b1f24", "#c9ced6", "#ffffff", ("#1f5fbf", "#c2410c", "#0f766e", "#7e22ce", "#b58900", "#be185d"))
PAGE = Theme("#01fe01", "#02fe02", "#03fe03", ("#11fe01", "#12fe02", "#13fe03", "#14fe04", "#15fe05", "#16fe06"))
"""Stand-ins, chosen so that no other colour of a chart equals them."""
CSS_NAMES: Mapping[str, str] = {
    PAGE.ink: "var(--ink)",
    PAGE.faint: "var(--faint)",
    PAGE.paper: "var(--paper)",
    **{color: f"var(--series-{i + 1})" for i, color in enumerate(PAGE.series)},
}


@dataclass(frozen=True, slots=True)
class Series:
    """One line: y against x, with an interval [low, high] at each x where one is known."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or len(self.low) != len(self.high) or len(self.low) not in (0, len(self.x)):
            raise ValueError(f"series {self.label!r}: x, y, low and high must have one length")


@dataclass(frozen=True, slots=True)
class Panel:
    """One set of axes with some series."""

    title: str
    series: Sequence[Series]
    share: bool = False
    """The y axis is a share in [0, 1], shown in per cent."""


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


def learning_curve(metrics: Mapping[str, Sequence[Series]], x_label: str = "optimizer step") -> Chart:
    """pass@k against training, one panel per metric, one line with its interval per run (the paper's Figure 1).

    `metrics` maps a title such as "pass@1" to its series; values are shares in [0, 1].
    """
    panels = [Panel(title, series, share=True) for title, series in metrics.items()]
    return curves("learning_curve", "Learning curve", panels, x_label)


def learning_curve_png(path: Path, metrics: Mapping[str, Sequence[Series]], x_label: str = "optimizer step") -> Path:
    """Write the learning curve as PNG; returns `path`."""
    return save_png(learning_curve(metrics, x_label), path)


def curves(name: str, title: str, panels: Sequence[Panel], x_label: str) -> Chart:
    """Panels side by side (at most three in a row) with a shared legend below."""
    columns = min(3, max(1, len(panels)))
    rows = math.ceil(len(panels) / columns)

    def draw(figure: Figure, theme: Theme) -> None:
        all_axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flatten())
        for axes, panel in zip(all_axes, panels, strict=False):
            _draw_panel(axes, panel, x_label, theme)
        for axes in all_axes[len(panels) :]:
            axes.set_visible(False)
        _align_shares([axes for axes, panel in zip(all_axes, panels, strict=False) if panel.share])
        _legend_below(figure, all_axes[: len(panels)])

    return Chart(name, title, _describe(title, panels, x_label), draw, size=(8.4, 3.1 * rows + 0.3))


def _draw_panel(axes: Axes, panel: Panel, x_label: str, theme: Theme) -> None:
    for i, series in enumerate(panel.series):
        color = theme.series[i % len(theme.series)]
        if len(series.low):
            axes.fill_between(series.x, series.low, series.high, color=color, alpha=0.16, linewidth=0)
            for edge in (series.low, series.high):
                axes.plot(series.x, edge, color=color, linewidth=0.6, alpha=0.55)
        axes.plot(
            series.x,
            series.y,
            label=series.label,
            color=color,
            linestyle=LINES[i % len(LINES)],
            marker=MARKERS[i % len(MARKERS)],
            markevery=max(1, len(series.x) // 12),
            markersize=4.5,
            linewidth=1.8,
        )
    axes.set_title(panel.title)
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.grid(True, axis="y")
    if panel.share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _align_shares(all_axes: Sequence[Axes]) -> None:
    """Shares start at 0 and have one scale, so that panels can be compared."""
    top = max((axes.get_ylim()[1] for axes in all_axes), default=1.0)
    for axes in all_axes:
        axes.set_ylim(0.0, min(1.02, max(top, 0.05)))


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
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
    }


def _legend_below(figure: Figure, all_axes: Sequence[Axes]) -> None:
    entries: dict[str, Any] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if len(entries) > 1:
        figure.legend(entries.values(), entries.keys(), loc="outside lower left", ncols=3, handlelength=3.2)


def _describe(title: str, panels: Sequence[Panel], x_label: str) -> str:
    parts = [
        f"{panel.title}, {series.label}: from {series.y[0]:.3g} to {series.y[-1]:.3g}"
        for panel in panels
        for series in panel.series
        if len(series.y)
    ]
    return f"{title} against {x_label}. " + "; ".join(parts)
