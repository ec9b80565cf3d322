"""Learning curves and training figures of runs, from what their stages left or, on their way, from their samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.estimators import average_pass_at_k
from tasks.explorer.drawing import Dot, Line, Plot
from tasks.explorer.look import Look
from tasks.run.runs import TRAINED_BY
from warehouse.queries import query

KS = (1, 5, 10)
FIGURES = {
    "loss": "loss",
    "online/pass_fraction": "online pass rate",
    "online/y_T": "online y_T, nats",
    "online/entropy": "online entropy, nats a token",
    "grad_norm": "gradient norm",
    "kl": "KL from pi_0, nats a response",
    "wait_s": "waiting for workers, s",
}
"""The trainer's figures that are shown, and their titles."""
MOST_POINTS = 120

EVALUATIONS = query(__name__, "evaluations")
SAMPLES = query(__name__, "samples")
FIGURES_OF = query(__name__, "figures")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """pass@k of one policy of a run, with its interval."""

    step: int
    policy_id: str
    k: int
    value: float
    low: float
    high: float


def evaluations(look: Look, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the evaluation of each run left, of those that have one."""
    return {row["run_id"]: json.loads(row["manifest"]) for row in look.rows(EVALUATIONS, runs=list(runs))}


def learning_curves(look: Look, runs: Sequence[str]) -> dict[str, list[CurvePoint]]:
    """The curve of each run; of one that is not evaluated yet, from the samples there are (all of one k or none)."""
    left = evaluations(look, runs)
    return {run: _left(left[run]) if run in left else _so_far(look, run) for run in runs}


def _left(manifest: Mapping[str, Any]) -> list[CurvePoint]:
    return [
        CurvePoint(int(p["step"]), p["policy_id"], int(p["k"]), p["value"], p["low"], p["high"])
        for p in manifest["curve"]
    ]


def _so_far(look: Look, run: str) -> list[CurvePoint]:
    policies: dict[tuple[int, str], dict[str, list[tuple[int, int]]]] = {}
    for row in look.rows(SAMPLES, run=run):
        sets = policies.setdefault((int(row["step"] or 0), row["policy_id"]), {})
        sets.setdefault(row["problem_set"] or "", []).append((int(row["n"]), int(row["c"])))
    found: list[CurvePoint] = []
    most = max((sum(map(len, sets.values())) for sets in policies.values()), default=0)
    for (step, policy_id), sets in policies.items():
        if sum(map(len, sets.values())) < most:
            continue  # still being evaluated: its first problems are not like all of them
        fewest = min(n for counts in sets.values() for n, _ in counts)
        for k in KS:
            if k <= fewest:
                one = average_pass_at_k(sets, k)
                found.append(CurvePoint(step, policy_id, k, one.value, one.low, one.high))
    return sorted(found, key=lambda point: (point.k, point.step))


def curve_plots(look: Look, curves: Mapping[str, Sequence[CurvePoint]]) -> list[Plot]:
    """A chart per k that every run has; its points lead to what was trained on at that step."""
    sets = [{point.k for point in points} for points in curves.values() if points]
    plots: list[Plot] = []
    for k in sorted(set.intersection(*sets)) if sets else []:
        lines = [
            Line(run, [_dot(look, run, p) for p in points if p.k == k]) for run, points in curves.items() if points
        ]
        plots.append(Plot(f"pass@{k}", lines, share=True))
    return plots


def _dot(look: Look, run: str, point: CurvePoint) -> Dot:
    note = f"{run}, step {point.step}: pass@{point.k} {100 * point.value:.1f}%"
    note += f" [{100 * point.low:.1f}, {100 * point.high:.1f}]"
    href = look.address.link("/step", run=run, step=point.step) if point.step else None
    return Dot(point.step, point.value, point.low, point.high, note, href)


def figure_plots(look: Look, runs: Sequence[str]) -> list[Plot]:
    """A chart per figure of the trainer that any of the runs has."""
    values: dict[str, dict[str, list[Dot]]] = {}
    shown: dict[str, list[str]] = {}
    for run, trainer in trainers_of(look, runs).items():
        shown.setdefault(trainer, []).append(run)
    wanted = {"runs": list(shown), "names": list(FIGURES), "points": MOST_POINTS}
    for row in look.rows(FIGURES_OF, **wanted):
        step = int(row["step"])
        href = look.address.link("/step", run=row["run_id"], step=step)
        for run in shown[row["run_id"]]:
            note = f"{run}, step {step}: {row['value']:.4g}"
            values.setdefault(row["name"], {}).setdefault(run, []).append(Dot(step, row["value"], note=note, href=href))
    return [
        Plot(
            title,
            [Line(run, dots, step=len(dots) > 60) for run, dots in values[name].items()],
            share=name == "online/pass_fraction",
        )
        for name, title in FIGURES.items()
        if name in values
    ]


def trainers_of(look: Look, runs: Sequence[str]) -> dict[str, str]:
    """The run that trained each run's policies: itself, or an earlier one whose training was taken over."""
    last = {
        run: max(manifest["curve"], key=lambda point: point["step"])["policy_id"]
        for run, manifest in evaluations(look, runs).items()
        if manifest["curve"]
    }
    rows = look.rows(TRAINED_BY, runs=list(last), policies=list(last.values()))
    trainer = {row["run"]: row["trainer"] for row in rows}
    return {run: trainer.get(run, run) for run in runs}
