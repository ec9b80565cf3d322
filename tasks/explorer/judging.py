"""The sandbox: verdicts over time, its own failures, and the slowest programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.explorer.drawing import Dot, Line, Plot, areas, plot
from tasks.explorer.look import Look, Page
from warehouse.queries import query

OVER_TIME = query(__name__, "over_time")
BY_VERDICT = query(__name__, "by_verdict")
BY_VERSION = query(__name__, "by_version")
SLOWEST = query(__name__, "slowest")
PROBLEMS_OF_SUITES = query(__name__, "problems_of_suites")
STRETCHES = 40


def sandbox_page(look: Look) -> Page:
    """What was judged when and with which verdicts, the share of infrastructure failures, and what took longest."""
    verdicts = look.rows(BY_VERDICT)
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
            "charts": _charts(look.rows(OVER_TIME, stretches=STRETCHES)),
            "versions": look.rows(BY_VERSION),
            "slowest": [row | {"problem_id": problems.get(row["suite_hash"])} for row in slowest],
        },
    )


def _charts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    stretches = sorted({row["stretch"] for row in rows})
    kinds = sorted({row["verdict"] for row in rows})
    counts = {(row["stretch"], row["verdict"]): row["programs"] for row in rows}
    totals = {stretch: sum(counts.get((stretch, kind), 0) for kind in kinds) for stretch in stretches}
    shares = [(kind, [counts.get((stretch, kind), 0) / totals[stretch] for stretch in stretches]) for kind in kinds]
    first = {stretch: min(row["began"] for row in rows if row["stretch"] == stretch) for stretch in stretches}
    dots = [Dot(s, totals[s], note=f"{totals[s]:,} programs from {first[s]:%Y-%m-%d %H:%M} UTC") for s in stretches]
    ruler = f"of {STRETCHES} equal stretches of time"
    return [
        ("Verdicts", areas("Verdicts", stretches, shares)),
        ("Programs judged", plot(Plot("Programs judged", [Line("programs", dots)], ruler))),
    ]
