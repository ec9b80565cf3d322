"""All problems: how hard each is for pi_0, how often it is solved since, and what training found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tasks.estimators import beta_interval
from tasks.explorer.drawing import interval, spark
from tasks.explorer.look import Look, Page
from warehouse.queries import query

PROBLEMS = query(__name__, "problems")
POLICIES = query(__name__, "policies")
A_PAGE = 50

ORDERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "found": ("found by training", lambda row: (-row["found_by_training"], row["problem_id"])),
    "hard": ("hardest for pi_0 first", lambda row: (row["s"] is None, row["s"], row["problem_id"])),
    "easy": ("easiest for pi_0 first", lambda row: (row["s"] is None, -(row["s"] or 0), row["problem_id"])),
    "gain": ("largest gain first", lambda row: (row["gain"] is None, -(row["gain"] or 0), row["problem_id"])),
    "programs": ("most programs first", lambda row: (-row["programs"], row["problem_id"])),
    "name": ("by name", lambda row: row["problem_id"]),
}
SPLITS = ("all", "train", "evaluation")
KINDS = ("all", "unsolved", "found")


def problems_page(look: Look) -> Page:
    """Difficulty with its interval, pass rates of the policies, and different programs; filtered and sorted."""
    order = look.address.choice("order", tuple(ORDERS))
    split, kind = look.address.choice("split", SPLITS), look.address.choice("kind", KINDS)
    text = look.address.text("q").lower()
    number = look.address.page()
    look.session.need_responses()
    rows = [
        row
        for row in map(_with_gain, look.rows(PROBLEMS))
        if split in ("all", row["split"])
        and (kind != "unsolved" or row["k"] == 0)
        and (kind != "found" or row["found_by_training"])
        and (text in row["problem_id"].lower() or text in (row["title"] or "").lower())
    ]
    rows.sort(key=ORDERS[order][1])
    shown = rows[A_PAGE * (number - 1) : A_PAGE * number]
    curves = _curves(look, [row["problem_id"] for row in shown])
    return Page(
        "problems.html",
        "Problems",
        "/problems",
        {
            "problems": [row | {"ruler": _ruler(row), "spark": curves.get(row["problem_id"])} for row in shown],
            "total": len(rows),
            "number": number,
            "last": max(1, -(-len(rows) // A_PAGE)),
            "order": order,
            "orders": {name: label for name, (label, _) in ORDERS.items()},
            "split": split,
            "kind": kind,
            "text": look.address.text("q"),
        },
    )


def _with_gain(row: Mapping[str, Any]) -> dict[str, Any]:
    before, later = row["s"], row["later"]
    return {**row, "gain": None if before is None or later is None else later - before}


def _ruler(row: Mapping[str, Any]) -> Any:
    if not row["n"]:
        return ""
    return interval(row["s"], *beta_interval(int(row["n"]), int(row["k"])))


def _curves(look: Look, problems: list[str]) -> dict[str, Any]:
    """The pass rate of the policies by step, of the problems that several have tried."""
    shares: dict[str, dict[int, tuple[int, int]]] = {}
    for row in look.rows(POLICIES, problems=problems):
        steps, step = shares.setdefault(row["problem_id"], {}), int(row["step"] or 0)
        n, k = steps.get(step, (0, 0))
        steps[step] = (n + row["n"], k + row["k"])
    return {problem: spark([k / n for _, (n, k) in sorted(steps.items()) if n]) for problem, steps in shares.items()}
