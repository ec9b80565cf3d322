"""One run: its learning curve, training figures, stages and events; and one of its optimizer steps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tasks.explorer import response_rows
from tasks.explorer.address import NotFound
from tasks.explorer.curves import MOST_POINTS, curve_plots, evaluations, figure_plots, learning_curves, trainers_of
from tasks.explorer.drawing import Dot, Line, Plot, areas, plot
from tasks.explorer.look import Look, Page
from tasks.explorer.studies import arms_of
from warehouse.queries import query

RUN = query(__name__, "run")
STAGES = query(__name__, "stages")
EVENTS = query(__name__, "events")
SOURCE_MIX = query(__name__, "source_mix")
STALENESS = query(__name__, "staleness")
BATCH = query(__name__, "batch")
STEPS = query(__name__, "steps")
FIGURES_OF_STEP = query(__name__, "figures_of_step")


def run_page(look: Look) -> Page:
    """Learning curve, training figures, source mix and staleness; every point leads to its step."""
    name = look.address.needed("id")
    row = look.row(RUN, run=name)
    if row is None:
        raise NotFound(f"there is no run {name[:80]!r} at this snapshot")
    trainer = trainers_of(look, [name])[name]
    look.session.need_responses()
    curves = curve_plots(look, learning_curves(look, [name]))
    evaluation = evaluations(look, [name]).get(name)
    stages = look.rows(STAGES, run=name)
    return Page(
        "run.html",
        name,
        "/",
        {
            "run": row,
            "arm": arms_of(look, [name]).get(name),
            "trainer": trainer,
            "stages": stages,
            "events": look.rows(EVENTS, run=name),
            "changes": _by_k(evaluation["comparison"] if evaluation else {}),
            "trained": len({point["policy_id"] for point in evaluation["curve"]}) > 1 if evaluation else False,
            "said": evaluation["described"] if evaluation else "",
            "curves": [(one.title, plot(one)) for one in curves],
            "figures": _figures(look, name, trainer),
            "steps": look.row(STEPS, run=trainer),
            "settings": json.dumps(json.loads(row["config_json"]), indent=2),
        },
        live=evaluation is None,
    )


def _by_k(changes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """pass@1 before pass@10."""
    return sorted(changes.items(), key=lambda item: int(item[0].removeprefix("pass@")))


def _figures(look: Look, run: str, trainer: str) -> list[tuple[str, Markup]]:
    found = [(one.title, plot(one)) for one in figure_plots(look, [run])]
    found += [
        ("source mix of the batches", _mix(look, trainer)),
        ("age of the online responses, in steps", _staleness(look, trainer)),
    ]
    return [(title, drawing) for title, drawing in found if drawing]


def _mix(look: Look, run: str) -> Markup:
    rows = look.rows(SOURCE_MIX, run=run, points=MOST_POINTS)
    steps = sorted({int(row["step"]) for row in rows})
    sources = sorted({row["source"] for row in rows})
    counts = {(int(row["step"]), row["source"]): row["sequences"] for row in rows}
    totals = {step: sum(counts.get((step, source), 0) for source in sources) for step in steps}
    shares = [(source, [counts.get((step, source), 0) / totals[step] for step in steps]) for source in sources]
    return areas("Source mix", steps, shares)


def _staleness(look: Look, run: str) -> Markup:
    rows = look.rows(STALENESS, run=run)
    lines = [
        Line(label, [Dot(row["step"], row[column]) for row in rows], step=True)
        for label, column in (("mean", "mean_steps"), ("oldest", "most_steps"))
    ]
    return plot(Plot("Staleness", lines))


def step_page(look: Look) -> Page:
    """What one optimizer step trained on: every trajectory of its batch, and the step's figures."""
    run, step = look.address.needed("run"), look.address.number("step") or 0
    trainer = trainers_of(look, [run])[run]
    look.session.need_responses()
    batch = look.rows(BATCH, run=trainer, step=step)
    span = look.row(STEPS, run=trainer)
    if span is None or span["last"] is None or not batch:
        raise NotFound(f"run {run[:80]!r} has no optimizer step {step} at this snapshot")
    known = response_rows.described(look, [row["trajectory_id"] for row in batch])
    return Page(
        "step.html",
        f"{run}, step {step}",
        "/",
        {
            "run": run,
            "step": step,
            "last": span["last"],
            "batch": [row | {"known": known.get(row["trajectory_id"])} for row in batch],
            "figures": look.rows(FIGURES_OF_STEP, run=trainer, step=step),
            "sources": _by_source(batch, known),
        },
    )


def _by_source(
    batch: Sequence[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, int, int]]:
    """Source, trajectories of the batch, and how many of them are correct."""
    found: dict[str, list[bool]] = {}
    for row in batch:
        found.setdefault(row["source"], []).append(known.get(row["trajectory_id"], {}).get("reward") == 0)
    return [(source, len(correct), sum(correct)) for source, correct in sorted(found.items())]
