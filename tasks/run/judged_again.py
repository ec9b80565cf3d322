"""Which responses of a run's prompts carry another verdict than they were stored with: part of what its stages read.

`spo rejudge` (tasks/extras/rejudge.py) puts a batch whose verdicts have changed into another one of the name below and
leaves the old one out. Keys of stages that read such responses differ from then on; without any they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tasks.problems.problem import Split
from tasks.run import prompt_set
from tasks.run.stage import Context
from warehouse.queries import query

MARK = "/rejudged-"


def rejudged_batch(batch_id: str, version: str) -> str:
    """The batch that takes the place of `batch_id` once sandbox `version` has judged its responses."""
    return f"{batch_id}{MARK}{version}"


def judged_again(context: Context, split: Split) -> dict[str, Any]:
    """What to add to a stage's inputs: nothing, or the identity of the batches with new verdicts on these problems."""
    return _identity(context, prompt_set.load(context, split).suites) if _any(context) else {}


def judged_again_by(context: Context, suites: Iterable[str]) -> dict[str, Any]:
    """The same for a stage whose problems are judged by `suites`, without a prompt set."""
    return _identity(context, sorted(set(suites))) if _any(context) else {}


def _any(context: Context) -> bool:
    return bool(context.warehouse.value(query(__name__, "any"), {"mark": MARK}))


def _identity(context: Context, suites: list[str]) -> dict[str, Any]:
    (row,) = context.warehouse.rows(query(__name__, "batches"), {"mark": MARK, "suite_hashes": suites})
    return {"judged_again": [row["n"], row["content"]]} if row["n"] else {}
