"""The sandbox: verdicts over time, its own failures, and the slowest programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.explorer.drawing import SERIES, Dot, Line, Plot, areas, plot
from tasks.explorer.look import Look, Page
from warehouse.queries import query

TOTALS = query(__name__, "totals")
OVER_TIME = query(__name__, "over_time")
SLOWEST = query(__name__, "slowest")
PROBLEMS_OF_SUITES = query(__name__, "problems_of_suites")
STRETCHES = 40
OTHER = "other"


def sandbox_page(look: Look) -> Page:
    """What was judged when and with which verdicts, the share of infrastructure failures, and what took longest."""
    totals = look.rows(TOTALS)
    verdicts = [row for row in totals if not row["of_version"]]
    versions = sorted((row for row in totals if row["of_version"]), key=lambda row: row["last"], reverse=True)
    total = sum(row["programs"] for row in verdicts)
    slowest = look.rows(SLOWEST)
    suites = sorted({row["suite_hash"] for row in slowest})
    problems = {row["suite_hash"]: row["problem_id"] for row in look.rows(PROBLEMS_OF_SUITES, suites=suites)}
    return Page(
        "sandbox.html",
        "Sandbox",
        "/sandbox",
        {
            "verdicts": [row | {"share": row["programs"] / total} for row in verdicts],
            "total": total,
            "infra": sum(row["programs"] for row in verdicts if row["verdict"] == "infra"),
            "cpu_s": sum(row["cpu_s"] or 0.0 for row in verdicts),
            "charts": _over_time(look, verdicts),
            "versions": versions,
            "slowest": [row | {"problem_id": problems.get(row["suite_hash"])} for row in slowest],
        },
    )


def _over_time(look: Look, verdicts: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    if not verdicts:
        return []
    first, last = min(row["first"] for row in verdicts), max(row["last"] for row in verdicts)
    return _charts(look.rows(OVER_TIME, stretches=STRETCHES, first=first, last=last))


def _charts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Verdicts by stretch of time; of many kinds the rarest are one, so that each has a colour of its own."""
    stretches = range(1 + max(row["stretch"] for row in rows))
    totals = dict.fromkeys(stretches, 0)
    by_kind: dict[str, int] = {}
    for row in rows:
        totals[row["stretch"]] += row["programs"]
        by_kind[row["verdict"]] = by_kind.get(row["verdict"], 0) + row["programs"]
    kinds = sorted(by_kind, key=lambda kind: (-by_kind[kind], kind))
    shown = kinds if len(kinds) <= SERIES else kinds[: SERIES - 1]
    counts = dict.fromkeys(((stretch, kind) for stretch in stretches for kind in (*shown, OTHER)), 0)
    for row in rows:
        counts[row["stretch"], row["verdict"] if row["verdict"] in shown else OTHER] += row["programs"]
    names = [*shown, *([OTHER] if len(shown) < len(kinds) else [])]
    shares = [
        (kind.replace("_", " "), [counts[stretch, kind] / max(1, totals[stretch]) for stretch in stretches])
        for kind in names
    ]
    first = {row["stretch"]: row["began"] for row in reversed(rows)}
    notes = {
        s: f"{totals[s]:,} programs" + (f" from {first[s]:%Y-%m-%d %H:%M} UTC" if s in first else "") for s in totals
    }
    dots = [Dot(stretch, totals[stretch], note=notes[stretch]) for stretch in stretches]
    ruler = f"of {STRETCHES} equal stretches of time"
    return [
        ("Verdicts", areas("Verdicts", stretches, shares, ruler)),
        ("Programs judged", plot(Plot("Programs judged", [Line("programs", dots)], ruler))),
    ]
