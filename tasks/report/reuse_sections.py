"""The parts of a report about trajectories that are used again: how old they are, and what that does."""

from __future__ import annotations

from tasks.report import charts
from tasks.report.charts import Panel, Series
from tasks.report.report_page import ReportSection, ReportTable
from tasks.report.run_history import RunHistory
from tasks.report.table_sections import Histories

BY_AGE = {
    "log_ratio": "log-ratio, nats a token",
    "y_T": "y_T, nats",
    "loss": "loss",
}
"""Figure by age -> its title."""
NEW_AND_USED = {"loss": "loss", "log_ratio": "log-ratio, nats a token"}


def staleness(histories: Histories) -> ReportSection | None:
    """What the age of the weights that sampled a trajectory does to it; new trajectories beside those used again."""
    aged = [history for history in histories if history.by_age]
    panels = [
        Panel(title, series, x_label="age, optimizer steps")
        for name, title in BY_AGE.items()
        if (series := [line for history in aged if (line := _aged(history, name)).x])
    ]
    if not panels:
        return None
    shown = [charts.curves("staleness", "By age", panels, "optimizer step")]
    beside = [
        Panel(title, series)
        for name, title in NEW_AND_USED.items()
        if (series := [line for history in aged if "replay/loss" in history.figures for line in _beside(history, name)])
    ]
    if beside:
        shown.append(charts.curves("new_and_used", "New trajectories and those used again", beside, "optimizer step"))
    text = (
        "Online trajectories by the age of the weights that sampled them, over all their uses. The log-ratio is of "
        "the policy that trains to the weights that sampled, before temperature and nucleus. A new trajectory has not "
        "been trained on, so its loss is what the policy does on samples it has not seen; where the loss of those used "
        "again falls and that of the new ones rises, the policy learns them by heart."
    )
    return ReportSection("Staleness", text, shown, _uses(aged))


def _aged(history: RunHistory, name: str) -> Series:
    rows = [row for row in history.by_age if row["name"] == name]
    return Series(history.run_id, [float(row["age"]) for row in rows], [float(row["value"]) for row in rows])


def _beside(history: RunHistory, name: str) -> list[Series]:
    curves = {source: history.figures.get(f"{source}/{name}", ()) for source in ("online", "replay")}
    return [
        Series(f"{history.run_id}, {'new' if source == 'online' else 'used again'}", *zip(*curve, strict=True))
        for source, curve in curves.items()
        if curve
    ]


def _uses(histories: Histories) -> list[ReportTable]:
    """How often trajectories were used, where any was used twice."""
    rows = [
        {"run": history.run_id, "uses": row["uses"], "trajectories": row["trajectories"], "mean age": row["age"]}
        for history in histories
        for row in history.uses
    ]
    if all(row["uses"] == 1 for row in rows):
        return []
    columns = ["run", "uses", "trajectories", "mean age"]
    note = "Age: optimizer steps between the weights that sampled and the use."
    return [ReportTable("How often each was used", columns if len(histories) > 1 else columns[1:], rows, note)]
