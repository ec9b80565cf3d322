"""One self-contained HTML file from plain rows and charts: the report of a run, or of several side by side.

The stage gathers the rows and hands over a `ReportPage`; nothing here reads a warehouse.

    report = ReportPage("tiny", "what was run", facts=[Fact("pass@10", "84%", "32 problems")], findings=[...],
                        sections=[ReportSection("Learning curve", charts=[charts.learning_curve(...)])])
    write_report(report, folder)          # folder/report.html and folder/<chart name>.png
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup

from tasks.report.chart_rendering import Chart, save_png, svg
from tasks.report.html_template import render


@dataclass(frozen=True, slots=True)
class Fact:
    """A number worth a card at the top."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """Something the report noticed, with what it means and what to do."""

    name: str
    text: str
    severity: Literal["fine", "watch", "alarm"] = "watch"
    run: str = ""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows under named columns; a row is a mapping, columns it lacks stay empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    note: str = ""

    def is_number(self, column: str) -> bool:
        """Whether every value of the column is a number, so that it is aligned right."""
        values = [row.get(column) for row in self.rows]
        return any(value is not None for value in values) and all(
            value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
        )


@dataclass(frozen=True, slots=True)
class Program:
    """A program to read, folded until it is opened."""

    title: str
    text: str
    note: str = ""
    unfolded: bool = False


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A headed part of the report; empty parts are left out."""

    title: str
    text: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[ReportTable] = ()
    programs: Sequence[Program] = ()

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


@dataclass(frozen=True, slots=True)
class ReportPage:
    """The whole report."""

    title: str
    subtitle: str = ""
    facts: Sequence[Fact] = ()
    findings: Sequence[ReportFinding] = ()
    sections: Sequence[ReportSection] = ()
    footer: str = ""


_BODY = """
<header><h1>{{ report.title }}</h1>
{% if report.subtitle %}<p class="quiet">{{ report.subtitle }}</p>{% endif %}</header>
{% if report.sections | length > 1 %}
<nav aria-label="Sections">
{% for section in report.sections %}<a href="#{{ section.anchor }}">{{ section.title }}</a>
{% endfor %}
</nav>
{% endif %}
{% if report.facts %}
<div class="facts">
{% for fact in report.facts %}
<div><span>{{ fact.label }}</span><b>{{ fact.value }}</b>{% if fact.note %}<span>{{ fact.note }}</span>{% endif %}</div>
{% endfor %}
</div>
{% endif %}
{% for finding in report.findings %}
<div class="finding {{ finding.severity }}"><b>{{ finding.name }}</b>
{%- if finding.run %} <span class="quiet">in {{ finding.run }}</span>{% endif %}<br>{{ finding.text }}</div>
{% endfor %}
{% for section in report.sections %}
<section id="{{ section.anchor }}"><h2>{{ section.title }}</h2>
{% if section.text %}<p>{{ section.text }}</p>{% endif %}
{% for chart in section.charts %}
<figure id="chart-{{ chart.name }}">{{ drawings[chart.name] }}</figure>
{% endfor %}
{% for table in section.tables %}
<h3>{{ table.title }}</h3>
{% if table.note %}<p class="quiet">{{ table.note }}</p>{% endif %}
<div class="wide"><table><thead><tr>
{% for column in table.columns %}
<th{% if table.is_number(column) %} class="number"{% endif %}>{{ column }}</th>
{% endfor %}
</tr></thead><tbody>
{% for row in table.rows %}
<tr>{% for column in table.columns %}
<td{% if table.is_number(column) %} class="number"{% endif %}>{{ row.get(column) | cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% endfor %}
{% for program in section.programs %}
<details{% if program.unfolded %} open{% endif %}><summary>{{ program.title }}
{% if program.note %} <span class="quiet">{{ program.note }}</span>{% endif %}</summary>
<pre>{{ program.text }}</pre></details>
{% endfor %}
</section>
{% endfor %}
{% if report.footer %}<footer class="quiet"><p>{{ report.footer }}</p></footer>{% endif %}
"""


def report_html(report: ReportPage) -> str:
    """The report as one HTML page: light and dark, printable, without scripts or anything loaded from elsewhere."""
    names = [chart.name for section in report.sections for chart in section.charts]
    if len(set(names)) < len(names):
        raise ValueError(f"two charts share a name: {sorted(name for name in names if names.count(name) > 1)[0]!r}")
    drawings = {chart.name: Markup(svg(chart)) for section in report.sections for chart in section.charts}
    return render(_BODY, report.title, report=report, drawings=drawings)


def write_report(report: ReportPage, folder: Path, name: str = "report.html") -> list[Path]:
    """Write the page, and every chart as PNG beside it; returns the paths, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / name
    page.write_text(report_html(report), encoding="utf-8")
    charts = [chart for section in report.sections for chart in section.charts]
    return [page, *(save_png(chart, folder / f"{chart.name}.png") for chart in charts)]
