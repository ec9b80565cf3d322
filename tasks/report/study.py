"""The comparison of a study: measures of each arm over its seeds with intervals, as a page, pictures and Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tasks.estimators import mean_interval
from tasks.report import charts, ranks, reached, run_history
from tasks.report.arms import ArmResult, Spent
from tasks.report.charts import Measure, Series
from tasks.report.report_page import ReportPage, ReportSection, ReportTable, write_report
from tasks.report.run_history import Point
from tasks.report.table_sections import markdown_table
from tasks.run.identity import digest
from tasks.run.manifests import EvaluateManifest, PrepareManifest
from tasks.run.stage import finished
from warehouse import Warehouse
from warehouse.queries import query

COST = query(__name__, "cost")
PROBLEMS = query(__name__, "problems")

MOST_LINES = 12
"""Arms of a group whose curves are drawn: more lines cannot be told apart."""
ROUNDING = 0.01
"""Within that share of the samples one reference policy's pass@k may differ between machines."""
BEFORE = " of pi_0"
"""Ends the name of a measure of the reference policy, with which every run begins."""


def collect(
    store: Warehouse, home: Path, label: str, run_ids: Mapping[int, str], stopped: Sequence[int] = ()
) -> ArmResult:
    """What the warehouse knows of an arm's runs by seed, which must have been evaluated."""
    curves: list[dict[str, dict[int, float]]] = []
    measures: list[dict[str, float]] = []
    spent: list[dict[int, Spent]] = []
    problems: list[dict[str, str]] = []
    for run_id in run_ids.values():
        evaluation = finished(store, EvaluateManifest, run_id=run_id)
        if evaluation is None:
            raise LookupError(f"run {run_id!r} has no finished evaluation; run spo/evaluate -p run={run_id}")
        curve: dict[str, dict[int, float]] = {}
        for point in evaluation.curve:
            curve.setdefault(f"pass@{point.k}", {})[point.step] = point.value
        curves.append(curve)
        points = run_history.points(store, home, run_id)
        trainer = run_history.trained_by(store, points[-1].policy_id, run_id)
        measures.append(_measures(store, points, trainer, curve))
        spent.append(reached.read(store, trainer))
        problems.append(problem_digests(store, run_id))
    return ArmResult(label, list(run_ids), curves, measures, spent, stopped, problems)


def problem_digests(store: Warehouse, run_id: str) -> dict[str, str]:
    """A digest of the run's problems for each split: what they say and how they are judged."""
    prepared = finished(store, PrepareManifest, run_id=run_id)
    if prepared is None:
        raise LookupError(f"run {run_id!r} has no problems yet; run spo/prepare -p run={run_id}")
    found: dict[str, list[tuple[str, str]]] = {}
    for row in store.rows(PROBLEMS, {"batch": prepared.problems_batch}):
        found.setdefault(row["split"], []).append((row["problem_id"], row["content_hash"]))
    return {split: digest(problems=problems) for split, problems in found.items()}


def _measures(
    store: Warehouse, points: Sequence[Point], trainer: str, curve: Mapping[str, Mapping[int, float]]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, values in curve.items():
        found[name] = values[max(values)]
        found[f"{name}{BEFORE}"] = values[min(values)]
    found |= _diversity(points[-1])
    found |= {f"{name}{BEFORE}": value for name, value in _diversity(points[0]).items()}
    return found | _numbers(store.rows(COST, {"run": trainer})[0])


def _diversity(point: Point) -> dict[str, float]:
    return _numbers(
        {"distinct correct": point.distinct_correct, "duplicates": point.duplicates, "entropy": point.entropy}
    )


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if value is not None}


Groups = Sequence[tuple[str, str, Sequence[str]]]
"""Title, text, and the names of the arms."""


def write(title: str, arms: Mapping[str, ArmResult], groups: Groups, folder: Path) -> Path:
    """Write `report.html`, the pictures, `study.md` and `study.json` into `folder`; returns the page."""
    shown = [
        (number, heading, text, [arms[name] for name in names])
        for number, (heading, text, names) in enumerate(groups)
        if names
    ]
    tables = [group_tables(members) for *_, members in shown]
    sections = [
        ReportSection(heading, text, charts=_charts(number, members), tables=found)
        for (number, heading, text, members), found in zip(shown, tables, strict=True)
    ]
    seeds = max((len(arm.seeds) + len(arm.stopped) for arm in arms.values()), default=0)
    report = ReportPage(
        title, f"{len(arms)} arms, {seeds} seed(s); 95% Student intervals over seeds.", sections=sections
    )
    page, *pictures = write_report(report, folder)
    for old in {*folder.glob("*.png")}.difference(pictures):  # of groups that this comparison has not
        old.unlink()
    texts = [(heading, text, found) for (_, heading, text, _), found in zip(shown, tables, strict=True)]
    (folder / "study.md").write_text(markdown(title, texts), encoding="utf-8")
    raw = {
        "title": title,
        "arms": {name: asdict(arm) for name, arm in arms.items()},
        "groups": [
            {"title": heading, "text": text, "tables": [asdict(table) for table in found]}
            for heading, text, found in texts
        ],
    }
    (folder / "study.json").write_text(json.dumps(raw, indent=1), encoding="utf-8")
    return page


def _charts(number: int, arms: Sequence[ArmResult]) -> list[charts.Chart]:
    members = [arm for arm in arms if arm.measures]
    if not members:
        return []
    shared = sorted(set.intersection(*({*found} for arm in members for found in arm.curves)), key=_k)
    if not shared:
        return []
    names = list(dict.fromkeys((shared[0], shared[-1])))
    curves = {name: [series_of(arm, name) for arm in members] for name in names}
    finals = {name: [_measure(arm, name) for arm in members] for name in names}
    final = charts.comparison(f"final_{number}", "pass@k at the end", finals)
    if len(members) > MOST_LINES:
        return [final]
    found = [charts.curves(f"curves_{number}", "pass@k along training", _panels(curves), "optimizer step"), final]
    sampled = {name: [series_of(arm, name, over_tokens=True) for arm in members if _sampled(arm)] for name in names}
    if any(sampled.values()):
        found.append(charts.curves(f"tokens_{number}", "pass@k over sampling", _panels(sampled), "online tokens"))
    return found


def _panels(curves: Mapping[str, Sequence[Series]]) -> list[charts.Panel]:
    return [charts.Panel(name, lines, share=True) for name, lines in curves.items()]


def _sampled(arm: ArmResult) -> bool:
    """Whether every run of the arm sampled something that it trained on."""
    return bool(arm.spent) and all(any(at.tokens for at in spent.values()) for spent in arm.spent)


def series_of(arm: ArmResult, name: str, *, over_tokens: bool = False, fewest: int = 2) -> Series:
    """The arm's curve by optimizer step, or over the online tokens that its runs had sampled by then (mean).

    Intervals have those of at least `fewest` runs.
    """
    steps = sorted(set.intersection(*(set(curve[name]) for curve in arm.curves)))
    points = [mean_interval([curve[name][step] for curve in arm.curves]) for step in steps]
    intervals = len(arm.curves) >= fewest
    tokens = [fmean(spent.get(step, Spent()).tokens for spent in arm.spent) for step in steps] if over_tokens else []
    return Series(
        arm.label,
        tokens or steps,
        [mean for mean, _, _ in points],
        [low for _, low, _ in points] if intervals else (),
        [high for _, _, high in points] if intervals else (),
    )


def _measure(arm: ArmResult, name: str) -> Measure:
    mean, low, high = arm.interval(name)
    return Measure(arm.label, mean, mean if math.isnan(low) else low, mean if math.isnan(high) else high)


def group_tables(members: Sequence[ArmResult]) -> list[ReportTable]:
    """What came out, how diverse it is, both with pi_0 as the first row, and what it cost."""
    first, begun = members[0], _begun(members)
    names = dict.fromkeys(name for arm in members for found in arm.measures for name in found)
    passes = sorted((name for name in names if name.startswith("pass@") and not name.endswith(BEFORE)), key=_k)
    diversity = [name for name in ("distinct correct", "duplicates", "entropy") if name in names]
    costs = [
        name for name in ("train s", "waiting s", "online trajectories", "online tokens", "peak MB") if name in names
    ]
    change = f"{passes[-1]} against pi_0" if passes else ""

    def intervals(arm: ArmResult, measures: Sequence[str], other: ArmResult | None = None) -> dict[str, str]:
        found = {name: arm.against(other, name) if other else arm.interval(name) for name in measures}
        return {"arm": arm.label} | {name: describe(name, *values) for name, values in found.items()}

    def result(arm: ArmResult) -> dict[str, str]:
        row = intervals(arm, passes) | {"seeds": _seeds(arm)}
        return row | {change: describe(passes[-1], *arm.against(before(arm), passes[-1]))} if passes else row

    note = "Mean over seeds, 95% interval in brackets."
    found = [
        ReportTable(
            "At the end of training",
            ("arm", "seeds", *passes, *([change] if passes else [])),
            [*(intervals(policy, passes) for policy in begun), *map(result, members)],
            note=note,
        )
    ]
    if diversity:
        rows = [intervals(arm, diversity) for arm in (*begun, *members)]
        found.append(ReportTable("Diversity of the samples", ("arm", *diversity), rows, note=note))
    if members[1:] and passes:
        rows = [intervals(arm, [*passes, *diversity], first) for arm in members[1:]]
        text = "Differences, paired by seed; mean over seeds, 95% interval in brackets."
        found.append(ReportTable(f"Against {first.label}", ("arm", *passes, *diversity), rows, note=text))
    if costs:
        rows = [{"arm": arm.label} | {name: _range(name, arm) for name in costs} for arm in members]
        text = "Mean over seeds, least to most in brackets; waiting: the trainer for rollouts, part of its time."
        found.append(ReportTable("Cost of training", ("arm", *costs), rows, note=text))
    more = (reached.table(members, passes[-1]), ranks.table(members, passes[-1])) if passes else ()
    return [*found, *(table for table in more if table)]


def _range(measure: str, arm: ArmResult) -> str:
    """Mean, least and most: what other work on the machine costs has no place in an interval of the mean."""
    values = arm.values(measure)
    return describe(measure, fmean(values), min(values), max(values)) if values else ""


def before(arm: ArmResult) -> ArmResult:
    """The reference policy as the arm's runs evaluated it, by seed."""
    found = [
        {name.removesuffix(BEFORE): value for name, value in measures.items() if name.endswith(BEFORE)}
        for measures in arm.measures
    ]
    return ArmResult(f"pi_0 of {arm.label}", arm.seeds, [], found)


def _begun(members: Sequence[ArmResult]) -> list[ArmResult]:
    """The reference policies that the arms began with: one for all, unless some had another, or other problems."""
    found: list[ArmResult] = []
    for policy in map(before, members):
        same = next((one for one in found if _alike(one, policy)), None)
        if same is None:
            found.append(policy)
        else:
            more = [i for i, seed in enumerate(policy.seeds) if seed not in same.seeds]
            seeds = [*same.seeds, *(policy.seeds[i] for i in more)]
            joined = ArmResult(same.label, seeds, [], [*same.measures, *(policy.measures[i] for i in more)])
            found[found.index(same)] = joined
    return [replace(one, label="pi_0") for one in found] if len(found) == 1 else found


def _alike(one: ArmResult, other: ArmResult) -> bool:
    """Whether two arms began with the same pass@k on the seeds that both have, but for how machines round."""
    names = {name for found in (*one.measures, *other.measures) for name in found if name.startswith("pass@")}
    return all(abs(gap) <= ROUNDING for name in names for gap in one.differences(other, name))


def _k(name: str) -> int:
    return int(name.removeprefix("pass@"))


def _seeds(arm: ArmResult) -> str:
    done = str(len(arm.seeds))
    return f"{done}; {len(arm.stopped)} stopped by the guards" if arm.stopped else done


def markdown(title: str, groups: Sequence[tuple[str, str, Sequence[ReportTable]]]) -> str:
    """The tables as Markdown, under the title and text of their group."""
    parts = [f"# {title}"]
    for heading, text, tables in groups:
        parts.append("\n\n".join([f"## {heading}", *([text] if text else [])]))
        for table in tables:
            note = [f"\n{table.note}"] if table.note else []
            parts.append("\n".join([f"**{table.title}**\n", *markdown_table(table.columns, table.rows), *note]))
    return "\n\n".join(parts) + "\n"


def describe(measure: str, mean: float, low: float, high: float) -> str:
    """`61.2 [58.0, 64.4]`; shares in per cent; no brackets where there is nothing between them."""
    if math.isnan(mean):
        return ""
    share = measure.startswith("pass@") or measure == "duplicates"
    form = "{:.1f}" if share else ("{:.2f}" if measure in {"distinct correct", "entropy"} else "{:.0f}")
    mean, low, high = ((100 if share else 1) * value for value in (mean, low, high))
    bare = math.isnan(low) or math.isclose(low, high)
    return form.format(mean) + ("" if bare else f" [{form.format(low)}, {form.format(high)}]")
