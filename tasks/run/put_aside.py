"""Which of a stage's own batches are in quarantine: part of what it reads, so that it runs again and draws them anew.

Keys of stages without such batches stay as they are. Batches that another took the place of are no such ones.
"""

from __future__ import annotations

from typing import Any

from tasks.run.identity import digest
from tasks.run.stage import Context
from warehouse.queries import query
from warehouse.schema import SUPERSEDED

PUT_ASIDE = query(__name__, "put_aside")


def put_aside(context: Context, *prefixes: str) -> dict[str, Any]:
    """What to add to a stage's inputs: nothing, or the identity of the quarantined batches whose ids begin so."""
    rows = context.warehouse.rows(PUT_ASIDE, {"prefixes": list(prefixes), "superseded": SUPERSEDED})
    return {"put_aside": digest(batches=[row["batch"] for row in rows])} if rows else {}
