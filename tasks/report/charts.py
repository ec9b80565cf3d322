"""Charts from plain rows.

Every chart is a `Chart`: build it from rows with one of the functions below, then `save_png(chart, path)` or
`svg(chart)`. Series differ by colour, line style and marker, bars by hatching, so that everything survives a
black-and-white print. Knows no warehouse; equal rows give equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tasks.report.chart_rendering import HATCHES, LINES, MARKERS, Axes, Chart, Theme, legend_below, save_png, svg
from tasks.run.durations import duration

__all__ = ["Chart", "Measure", "Panel", "Series", "Theme", "save_png", "svg"]


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
    x_label: str = ""
    """What the x axis counts, where it is not the chart's."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One value with its interval."""

    label: str
    value: float
    low: float
    high: float
    note: str = ""


def learning_curve(metrics: Mapping[str, Sequence[Series]], x_label: str = "optimizer step") -> Chart:
    """pass@k against training, one panel per metric, one line with its interval per run (the paper's Figure 1).

    `metrics` maps a title such as "pass@1" to its series; values are shares in [0, 1].
    """
    panels = [Panel(title, series, share=True) for title, series in metrics.items()]
    return curves("learning_curve", "Learning curve", panels, x_label)


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
        legend_below(figure, all_axes[: len(panels)])

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
            # At whole numbers, as they are written.
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))

    rows = max((len(measures) for measures in metrics.values()), default=1)
    parts = [f"{metric}, {m.label}: {m.value:.1%}" for metric, measures in metrics.items() for m in measures]
    return Chart(name, title, f"{title}. " + "; ".join(parts), draw, size=(8.4, 1.3 + 0.5 * rows))


def q0_histogram(counts: Sequence[tuple[int, int]], beta: float, name: str = "q0_histogram") -> Chart:
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
    return Chart(name, "Success of the reference policy", "Prompts by success. " + "; ".join(parts), draw)


def source_mix(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Chart:
    """Where the trained sequences came from, stacked over training, runs side by side.

    Rows: dicts with `step` (number), `source` (name) and `sequences` (count); sources missing at a step count 0.
    """
    sources = sorted({str(row["source"]) for rows in runs.values() for row in rows})
    mixes = {run: _shares(rows, sources) for run, rows in runs.items()}
    columns = min(3, max(1, len(runs)))

    def draw(figure: Figure, theme: Theme) -> None:
        all_axes: list[Axes] = list(figure.subplots(-(-len(runs) // columns), columns, squeeze=False).flatten())
        colors = [theme.series[i % len(theme.series)] for i in range(len(sources))]
        for axes, (run, (steps, shares)) in zip(all_axes, mixes.items(), strict=False):
            areas = axes.stackplot(steps, shares, labels=sources, colors=colors, alpha=0.55)
            for i, area in enumerate(areas):
                area.set(hatch=HATCHES[i % len(HATCHES)], edgecolor=theme.ink, linewidth=0.8)
            axes.set_ylim(0, 1)
            axes.set_xlabel("optimizer step")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            axes.set_title("Source mix" if len(runs) == 1 else f"Source mix of {run}")
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        for axes in all_axes[len(runs) :]:
            axes.set_visible(False)
        all_axes[0].set_ylabel("share of the batch")
        figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=4)

    ends = [f"{run}, {s}: {v[-1]:.0%}" for run, (_, mix) in mixes.items() for s, v in zip(sources, mix, strict=True)]
    size = (8.4, 0.6 + 2.4 * -(-len(runs) // columns))
    return Chart("source_mix", "Source mix", f"Share of each source at the end: {'; '.join(ends)}", draw, size)


def _shares(rows: Sequence[Mapping[str, Any]], sources: Sequence[str]) -> tuple[list[float], list[list[float]]]:
    """The steps, and each source's share of the sequences at each."""
    steps = sorted({float(row["step"]) for row in rows})
    table = {source: dict.fromkeys(steps, 0.0) for source in sources}
    for row in rows:
        table[str(row["source"])][float(row["step"])] += float(row["sequences"])
    totals = {step: sum(table[source][step] for source in sources) or 1.0 for step in steps}
    return steps, [[table[source][step] / totals[step] for step in steps] for source in sources]


def reward_by_temperature(runs: Mapping[str, Sequence[Measure]]) -> Chart:
    """Share of online responses that pass, by sampling temperature, bars grouped by range, one hatching per run.

    `label` names the range, `note` the count (shown when there is one run).
    """
    ranges = sorted({measure.label for measures in runs.values() for measure in measures})
    notes = {m.label: m.note for measures in runs.values() for m in measures} if len(runs) == 1 else {}
    thickness = 0.8 / max(1, len(runs))

    def draw(figure: Figure, theme: Theme) -> None:
        axes: Axes = figure.subplots()
        for i, (run, measures) in enumerate(runs.items()):
            places = [ranges.index(m.label) + (i - (len(runs) - 1) / 2) * thickness for m in measures]
            values = [measure.value for measure in measures]
            reach = [[m.value - m.low for m in measures], [m.high - m.value for m in measures]]
            style = {"color": theme.series[i % len(theme.series)], "hatch": HATCHES[i % len(HATCHES)]}
            axes.bar(places, values, thickness, label=run, edgecolor=theme.ink, linewidth=0.8, alpha=0.75, **style)
            axes.errorbar(places, values, yerr=reach, fmt="none", color=theme.ink, ecolor=theme.ink, capsize=3)
        axes.set_xticks(range(len(ranges)), [f"{name}\n{notes[name]}" if notes else name for name in ranges])
        axes.set_xlabel("sampling temperature")
        axes.set_ylabel("responses that pass")
        axes.set_title("Reward by temperature")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(bottom=0)
        axes.grid(True, axis="y")
        legend_below(figure, [axes])

    parts = "; ".join(f"{run}, {m.label}: {m.value:.1%}" for run, measures in runs.items() for m in measures)
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
        legend_below(figure, [axes])

    parts = "; ".join(f"{run}, {stage}: {duration(value)}" for (run, stage), value in seconds.items())
    size = (8.0, 1.0 + 0.3 * len(stages) * max(1.2, len(runs)))
    return Chart("stage_time", "Time per stage", f"Time per stage. {parts}", draw, size)


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
    axes.set_xlabel(panel.x_label or x_label)
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


def _describe(title: str, panels: Sequence[Panel], x_label: str) -> str:
    parts = [
        f"{panel.title}, {series.label}: from {series.y[0]:.3g} to {series.y[-1]:.3g}"
        + (f" against {panel.x_label}" if panel.x_label else "")
        for panel in panels
        for series in panel.series
        if len(series.y)
    ]
    return f"{title} against {x_label}. " + "; ".join(parts)
