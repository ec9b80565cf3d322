"""The first page: every run, newest first; and two to four of them compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.config import differing
from tasks.explorer.address import BadAddress, NotFound
from tasks.explorer.curves import curve_plots, figure_plots, learning_curves
from tasks.explorer.drawing import plot
from tasks.explorer.look import Look, Page
from tasks.explorer.studies import arms_of
from tasks.run.stage_names import STAGE_NAMES
from warehouse import StillReading
from warehouse.queries import query

RUNS = query(__name__, "runs")
REACHED = query(__name__, "reached")
RECIPES = query(__name__, "recipes")
TOTALS = query(__name__, "totals")
CONFIGURATIONS = query(__name__, "configurations")
UNLIKE = query(__name__, "unlike")
RUNS_A_PAGE = 40
MOST_COMPARED = 4


def runs_page(look: Look) -> Page:
    """Recipe, state, stages, pass@1 and pass@10 before and after, and cost of every run."""
    number = look.address.page()
    filters = {"recipe": look.address.text("recipe"), "text": look.address.text("q")}
    rows = look.rows(RUNS, **filters, limit=RUNS_A_PAGE + 1, offset=RUNS_A_PAGE * (number - 1))
    rows, more = rows[:RUNS_A_PAGE], len(rows) > RUNS_A_PAGE
    arms = arms_of(look, [row["run_id"] for row in rows])
    training = [row["run_id"] for row in rows if row["state"] == "running" and row["at_stage"] == "train"]
    reached = {row["run_id"]: row["step"] for row in (look.rows(REACHED, runs=training) if training else ())}
    shown = [{**_described(row), "arm": arms.get(row["run_id"]), "reached": reached.get(row["run_id"])} for row in rows]
    return Page(
        "runs.html",
        "Runs",
        "/",
        {
            "runs": shown,
            "more": more,
            "number": number,
            "recipes": look.rows(RECIPES),
            "filters": filters,
            "totals": _totals(look),
        },
        live=any(row["state"] == "running" for row in shown),
    )


def _totals(look: Look) -> Mapping[str, Any] | None:
    """What the warehouse holds; None while the responses are read for the first time: this page does not wait."""
    try:
        look.session.need_responses(0.05)
    except StillReading:
        return None
    return look.row(TOTALS)


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    done = set((row["names"] or "").split(", "))
    manifest = json.loads(row["evaluation"]) if row["evaluation"] else {"comparison": {}}
    return {
        **row,
        "marks": [(name, name in done) for name in STAGE_NAMES],
        "changes": {k: manifest["comparison"].get(f"pass@{k}") for k in (1, 10)},
    }


def compare_page(look: Look) -> Page:
    """Two to four runs: their curves in one chart, and the settings in which they differ."""
    names = look.address.texts("run")
    if not 2 <= len(names) <= MOST_COMPARED:
        raise BadAddress(
            f"two to {MOST_COMPARED} runs can be compared, not {len(names)}: tick them on the page of runs"
        )
    rows = {row["run_id"]: json.loads(row["config_json"]) for row in look.rows(CONFIGURATIONS, runs=names)}
    if unknown := [name for name in names if name not in rows]:
        raise NotFound(f"there is no run {unknown[0]!r} at this snapshot")
    curves = learning_curves(look, names)
    charts = [(one.title, plot(one)) for one in (*curve_plots(look, curves), *figure_plots(look, names))]
    changes = {name: _ends(points) for name, points in curves.items()}
    ks = sorted(set().union(*changes.values()))
    return Page(
        "compare.html",
        " and ".join(names),
        "/",
        {
            "names": names,
            "arms": arms_of(look, names),
            "charts": charts,
            "settings": [
                (name, [value or "" for value in values])
                for name, values in sorted(differing([rows[one] for one in names]))
            ],
            "ends": changes,
            **look.rows(UNLIKE, runs=names)[0],
            "ks": ks,
        },
    )


def _ends(points: Sequence[Any]) -> dict[int, tuple[float | None, float]]:
    """pass@k at the first and the last step, by k; no first where a single policy was evaluated."""
    found: dict[int, tuple[float | None, float]] = {}
    for k in sorted({point.k for point in points}):
        own = sorted((point for point in points if point.k == k), key=lambda point: point.step)
        found[k] = (own[0].value if len(own) > 1 else None, own[-1].value)
    return found
