"""Studies: their arms by seeds, and what each arm differs by from the one started first, paired by seed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tasks.config import ConfigError, validate
from tasks.estimators import mean_interval
from tasks.explorer.address import NotFound
from tasks.explorer.curves import evaluations, learning_curves
from tasks.explorer.drawing import Dot, Line, Plot, plot
from tasks.explorer.look import Look, Page
from warehouse.queries import query

MEMBERS = query(__name__, "members")
ARMS = query(__name__, "arms")
ELSEWHERE = {"": ("seed", "shards"), "train": ("hosts", "remote_shell", "worker_launcher", "report_to")}
"""Settings in which the runs of an arm may differ, by section: the seed, and where it ran."""
Values = dict[int, float]
"""A measure by seed."""


def arms_of(look: Look, runs: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """`study` and `arm` of those of the runs that a study started."""
    return {row["run_id"]: row for row in look.rows(ARMS, runs=list(runs))}


def _comparable(members: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest run of each arm and seed, of those with the settings that the arm has now."""
    settings = [_settings(row) for row in members]
    of_arm = {row["arm"]: own for row, own in zip(members, settings, strict=True)}  # the last is the newest
    return [row for row, own in zip(members, settings, strict=True) if row["newest"] and own == of_arm[row["arm"]]]


def _settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the runs of an arm have in common: all but the seed, the runs of that seed that it learns from, and where
    it ran. A field at its default, which the configuration of an older version lacks, says nothing."""
    config: dict[str, Any] = json.loads(row["config_json"] or "{}")
    with suppress(ConfigError):  # of a version whose configuration was another one: as it is written
        config = validate(config).model_dump(mode="json", exclude_defaults=True)
    for section, names in ELSEWHERE.items():
        part = config if section == "" else config.get(section, {})
        for name in names:
            part.pop(name, None)
    config.get("train", {}).get("earlier", {}).pop("run_ids", None)
    return {name: part for name, part in config.items() if part != {}}


def studies_page(look: Look) -> Page:
    """Every study that runs of this warehouse belong to."""
    found: dict[str, dict[str, Any]] = {}
    for row in look.rows(MEMBERS, study=""):
        one = found.setdefault(row["study"], {"arms": set(), "seeds": set(), "runs": 0, "last": row["created_at"]})
        one["arms"].add(row["arm"])
        one["seeds"].add(row["seed"])
        one["runs"] += 1
        one["last"] = max(one["last"], row["created_at"])
    return Page("studies.html", "Studies", "/studies", {"studies": found})


def study_page(look: Look) -> Page:
    """pass@k of every arm and seed at the end, means with intervals over seeds, and paired differences."""
    name = look.address.needed("id")
    started = look.rows(MEMBERS, study=name)
    if not started:
        raise NotFound(f"no run of this warehouse belongs to a study {name[:80]!r}")
    members = _comparable(started)
    arms = list(dict.fromkeys(row["arm"] for row in started))  # in the order in which they were first started
    base = look.address.text("base", arms[0])
    if base not in arms:
        raise NotFound(f"the study has no arm {base[:80]!r}; it has {', '.join(arms)}")
    ended = evaluations(look, [row["run_id"] for row in members])
    ks = sorted({int(k.removeprefix("pass@")) for found in ended.values() for k in found["comparison"]})
    tables = [(k, _table(members, ended, arms, base, k)) for k in ks]
    return Page(
        "study.html",
        f"Study {name}",
        "/studies",
        {
            "name": name,
            "arms": arms,
            "base": base,
            "seeds": sorted({row["seed"] for row in members}),
            "left_out": [row for row in started if row not in members],
            "runs": {(row["arm"], row["seed"]): row["run_id"] for row in members},
            "tables": tables,
            "charts": _charts(look, members, arms),
        },
    )


def _table(
    members: Sequence[Mapping[str, Any]], ended: Mapping[str, Any], arms: Sequence[str], base: str, k: int
) -> list[dict[str, Any]]:
    finals: dict[str, Values] = {arm: {} for arm in arms}
    for row in members:
        change = ended.get(row["run_id"], {"comparison": {}})["comparison"].get(f"pass@{k}")
        if change is not None:
            finals[row["arm"]][row["seed"]] = change["after"]
    return [
        {
            "arm": arm,
            "finals": finals[arm],
            "mean": _known(mean_interval(list(finals[arm].values()))),
            "difference": None if arm == base else _known(mean_interval(_paired(finals[arm], finals[base]))),
        }
        for arm in arms
    ]


def _paired(mine: Values, theirs: Values) -> list[float]:
    return [mine[seed] - theirs[seed] for seed in mine if seed in theirs]


def _known(found: tuple[float, float, float]) -> tuple[float, float | None, float | None] | None:
    """Mean and interval without what is unknown: no runs, or an interval of fewer than two seeds."""
    mean, low, high = found
    if math.isnan(mean):
        return None
    return (mean, None, None) if math.isnan(low) else (mean, low, high)


def _charts(look: Look, members: Sequence[Mapping[str, Any]], arms: Sequence[str]) -> list[tuple[str, Any]]:
    """The mean over seeds of every arm's learning curve, at the steps that all its seeds have."""
    curves = learning_curves(look, [row["run_id"] for row in members])
    charts: list[tuple[str, Any]] = []
    for k in sorted({point.k for points in curves.values() for point in points}):
        lines: list[Line] = []
        for arm in arms:
            runs = [row["run_id"] for row in members if row["arm"] == arm]
            by_step: dict[int, list[float]] = {}
            for run in runs:
                for point in curves[run]:
                    if point.k == k:
                        by_step.setdefault(point.step, []).append(point.value)
            dots = [
                Dot(step, sum(values) / len(values), note=f"{arm}, step {step}: {100 * sum(values) / len(values):.1f}%")
                for step, values in sorted(by_step.items())
                if len(values) == max(map(len, by_step.values()))
            ]
            lines.append(Line(arm, dots))
        charts.append((f"pass@{k}", plot(Plot(f"pass@{k}", lines, share=True))))
    return [(title, chart) for title, chart in charts if chart]
