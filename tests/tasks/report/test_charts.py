"""Charts: the same from the same rows, in print and in a page that sets the colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks.report import charts
from tasks.report.charts import (
    Chart,
    Measure,
    Panel,
    Series,
    learning_curve,
    save_png,
    svg,
)

STEPS = [0, 20, 40, 60]


def series(label: str, *values: float) -> Series:
    return Series(label, STEPS, values, [v - 0.05 for v in values], [v + 0.05 for v in values])


def all_charts() -> list[Chart]:
    rows = [{"step": step, "source": name, "sequences": 8} for step in STEPS for name in ("online", "human & <other>")]
    times = [{"run": run, "stage": stage, "seconds": 70.5} for run in ("a", "b") for stage in ("q0", "train")]
    measures = [Measure("0.1-0.2", 0.4, 0.3, 0.5, "n=40"), Measure("0.2-0.3", 0.2, 0.1, 0.3, "n=20")]
    return [
        learning_curve({"pass@1": [series("a", 0.1, 0.2, 0.3, 0.4), series("b", 0.1, 0.1, 0.2, 0.2)], "pass@10": []}),
        charts.curves("diversity", "Diversity", [Panel(str(i), [series("a", 1, 2, 3, 4)]) for i in range(4)], "step"),
        charts.comparison("ablations", "Ablations", {"pass@1": measures, "pass@10": measures}),
        charts.q0_histogram([(800, 0), (800, 1), (800, 3), (800, 800), (10, 3)], 0.0868),
        charts.source_mix({"a": rows, "b": rows[:2]}),
        charts.reward_by_temperature({"a": measures, "b": measures[:1]}),
        charts.stage_time(times),
    ]


@pytest.mark.parametrize("chart", all_charts(), ids=lambda chart: chart.name)
def test_chart_is_written_as_png_and_as_svg_without_colours_of_its_own(chart: Chart, tmp_path: Path) -> None:
    assert save_png(chart, tmp_path / "x.png", dpi=50).read_bytes().startswith(b"\x89PNG")
    text = svg(chart)
    assert text.startswith("<svg")
    assert text.rstrip().endswith("</svg>")
    assert "var(--ink)" in text
    assert set(re.findall(r"#[0-9a-fA-F]{6}\b", text)) <= {"#000000"}
    assert 'role="img"' in text
    assert "http://www.w3.org" in text
    assert not re.search(r'(href|src)="(https?:)?//', text.replace("http://www.w3.org", ""))


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    metrics = {"pass@1": [series("a", 0.1, 0.2, 0.3, 0.4)]}
    first, second = (save_png(learning_curve(metrics), tmp_path / f"{i}.png") for i in range(2))
    assert first.read_bytes() == second.read_bytes()
    assert svg(learning_curve(metrics)) == svg(learning_curve(metrics))


def test_two_charts_of_one_page_share_no_ids_that_clip() -> None:
    one, other = (svg(chart) for chart in all_charts()[:2])
    clips = [set(re.findall(r'clipPath id="([^"]+)"', text)) for text in (one, other)]
    assert clips[0]
    assert not clips[0] & clips[1]


def test_description_tells_what_the_picture_shows() -> None:
    assert "pass@1, a: from 0.1 to 0.4" in learning_curve({"pass@1": [series("a", 0.1, 0.2, 0.3, 0.4)]}).alt


def test_series_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        Series("a", [1, 2], [1.0])
    with pytest.raises(ValueError):
        Series("a", [1, 2], [1.0, 2.0], [0.5], [1.5])


def test_dollar_signs_in_names_are_shown_as_they_are() -> None:
    drawing = svg(
        learning_curve({"pass@1": [series("$beta$ = 1", 0.1, 0.2, 0.3, 0.4), series("a_{$", 0.1, 0.2, 0.3, 0.4)]})
    )
    assert "$beta$ = 1" in drawing
    assert "a_{$" in drawing
