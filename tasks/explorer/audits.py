"""What audits say of a problem's tests: where programs part that passed them, who is likely wrong, and the suites.

Nothing here is computed anew: an audit's findings name the programs that dissent from what is likely right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.explorer.look import Look
from warehouse.queries import query

AUDITS = query(__name__, "audits")
FINDINGS = query(__name__, "findings")
SUITES = query(__name__, "suites")
COUNTS = query(__name__, "counts")
JUDGED = query(__name__, "judged")


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Why a program that passed the tests is likely wrong."""

    disagreements: int
    inputs: int
    basis: str
    """Who says otherwise: `reference` solutions, or the `majority` of the programs."""
    input: str


@dataclass(frozen=True, slots=True)
class Audited:
    """What is known of a problem's tests."""

    audit: Mapping[str, Any] | None
    """The newest audit of the suite that judges now, else of another; None when there was none."""
    findings: Sequence[Mapping[str, Any]]
    suspects: Mapping[str, Suspicion]
    """By program hash."""
    counting: str | None
    """The suite that judges now."""
    suites: Sequence[Mapping[str, Any]]
    """Oldest first, each with its version and what it judged."""


def audited(look: Look, problem: Mapping[str, Any]) -> Audited:
    """The newest audit, its findings, and the suites with what each judged."""
    name = problem["problem_id"]
    suites = look.rows(SUITES, problem=name)
    counting = _counting(suites, problem["suite_hash"])
    audits = look.rows(AUDITS, problem=name)
    newest = next((one for one in audits if one["suite_hash"] == counting), audits[0] if audits else None)
    findings = look.rows(FINDINGS, audit=newest["audit_id"]) if newest else []
    suspects = _suspects(findings, newest["inputs"] if newest else 0)
    return Audited(newest, findings, suspects, counting, _figures(look, name, suites))


def _suspects(findings: Sequence[Mapping[str, Any]], inputs: int) -> dict[str, Suspicion]:
    by_program: dict[str, list[Mapping[str, Any]]] = {}
    for row in findings:
        for program in row["dissenters"]:
            by_program.setdefault(program, []).append(row)
    return {
        program: Suspicion(len(rows), inputs, min(row["basis"] for row in rows), rows[0]["input"])
        for program, rows in by_program.items()
    }


def _figures(look: Look, problem: str, suites: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The suites with what each judged; nothing is asked for a single one, whose figures are all there are."""
    if len(suites) < 2:
        return list(suites)
    counts = {row["suite_hash"]: row for row in look.rows(COUNTS, problem=problem)}
    judged = {row["suite_hash"]: row for row in look.rows(JUDGED, suites=[row["suite_hash"] for row in suites])}
    return [row | {"pi_0": counts.get(row["suite_hash"]), "judged": judged.get(row["suite_hash"])} for row in suites]


def _counting(rows: Sequence[Mapping[str, Any]], suite: str | None) -> str | None:
    """The suite that counts where `suite` judged: the newest that accepted findings made of it, or itself."""
    children = {row["parent"]: row["suite_hash"] for row in rows if row["parent"]}
    seen = {suite}
    while (child := children.get(suite)) is not None and child not in seen:
        seen.add(child)
        suite = child
    return suite
