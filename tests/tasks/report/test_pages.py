"""The report and the trajectory page: complete, self-contained, escaped, and clean in a real browser."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tasks.estimators import beta_interval, soft_value_of_share
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
from tasks.report.success import success_of_value
from tasks.report.trajectory_page import ShownTrajectory, ValueEstimate, success_at, trajectory_page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TOKENS = ["n", " =", " int", "(input", "())", "\n", "print", "(n", " <", " 3)", "\n", ""]


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


def trajectory(**changes: object) -> ShownTrajectory:
    counts = [(0, 800, 40), (3, 10, 1), (6, 10, 2), (7, 10, 8), (9, 10, 9), (12, 1, 1)]
    estimates = [
        ValueEstimate(p, n, k, *((1.0, 1.0) if p == 12 else beta_interval(n, k)), pivotal=p == 7) for p, n, k in counts
    ]
    values = [-3 + 3 * i / 12 for i in range(12)]
    fields = {
        "trajectory_id": "t1",
        "title": "Is it < 3?",
        "statement": "Read <n>.",
        "tokens": TOKENS,
        "estimates": estimates,
        "beta": 1 / math.log(100_000),
        "policy_values": values,
    }
    return ShownTrajectory(**(fields | changes))  # type: ignore[arg-type]


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


@pytest.mark.parametrize("page", [report_html(report()), trajectory_page(trajectory())], ids=["report", "trajectory"])
def test_page_is_balanced_and_loads_nothing_from_elsewhere(page: str) -> None:
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
    with pytest.raises(ValueError, match="'learning_curve'"):
        report_html(twice)


def test_empty_report_is_a_page() -> None:
    assert "nothing yet" in report_html(ReportPage("nothing yet"))


def test_pivotal_token_is_framed_with_its_change_and_counts() -> None:
    page = trajectory_page(trajectory())
    assert re.search(r'class="pivotal"[^>]*changed by \+0\.60[^>]*>print</span><sup>\+0\.60</sup>', page)
    assert "0.20 (2/10)" in page
    assert "0.80 (8/10)" in page
    assert page.count('class="measured"') == 4


def test_tokens_give_back_the_program() -> None:
    page = trajectory_page(trajectory())
    block = page[page.index('<pre class="program">') : page.index("</pre>", page.index('<pre class="program">'))]
    shown = re.sub(r"<sup>.*?</sup>", "", block)
    text = re.sub(r"<[^>]*>", "", shown).replace("⏎", "").replace("∎", "").replace("&lt;", "<")
    assert text == "".join(TOKENS)


def test_success_is_interpolated_between_estimates() -> None:
    estimates = [ValueEstimate(0, 10, 0, 0, 0.2), ValueEstimate(10, 10, 5, 0.3, 0.7)]
    assert success_at(estimates, 0) == 0.0
    assert success_at(estimates, 5) == 0.25
    assert success_at(estimates, 10) == success_at(estimates, 12) == 0.5


def test_trajectory_without_policy_values_or_pivots_still_is_a_page() -> None:
    plain = [ValueEstimate(0, 10, 5, 0.3, 0.7), ValueEstimate(12, 1, 1, 1, 1)]
    page = trajectory_page(trajectory(policy_values=(), estimates=plain))
    assert "None was found." in page
    assert "own value" not in page


@pytest.mark.parametrize(
    "changes", [{"estimates": []}, {"policy_values": [0.0]}, {"estimates": [ValueEstimate(13, 1, 1, 1, 1)]}]
)
def test_rows_that_do_not_fit_the_tokens_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="'t1'"):
        trajectory(**changes)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
@pytest.mark.parametrize("name", ["report", "trajectory"])
def test_page_opens_in_a_real_browser_without_console_messages(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(report_html(report()) if name == "report" else trajectory_page(trajectory()), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    flags += f"--disable-component-update --disable-sync --enable-logging=stderr --user-data-dir={tmp_path / 'profile'}"
    command = [str(BROWSER), *flags.split(), "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    expected = 2 if name == "report" else 1
    assert len(re.findall(r"<figure id=\"chart-[a-z_]+\"><svg", done.stdout)) == expected


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.3, 1.0])
def test_a_value_is_drawn_as_the_success_that_it_means(share: float) -> None:
    beta = 1 / math.log(1000)
    assert success_of_value(soft_value_of_share(share, beta), beta) == pytest.approx(share, abs=1e-12)
    assert success_of_value(-1 / beta - 5, beta) == 0.0
    assert success_of_value(2.0, beta) == 1.0
