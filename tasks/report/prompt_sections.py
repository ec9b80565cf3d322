"""The part of a report about the problems that rollouts answered: which were drawn how often, and why."""

from __future__ import annotations

from typing import Any

from tasks.estimators import Counts
from tasks.report import charts
from tasks.report.charts import Panel, Series
from tasks.report.report_page import ReportSection, ReportTable
from tasks.report.run_history import RunHistory
from tasks.report.table_sections import Histories

BELIEFS = ("hopeless", "open", "solved")
RATES = ((0.0, "never"), (0.05, "up to 5%"), (0.25, "5% to 25%"), (0.75, "25% to 75%"), (1.0, "above 75%"))
"""Largest success rate of pi_0 -> the problems that have at most it."""


def drawn_problems(histories: Histories) -> ReportSection | None:
    """What each run drew, by how often pi_0 solves it; and by what was believed where that decided it."""
    rows = [row for history in histories if history.drawn for row in _by_rate(history)]
    if not rows:
        return None
    columns = ["run", "pi_0 solves it", "problems", "responses", "a problem", "pass"]
    table = ReportTable("Online responses by problem", columns if len(histories) > 1 else columns[1:], rows)
    chosen = [history for history in histories if history.believed]
    panels = [
        Panel(f"believed {kind}", [_share(history, kind) for history in chosen], share=True)
        for kind in BELIEFS
        if chosen
    ]
    text = "Which training problems the rollout workers answered."
    if chosen:
        text += (
            " They were drawn by the expected variance p (1 - p) of their reward. Believed hopeless: the chance of "
            "success was expected below 5% when the problem was drawn; solved: above 95%; open: between."
        )
    pictures = [charts.curves("drawn_problems", "What was drawn", panels, "optimizer step")] if panels else []
    return ReportSection("Problems drawn", text, pictures, [table])


def _by_rate(history: RunHistory) -> list[dict[str, Any]]:
    groups: dict[str, list[Counts]] = {label: [] for _, label in RATES}
    drawn = {str(row["problem_id"]): (int(row["n"]), int(row["k"])) for row in history.drawn}
    for problem, (n, k) in history.q0.items():
        rate = k / n if n else 0.0
        groups[next(label for most, label in RATES if rate <= most)].append(drawn.get(problem, (0, 0)))
    found: list[dict[str, Any]] = []
    for label, counts in groups.items():
        responses, passed = sum(n for n, _ in counts), sum(k for _, k in counts)
        if counts:
            found.append(
                {"run": history.run_id, "pi_0 solves it": label, "problems": len(counts), "responses": responses}
                | {"a problem": round(responses / len(counts), 1)}
                | {"pass": f"{passed / responses:.0%}" if responses else ""}
            )
    return found


def _share(history: RunHistory, kind: str) -> Series:
    """Share of the responses to problems of one kind, by optimizer step of the weights."""
    totals: dict[float, float] = {}
    of_kind: dict[float, float] = {}
    for row in history.believed:
        step, responses = float(row["step"]), float(row["responses"])
        totals[step] = totals.get(step, 0.0) + responses
        of_kind[step] = of_kind.get(step, 0.0) + responses * (row["kind"] == kind)
    return Series(history.run_id, list(totals), [of_kind[step] / total for step, total in totals.items()])
