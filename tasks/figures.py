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
class Measure:
    """One value with its interval."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""


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
    """Panels side by side (at most three in a row, four as two by two) with a shared legend below."""
    columns = 2 if len(panels) == 4 else min(3, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))

    def draw(figure: Figure, theme: Theme) -> None:
        all_axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flatten())
        for axes, panel in zip(all_axes, panels, strict=False):
            _draw_panel(axes, panel, x_label, theme)
        for axes in all_axes[len(panels) :]:
            axes.set_visible(False)
        if all(panel.share for panel in panels):
            _align_shares(all_axes[: len(panels)])
        _legend_below(figure, all_axes[: len(panels)])

    return Chart(name, title, _describe(title, panels, x_label), draw, size=(8.4, 3.1 * rows + 0.3))


def comparison(name: str, title: str, metrics: Mapping[str, Sequence[Measure]]) -> Chart:
    """Final values side by side, a dot and its interval per run and a panel per metric (the paper's Figure 2)."""

    def draw(figure: Figure, theme: Theme) -> None:
        all_axes: list[Axes] = list(figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0])
        for axes, (metric, measures) in zip(all_axes, metrics.items(), strict=True):
            for i, measure in enumerate(measures):
                color, marker = theme.series[i % len(theme.series)], MARKERS[i % len(MARKERS)]
                axes.plot([measure.low, measure.high], [i, i], color=color, linewidth=2.2)
                axes.plot(measure.value, i, marker=marker, color=color, markersize=7)
                note = f"{measure.value:.1%}"
                axes.annotate(note, (measure.value, i), (0, 7), textcoords="offset points", ha="center", fontsize=8.5)
            axes.set_yticks(range(len(measures)), [measure.label for measure in measures])
            axes.set_ylim(len(measures) - 0.5, -0.6)
            axes.set_title(metric)
            axes.grid(True, axis="x")
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))

    rows = max((len(measures) for measures in metrics.values()), default=1)
    parts = [f"{metric}, {m.label}: {m.value:.1%}" for metric, measures in metrics.items() for m in measures]
    return Chart(name, title, f"{title}. " + "; ".join(parts), draw, size=(8.4, 1.3 + 0.5 * rows))


def q0_histogram(counts: Sequence[tuple[int, int]], beta: float) -> Chart:
    """How hard the training prompts are for pi_0: prompts by estimated success probability, from (n, k) of each.

    The bins are decades of S; prompts without one success stand apart, at the floor -1/beta of the soft value.
    """
    edges = [1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0]
    labels = ["none", "<0.1%", "0.1-0.3%", "0.3-1%", "1-3%", "3-10%", "10-30%", "30-100%"]
    heights = [0] * len(labels)
    for n, k in counts:
        heights[0 if k == 0 else 1 + sum(k / n >= edge for edge in edges[:-1])] += 1

    def draw(figure: Figure, theme: Theme) -> None:
        axes: Axes = figure.subplots()
        bars = axes.bar(
            range(len(labels)), heights, color=theme.series[0], edgecolor=theme.ink, linewidth=0.8, width=0.85
        )
        bars[0].set(facecolor=theme.paper, hatch="///")
        axes.bar_label(bars, [height or "" for height in heights], padding=2)
        axes.set_xticks(range(len(labels)), labels)
        axes.margins(y=0.1)
        axes.set_title("Training prompts by success of the reference policy")
        axes.set_xlabel(f"share of samples that pass (none: soft value at the floor, {-1 / beta:.1f} nats)")
        axes.set_ylabel("prompts")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(True, axis="y")

    parts = [f"{label}: {height}" for label, height in zip(labels, heights, strict=True)]
    return Chart("q0_histogram", "Success of the reference policy", "Prompts by success. " + "; ".join(parts), draw)


def source_mix(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Where the trained sequences came from, stacked over training.

    `rows`: dicts with `step` (number), `source` (name) and `sequences` (count); sources missing at a step count 0.
    """
    steps = sorted({float(row["step"]) for row in rows})
    names = sorted({str(row["source"]) for row in rows})
    table = {name: dict.fromkeys(steps, 0.0) for name in names}
    for row in rows:
        table[str(row["source"])][float(row["step"])] += float(row["sequences"])
    totals = {step: sum(table[name][step] for name in names) or 1.0 for step in steps}
    shares = {name: [table[name][step] / totals[step] for step in steps] for name in names}

    def draw(figure: Figure, theme: Theme) -> None:
        axes: Axes = figure.subplots()
        colors = [theme.series[i % len(theme.series)] for i in range(len(names))]
        areas = axes.stackplot(steps, list(shares.values()), labels=names, colors=colors, alpha=0.55)
        for i, area in enumerate(areas):
            area.set(hatch=HATCHES[i % len(HATCHES)], edgecolor=theme.ink, linewidth=0.8)
        axes.set_ylim(0, 1)
        axes.set_xlabel("optimizer step")
        axes.set_ylabel("share of the batch")
        axes.set_title("Source mix")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=4)

    last = "; ".join(f"{name}: {values[-1]:.0%}" for name, values in shares.items())
    return Chart("source_mix", "Source mix", f"Share of each source in the batches, at the end: {last}", draw)


def reward_by_temperature(measures: Sequence[Measure]) -> Chart:
    """Share of online responses that pass, by sampling temperature; `label` names the range, `note` the count."""

    def draw(figure: Figure, theme: Theme) -> None:
        axes: Axes = figure.subplots()
        values = [measure.value for measure in measures]
        reach = [[m.value - m.low for m in measures], [m.high - m.value for m in measures]]
        axes.bar(range(len(values)), values, color=theme.series[0], edgecolor=theme.ink, linewidth=0.8, alpha=0.75)
        axes.errorbar(range(len(values)), values, yerr=reach, fmt="none", color=theme.ink, ecolor=theme.ink, capsize=4)
        axes.set_xticks(range(len(values)), [f"{m.label}\n{m.note}" for m in measures])
        axes.set_xlabel("sampling temperature")
        axes.set_ylabel("responses that pass")
        axes.set_title("Reward by temperature")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(bottom=0)
        axes.grid(True, axis="y")

    parts = "; ".join(f"{m.label}: {m.value:.1%}" for m in measures)
    return Chart("reward_by_temperature", "Reward by temperature", f"Share that pass. {parts}", draw)


def stage_time(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Time of each stage, bars grouped by stage, one hatching per run.

    `rows`: dicts with `run`, `stage` (in order of execution) and `seconds`.
    """
    runs = list(dict.fromkeys(str(row["run"]) for row in rows))
    stages = list(dict.fromkeys(str(row["stage"]) for row in rows))
    seconds = {(str(row["run"]), str(row["stage"])): float(row["seconds"]) for row in rows}
    thickness = 0.8 / max(1, len(runs))

    def draw(figure: Figure, theme: Theme) -> None:
        axes: Axes = figure.subplots()
        for i, run in enumerate(runs):
            widths = [seconds.get((run, stage), 0.0) for stage in stages]
            places = [place + (i - (len(runs) - 1) / 2) * thickness for place in range(len(stages))]
            style = {"color": theme.series[i % len(theme.series)], "hatch": HATCHES[i % len(HATCHES)]}
            bars = axes.barh(
                places, widths, thickness, label=run, edgecolor=theme.ink, linewidth=0.8, alpha=0.75, **style
            )
            axes.bar_label(bars, [duration(width) if width else "" for width in widths], padding=3)
        axes.set_yticks(range(len(stages)), stages)
        axes.set_ylim(len(stages) - 0.5, -0.5)
        axes.margins(x=0.12)
        axes.set_xlabel("seconds")
        axes.set_title("Time per stage")
        axes.grid(True, axis="x")
        _legend_below(figure, [axes])

    parts = "; ".join(f"{run}, {stage}: {duration(value)}" for (run, stage), value in seconds.items())
    size = (8.0, 1.0 + 0.3 * len(stages) * max(1.2, len(runs)))
    return Chart("stage_time", "Time per stage", f"Time per stage. {parts}", draw, size)


def duration(seconds: float) -> str:
    """A time people read: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


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
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(True, axis="y")
    lowest, highest = axes.dataLim.intervaly
    if lowest >= 0 and math.isfinite(highest):
        axes.set_ylim(0, 1.06 * highest or 1.0)
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
