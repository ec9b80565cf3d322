"""The report of one run, or of several side by side, put together from what the warehouse knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from tasks.report import chart_sections as sections
from tasks.report import corpus_sections, prompt_sections, reuse_sections, run_history
from tasks.report import table_sections as tables
from tasks.report.comparison import NothingToCompare
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

    Raises NothingToCompare when two of them were evaluated on problems of which none is common to both.
    """
    _refuse_disjoint([history for history in histories if history.points])
    return write_report(assemble(histories, described(histories), location), folder)


def _refuse_disjoint(evaluated: Sequence[RunHistory]) -> None:
    for first, second in combinations(evaluated, 2):
        if not _problems(first) & _problems(second):
            raise NothingToCompare(
                f"{first.run_id} and {second.run_id} were evaluated on different problems; none is common to both, so "
                f"their curves do not belong in one figure. `spo report {second.run_id}` shows it alone"
            )


def _problems(history: RunHistory) -> set[tuple[str, str]]:
    return {(name, problem) for name, found in history.points[-1].scores.items() for problem in found}


def described(histories: Sequence[RunHistory]) -> str:
    """How many problems and samples stand behind the numbers."""
    evaluated = [history for history in histories if history.points]
    if not evaluated:
        return "not evaluated yet"
    texts = [
        f"{sum(map(len, history.points[-1].scores.values()))} evaluation problems, "
        f"{history.config.evaluate.samples} samples each"
        for history in evaluated
    ]
    return "; ".join(dict.fromkeys(texts))
