"""Which of a stage's own batches are in quarantine: part of what it reads, so that it runs again and draws them anew.

Keys of stages without such batches stay as they are. Batches that another took the place of are no such ones. What is
drawn in their place starts behind all that was ever drawn: the numbers of later samples are taken.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasks.run.identity import digest
from tasks.run.stage import Context
from warehouse.queries import query
from warehouse.schema import SUPERSEDED

PUT_ASIDE = query(__name__, "put_aside")
DRAWN = query(__name__, "drawn")
COUNTED = query(__name__, "counted")


def put_aside(context: Context, *prefixes: str) -> dict[str, Any]:
    """What to add to a stage's inputs: nothing, or the identity of the quarantined batches whose ids begin so."""
    rows = context.warehouse.rows(PUT_ASIDE, {"prefixes": list(prefixes), "superseded": SUPERSEDED})
    return {"put_aside": digest(batches=[row["batch"] for row in rows])} if rows else {}


def drawn_and_put_aside(context: Context, prefix: str) -> Counter[str]:
    """Samples in the quarantined batches whose ids begin so, by problem."""
    return _by_problem(context, DRAWN, {"prefix": prefix})


def counted_and_put_aside(context: Context, prefix: str, *, reference: str, sampling: str) -> Counter[str]:
    """Samples of policy `reference` that quarantined batches counted, and those without a verdict in batches whose ids
    begin with `prefix`, by problem."""
    return _by_problem(context, COUNTED, {"prefix": prefix, "reference": reference, "sampling": sampling})


def _by_problem(context: Context, sql: str, asked: dict[str, str]) -> Counter[str]:
    rows = context.warehouse.rows(sql, asked | {"superseded": SUPERSEDED})
    return Counter({str(row["problem_id"]): int(row["n"]) for row in rows})
