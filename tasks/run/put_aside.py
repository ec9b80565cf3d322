"""Which of a stage's own batches are in quarantine: part of what it reads, so that it runs again and draws them anew.

Keys of stages without such batches stay as they are. Batches that another took the place of are no such ones. What is
drawn in their place starts behind all that was ever drawn: the numbers of later samples are taken.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasks.run.identity import digest
from tasks.run.stage import Context
from tasks.run.stage_names import StageName
from warehouse.queries import query
from warehouse.schema import SUPERSEDED

PUT_ASIDE = query(__name__, "put_aside")
ENDS = query(__name__, "ends")
DRAWN = query(__name__, "drawn")
COUNTED = query(__name__, "counted")
COUNTED_IN = query(__name__, "counted_in")
ROLLED_OUT = query(__name__, "rolled_out")


def put_aside(context: Context, *prefixes: str) -> dict[str, Any]:
    """What to add to a stage's inputs: nothing, or the identity of the quarantined batches whose ids begin so."""
    return _identity(context, PUT_ASIDE, {"prefixes": list(prefixes)})


def end_put_aside(context: Context, stage: StageName, prefix: str, name: str) -> dict[str, Any]:
    """The same of what a stage, of any run, had ended with: batches `prefix` + what its manifests call `name`."""
    asked = {"stage": stage, "prefix": prefix, "name": name}
    found = _identity(context, ENDS, asked)
    return {"end_put_aside": found["put_aside"]} if found else {}


def counts_put_aside(context: Context, *, reference: str, sampling: str, prompts: str) -> dict[str, Any]:
    """The same of quarantined batches that counted samples of policy `reference` for prompts of the batch `prompts`.

    Other stages and other runs draw such samples, too, and Q0 may have found them enough.
    """
    return _identity(context, COUNTED_IN, {"reference": reference, "sampling": sampling, "prompts": prompts})


def drawn_and_put_aside(context: Context, prefix: str) -> Counter[str]:
    """Samples in the quarantined batches whose ids begin so, by problem."""
    return _numbers(context, DRAWN, "problem_id", {"prefix": prefix})


def counted_and_put_aside(context: Context, prefix: str, *, reference: str, sampling: str) -> Counter[str]:
    """Samples of policy `reference` that quarantined batches counted, and those without a verdict in batches whose ids
    begin with `prefix`, by problem."""
    asked = {"prefix": prefix, "reference": reference, "sampling": sampling}
    return _numbers(context, COUNTED, "problem_id", asked)


def rolled_out_and_put_aside(context: Context, search: str, *, reference: str) -> Counter[str]:
    """Rollouts of policy `reference` that quarantined batches of searches whose ids begin so counted, by prefix."""
    return _numbers(context, ROLLED_OUT, "prefix_hash", {"search": search, "reference": reference})


def _identity(context: Context, sql: str, asked: dict[str, Any]) -> dict[str, Any]:
    rows = context.warehouse.rows(sql, asked | {"superseded": SUPERSEDED})
    return {"put_aside": digest(batches=[row["batch"] for row in rows])} if rows else {}


def _numbers(context: Context, sql: str, by: str, asked: dict[str, str]) -> Counter[str]:
    rows = context.warehouse.rows(sql, asked | {"superseded": SUPERSEDED})
    return Counter({str(row[by]): int(row["n"]) for row in rows})
