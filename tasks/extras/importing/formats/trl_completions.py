"""TRL: `completions/completions_STEP.parquet`, which `log_completions=True` makes trainers write.

Source: `GRPOTrainer.log` of TRL 1.16. Columns `step`, `prompt`, `completion`, `advantage`, one per reward function and
further ones that reward functions log; neither the model nor tokens are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.extras.importing.formats.response import (
    ForeignResponse,
    Found,
    Naming,
    answer,
    asked,
    content,
    messages,
    names_at,
    number,
    response,
    rows_of,
)
from tasks.problems.records import Record

OWN = {"step", "prompt", "completion", "advantage", "image", "images"}


def read(path: Path, naming: Naming) -> Iterator[Found]:
    """The completions of a file or folder. Raises InvalidProblem."""
    return rows_of(path, naming, lambda record, naming: [_completion(record, naming)])


def _completion(record: Record, naming: Naming) -> ForeignResponse:
    turns = messages(record, "completion")
    return response(
        record,
        naming,
        text=content(answer(turns)),
        prompt=asked(messages(record, "prompt")),
        problem_ids=names_at(record, "problem_id", "task_id"),
        reward=_reward(record),
    )


def _reward(record: Record) -> float | None:
    """The one column of a reward function, which may say nothing of a row (NULL); None where there are several: the
    user names one.
    """
    figures = [
        name
        for name, value in record.data.items()
        if name not in OWN and (value is None or isinstance(value, int | float)) and not name.endswith("_id")
    ]
    found = record.data[figures[0]] if len(figures) == 1 else None
    return None if found is None else number(record, figures[0], found)
