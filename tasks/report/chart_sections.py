"""The parts of a report that are mostly charts, from the histories of one run or of several side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np

from tasks.estimators import average_paired_difference, beta_interval, mean_of_shares, pass_at_k
from tasks.evaluate.eval_samples import policy_pass_at_k
from tasks.report import charts as figures
from tasks.report.charts import Measure, Panel, Series
from tasks.report.comparison import common_ks
from tasks.report.diagnostics import TrainingHistory, signatures
from tasks.report.report_page import Fact, ReportFinding, ReportSection, ReportTable
from tasks.report.run_history import Point, RunHistory
from tasks.report.table_sections import Histories, difference_text, percent


def facts(history: RunHistory) -> list[Fact]:
    """pass@k of the reference policy and of the last evaluated one; where one was evaluated, its value alone."""
    if not history.points:
        return []
    first, last = history.points[0].scores, history.points[-1].scores
    if len(history.points) == 1 or history.points[0].step > 0:
        return [Fact(f"pass@{k}", percent(policy_pass_at_k(last, k))) for k in history.config.evaluate.ks]
    return [
        Fact(
            f"pass@{k}",
            f"{100 * policy_pass_at_k(first, k).value:.1f}% → {100 * policy_pass_at_k(last, k).value:.1f}%",
            difference_text(average_paired_difference(first, last, k)),
        )
        for k in history.config.evaluate.ks
    ]


def findings(histories: Histories) -> list[ReportFinding]:
    """Failure signatures of each run."""
    found: list[ReportFinding] = []
    for history in histories:
        few, many = min(history.config.evaluate.ks), max(history.config.evaluate.ks)
        curves = {k: [(p.step, policy_pass_at_k(p.scores, k).value) for p in history.points] for k in (few, many)}
        train = history.config.train
        watched = TrainingHistory(
            curves[few], curves[many], history.figures, train.beta, train.reward == "binary", (few, many)
        )
        run = history.run_id if len(histories) > 1 else ""
        found += [ReportFinding(one.name, one.text, one.severity, run) for one in signatures(watched)]
    return found


def learning(histories: Histories) -> ReportSection:
    """pass@k against steps, trajectories and wall-clock (the paper's Figure 1)."""
    evaluated = [history for history in histories if history.points]
    if not evaluated:
        return ReportSection("Learning curve", "No policy of this run has been evaluated completely yet.")
    ks = common_ks(evaluated)
    by_step = {f"pass@{k}": [_series(h, k, lambda p: p.step) for h in evaluated] for k in ks}
    charts = [figures.learning_curve(by_step)]
    unit, length = time_unit(max(point.seconds for history in evaluated for point in history.points))
    axes: list[tuple[str, Callable[[Point], float]]] = [
        ("trajectories trained on", lambda p: p.trajectories),
        (f"{unit} of training", lambda p: p.seconds / length),
    ]
    if any(len(history.points) > 1 for history in evaluated):
        panels = [
            Panel(f"pass@{k}", [_series(h, k, x) for h in evaluated], share=True, x_label=label)
            for k in sorted({ks[0], ks[-1]})
            for label, x in axes
        ]
        charts.append(figures.curves("learning_by_cost", "Learning curve by cost", panels, "cost"))
    text = (
        "pass@k on the evaluation problems, with 95% bootstrap intervals over problems; step 0 is the reference policy."
    )
    return ReportSection("Learning curve", text, charts=charts, tables=_set_tables(evaluated))


def time_unit(longest: float) -> tuple[str, float]:
    """A unit in which `longest` (s) is a handy number, and its length in seconds."""
    return next((found for found in (("hours", 3600.0), ("minutes", 60.0)) if longest >= 3 * found[1]), ("seconds", 1))


def _series(history: RunHistory, k: int, x: Callable[[Point], float]) -> Series:
    found = [policy_pass_at_k(point.scores, k) for point in history.points]
    return Series(
        history.run_id,
        [x(point) for point in history.points],
        [one.value for one in found],
        [one.low for one in found],
        [one.high for one in found],
    )


def _set_tables(histories: Histories) -> list[ReportTable]:
    """pass@k of the last policies per problem set, where there are several."""
    if all(len(history.points[-1].scores) < 2 for history in histories):
        return []
    rows = [
        {"run": h.run_id, "problem set": name, "problems": len(found)}
        | {f"pass@{k}": percent(policy_pass_at_k({name: found}, k)) for k in h.config.evaluate.ks}
        for h in histories
        for name, found in h.points[-1].scores.items()
    ]
    note = "The last evaluated policy; the curves are the mean over the sets, each weighing the same."
    return [ReportTable("By problem set", list(rows[0]), rows, note)]


def diversity(histories: Histories) -> ReportSection | None:
    """How different a policy's samples are, along training."""
    evaluated = [history for history in histories if history.points]
    if not evaluated:
        return None
    ks = common_ks(evaluated)
    few, many = ks[0], ks[-1]
    panels = [
        Panel(f"pass@{many} minus pass@{few}", [_gap(h, few, many) for h in evaluated], share=True),
        Panel("distinct correct programs per problem", [_plain(h, lambda p: p.distinct_correct) for h in evaluated]),
        Panel("share of duplicates", [_plain(h, lambda p: p.duplicates) for h in evaluated], share=True),
    ]
    if all(point.entropy is not None for history in evaluated for point in history.points):
        panels.append(Panel("entropy, nats per token", [_plain(h, lambda p: p.entropy or 0.0) for h in evaluated]))
    text = (
        "Of each policy's own evaluation samples. Programs are compared after normalising their syntax trees: layout, "
        "comments and docstrings do not count."
    )
    return ReportSection("Diversity", text, [figures.curves("diversity", "Diversity", panels, "optimizer step")])


def _plain(history: RunHistory, value: Callable[[Point], float]) -> Series:
    return Series(history.run_id, [p.step for p in history.points], [value(point) for point in history.points])


def _gap(history: RunHistory, few: int, many: int) -> Series:
    """pass@many minus pass@few per problem, which lies in [0, 1]."""
    found = [
        mean_of_shares(
            [
                np.array([pass_at_k(n, c, many) - pass_at_k(n, c, few) for n, c in counts.values()])
                for counts in point.scores.values()
            ]
        )
        for point in history.points
    ]
    steps = [point.step for point in history.points]
    return Series(history.run_id, steps, *([getattr(one, name) for one in found] for name in ("value", "low", "high")))


def training(histories: Histories) -> ReportSection | None:
    """The trainer's own curves, where its sequences came from, and which temperatures paid."""
    charts: list[figures.Chart] = []
    trained = [history for history in histories if history.figures]
    panels = [
        Panel(title, series)
        for name, title in (
            ("loss", "loss"),
            ("online/pass_fraction", "online pass rate"),
            ("online/y_T", "online y_T, nats"),
            ("online/entropy", "online entropy, nats a token"),
            ("grad_norm", "gradient norm"),
            ("wait_s", "waiting for workers, s"),
        )
        if (series := [_curve(h.run_id, h.figures[name]) for h in trained if name in h.figures])
    ]
    if panels:
        charts.append(figures.curves("training", "Training", panels, "optimizer step"))
    mixes = {history.run_id: history.source_mix for history in trained if history.source_mix}
    if mixes:
        charts.append(figures.source_mix(mixes))
    temperatures = {h.run_id: _temperatures(h) for h in histories if h.temperatures}
    if temperatures:
        charts.append(figures.reward_by_temperature(temperatures))
    return ReportSection("Training", charts=charts) if charts else None


def _curve(label: str, curve: Sequence[tuple[float, float]]) -> Series:
    return Series(label, [step for step, _ in curve], [value for _, value in curve])


def _temperatures(history: RunHistory) -> list[Measure]:
    return [
        Measure(
            f"{row['low']:.1f}-{row['low'] + 0.1:.1f}",
            row["k"] / row["n"],
            *beta_interval(int(row["n"]), int(row["k"])),
            note=f"n={row['n']}",
        )
        for row in history.temperatures
    ]


def prompts(histories: Histories) -> ReportSection | None:
    """How hard the training prompts are; runs with the same counts share a chart."""
    different: dict[str, RunHistory] = {}
    for history in histories:
        if history.q0:
            different.setdefault(json.dumps(sorted(history.q0.items())), history)
    charts = [
        figures.q0_histogram(
            list(history.q0.values()),
            history.config.train.beta,
            name=f"q0_histogram_{number}" if len(different) > 1 else "q0_histogram",
        )
        for number, history in enumerate(different.values(), start=1)
    ]
    text = "How often the reference policy solves each prompt at temperature 1."
    return ReportSection("Training prompts", text, charts) if charts else None
