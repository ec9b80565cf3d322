"""A question in SQL: its answer as a table, a chart or CSV. Read-only, with limits of time and rows."""

from __future__ import annotations

import csv
import io
from typing import Any

from tasks.explorer.drawing import Dot, Line, Plot, plot
from tasks.explorer.look import Look, Page
from warehouse import BadQuestion, StillReading, TookTooLong
from warehouse.queries import queries_of, query
from warehouse.reading.readers import Answer

TABLES = query(__name__, "tables")
MOST_ROWS = 500
MOST_CSV_ROWS = 100_000
MOST_POINTS = 2_000
LARGEST_RATIO = 20
"""Columns whose numbers are larger than this many times the first's would flatten it and are left out of a chart."""
EXAMPLES = {
    "learning": query("tasks.explorer.examples", "learning"),
    "hardest": query("tasks.explorer.examples", "hardest"),
    "found": query("tasks.explorer.examples", "found"),
    "mix": query("tasks.explorer.examples", "mix"),
    "cost": query("tasks.explorer.examples", "cost"),
    "studies": query("tasks.explorer.examples", "studies"),
}
VIEWS = ("table", "chart", "plan")


def ask_page(look: Look) -> Page:
    """The box, and the answer when the address holds a question."""
    text, view = look.address.text("sql"), look.address.choice("view", VIEWS)
    answer: Answer | None = None
    problem = plan = ""
    if text:
        try:
            _wait_for_responses(look, text)
            answer = look.session.ask(text, limit=MOST_POINTS if view == "chart" else MOST_ROWS)
            plan = look.session.plan(text) if view == "plan" else ""
        except (BadQuestion, TookTooLong) as error:
            problem = str(error)
    return Page(
        "ask.html",
        "Ask",
        "/ask",
        {
            "text": text,
            "view": view,
            "views": VIEWS,
            "answer": answer,
            "problem": problem,
            "plan": plan,
            "chart": chart_of(answer) if answer and view == "chart" else None,
            "tables": look.rows(TABLES),
            "examples": [
                (queries_of("tasks.explorer.examples")[name].question, text) for name, text in EXAMPLES.items()
            ],
            "most": MOST_ROWS,
        },
    )


def ask_csv(look: Look) -> str:
    """The answer as CSV; raises BadQuestion and TookTooLong."""
    text = look.address.needed("sql")
    _wait_for_responses(look, text)
    answer = look.session.ask(text, limit=MOST_CSV_ROWS)
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)
    return written.getvalue()


def _wait_for_responses(look: Look, text: str) -> None:
    if "resident." in text:
        try:
            look.session.need_responses(5.0)
        except StillReading as error:
            raise BadQuestion(str(error)) from error


def chart_of(answer: Answer) -> Any:
    """A line per column of numbers against the first column of numbers; None when there are not two such columns.

    A column of texts before them, such as a run, makes a line of each of its values.
    """
    numeric = [i for i in range(len(answer.columns)) if _numbers(answer, i)]
    if len(numeric) < 2:
        return None
    x, *ys = numeric
    sizes = {y: max((abs(row[y]) for row in answer.rows if row[y] is not None), default=0) for y in ys}
    ys = [y for y in ys if sizes[y] <= LARGEST_RATIO * max(sizes[ys[0]], 1e-9)]
    labels = next((i for i in range(len(answer.columns)) if i not in numeric), None)
    lines: dict[str, list[Dot]] = {}
    for row in answer.rows:
        if row[x] is None:
            continue
        for y in ys:
            name = answer.columns[y] if labels is None else f"{row[labels]} {answer.columns[y]}"
            if row[y] is not None:
                lines.setdefault(name[:60], []).append(Dot(float(row[x]), float(row[y])))
    made = [Line(name, sorted(dots, key=lambda dot: dot.x), step=len(dots) > 60) for name, dots in lines.items()]
    return plot(Plot("Answer", made[:12], answer.columns[x])) or None


def _numbers(answer: Answer, column: int) -> bool:
    values = [row[column] for row in answer.rows if row[column] is not None]
    return bool(values) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
