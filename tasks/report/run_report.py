"""The report of one run, or of several side by side, put together from what the warehouse knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from tasks.evaluate.eval_samples import samples_text
from tasks.report import chart_sections as sections
from tasks.report import corpus_sections, prompt_sections, reuse_sections, run_history
from tasks.report import table_sections as tables
from tasks.report.comparison import NothingToCompare, paired
from tasks.report.report_page import ReportPage, write_report
from tasks.report.run_history import RunHistory
from tasks.run.stage import Context


def write_finished(context: Context, subtitle: str) -> list[Path]:
    """The report of the run that has been evaluated, in its folder; returns the paths, the page first."""
    history = run_history.read(context.warehouse, context.home, context.run_id)
    report = assemble([history], subtitle, str(context.warehouse.location))
    *parts, settings = report.sections
    report = replace(report, sections=[*parts, *corpus_sections.sections(context), settings])
    return write_report(report, context.run_dir / "report")


def assemble(histories: Sequence[RunHistory], subtitle: str, location: str) -> ReportPage:
    """The report of one run, or of several side by side."""
    parts = [
        sections.learning(histories),
        tables.side_by_side(histories),
        sections.diversity(histories),
        sections.training(histories),
        reuse_sections.staleness(histories),
        sections.prompts(histories),
        prompt_sections.drawn_problems(histories),
        tables.discoveries(histories),
        tables.cost(histories),
        tables.configuration(histories),
    ]
    names = [history.run_id for history in histories]
    return ReportPage(
        title=f"Run {names[0]}" if len(names) == 1 else f"Runs {', '.join(names)}",
        subtitle=subtitle,
        facts=sections.facts(histories[0]) if len(histories) == 1 else (),
        findings=sections.findings(histories),
        sections=[part for part in parts if part is not None],
        footer=f"Written by spo-pipeline from the warehouse at {location}.",
    )


def write(histories: Sequence[RunHistory], location: str, folder: Path) -> list[Path]:
    """The report of these runs as far as they have got; returns the paths, the page first.

    Raises NothingToCompare when two of them have no evaluation problem in common that the same tests judged, or all of
    them no k of pass@k.
    """
    for first, second in combinations([history for history in histories if history.points], 2):
        _refuse_incomparable(first, second)
    return write_report(assemble(histories, described(histories), location), folder)


def _refuse_incomparable(first: RunHistory, second: RunHistory) -> None:
    try:
        paired((first, first.points[-1]), (second, second.points[-1]))
    except NothingToCompare as error:
        raise NothingToCompare(
            f"{error}. Their curves do not belong in one figure: `spo report {second.run_id}` shows it alone"
        ) from None


def described(histories: Sequence[RunHistory]) -> str:
    """How many problems and samples stand behind the numbers."""
    evaluated = [history for history in histories if history.points]
    if not evaluated:
        return "not evaluated yet"
    texts = [
        f"{sum(map(len, history.points[-1].scores.values()))} evaluation problems, "
        f"{samples_text(history.points[-1].scores)}"
        for history in evaluated
    ]
    return "; ".join(dict.fromkeys(texts))
