"""The report: complete, self-contained, escaped, and clean in a real browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tasks.report.charts import Measure, Series, comparison, learning_curve
from tasks.report.report_page import (
    Fact,
    Program,
    ReportFinding,
    ReportPage,
    ReportSection,
    ReportTable,
    report_html,
    write_report,
)
from tests.browser import needs_browser, opened


def report() -> ReportPage:
    steps, values = [0, 20, 40], [0.1, 0.3, 0.6]
    curve = Series("tiny", steps, values, [v - 0.05 for v in values], [v + 0.05 for v in values])
    return ReportPage(
        "tiny <b>run</b>",
        "half online",
        facts=[Fact("pass@10", "60%", "from 10%")],
        findings=[ReportFinding("Policy collapse", "pass@10 is flat & so on", "alarm", "ppo")],
        sections=[
            ReportSection("Learning curve", "Held-out problems.", charts=[learning_curve({"pass@1": [curve]})]),
            ReportSection(
                "Ablations", charts=[comparison("ablations", "Ablations", {"pass@1": [Measure("a", 0.5, 0.4, 0.6)]})]
            ),
            ReportSection(
                "Time",
                tables=[ReportTable("Stages", ["stage", "seconds", "note"], [{"stage": "q0", "seconds": 1234.567}])],
                programs=[Program("p/1", "print('<script>alert(1)</script>')", "step 20")],
            ),
        ],
    )


class Structure(HTMLParser):
    """Counts tags and refuses unbalanced ones."""

    VOID = frozenset({"meta", "br", "link", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def structure(html: str) -> Structure:
    parser = Structure()
    parser.feed(html)
    assert parser.open == []
    return parser


def test_page_is_balanced_and_loads_nothing_from_elsewhere() -> None:
    page = report_html(report())
    found = structure(page)
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert not re.search(r"(src|href)=[\"'](?!#)", page)
    assert "@import" not in page
    assert "prefers-color-scheme: dark" in page
    assert "default-src 'none'" in page


def test_report_holds_every_part_and_escapes_what_it_is_given() -> None:
    page = report_html(report())
    assert "tiny &lt;b&gt;run&lt;/b&gt;" in page
    assert "&lt;script&gt;" in page
    assert page.count("<svg") == 2
    assert "1235" in page
    assert 'href="#learning-curve"' in page
    assert 'id="learning-curve"' in page
    assert "Policy collapse" in page


def test_report_is_written_with_every_chart_beside_it(tmp_path: Path) -> None:
    paths = write_report(report(), tmp_path / "deep" / "folder")
    assert [path.name for path in paths] == ["report.html", "learning_curve.png", "ablations.png"]
    assert all(path.stat().st_size > 1000 for path in paths)
    assert paths[0].stat().st_size < 300_000


def test_two_charts_of_one_name_are_refused() -> None:
    twice = ReportPage("x", sections=[report().sections[0], report().sections[0]])
    with pytest.raises(ValueError):
        report_html(twice)


def test_empty_report_is_a_page() -> None:
    assert "nothing yet" in report_html(ReportPage("nothing yet"))


@needs_browser
def test_page_opens_in_a_real_browser_without_console_messages(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(report_html(report()), encoding="utf-8")
    shown = opened(page, tmp_path / "profile")
    assert len(re.findall(r"<figure id=\"chart-[a-z_]+\"><svg", shown)) == 2
