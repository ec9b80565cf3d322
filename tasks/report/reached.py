"""How much the arms of a study had sampled when they reached a mark: 80% of the best end, the first arm's end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from tasks.report.arms import ArmResult, Spent
from tasks.report.report_page import ReportTable
from warehouse import Warehouse
from warehouse.queries import query

SPENT = query(__name__, "spent")
SHARE_OF_BEST = 0.8


def read(store: Warehouse, run_id: str) -> dict[int, Spent]:
    """By optimizer step."""
    rows = store.rows(SPENT, {"run": run_id})
    return {row["step"]: Spent(float(row["trajectories"]), float(row["tokens"]), row["seconds"]) for row in rows}


def first_at(curve: Mapping[int, float], spent: Mapping[int, Spent], mark: float) -> Spent | None:
    """What the run had spent at the first evaluated step that is at the mark; None: it never was."""
    found = next((step for step in sorted(curve) if curve[step] >= mark), None)
    return None if found is None else spent.get(found, Spent())


def table(members: Sequence[ArmResult], measure: str) -> ReportTable | None:
    """A row for each arm; None where nothing was trained."""
    ended = [arm for arm in members if arm.values(measure)]
    if not any(any(arm.spent) for arm in ended):
        return None
    best = SHARE_OF_BEST * max(fmean(arm.values(measure)) for arm in ended)
    first = dict(zip(ended[0].seeds, ended[0].values(measure), strict=True))
    marks = {
        f"to {SHARE_OF_BEST:.0%} of the best {measure}": dict.fromkeys(
            (seed for arm in ended for seed in arm.seeds), best
        ),
        f"to the {measure} of {ended[0].label}": first,
    }
    rows = [
        {"arm": arm.label} | {column: _described(arm, measure, mark) for column, mark in marks.items()} for arm in ended
    ]
    note = "Online trajectories, their tokens and seconds of training until the first evaluated step there; means."
    return ReportTable(f"How soon ({measure})", ("arm", *marks), rows, note=note)


def _described(arm: ArmResult, measure: str, marks: Mapping[int, float]) -> str:
    runs = [
        first_at(curve[measure], spent, marks[seed])
        for seed, curve, spent in zip(arm.seeds, arm.curves, arm.spent, strict=True)
        if seed in marks
    ]
    there = [run for run in runs if run is not None]
    if not there:
        return f"none of {len(runs)}"
    figures = [fmean(getattr(run, name) for run in there) for name in ("trajectories", "tokens", "seconds")]
    text = "{:,.0f} trajectories, {:,.0f} tokens, {:.0f} s".format(*figures)
    return text if len(there) == len(runs) else f"{text} ({len(there)} of {len(runs)} seeds)"
