"""Rows of any data set whose columns the user names: files, or a data set of the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.extras.importing.formats.response import (
    ForeignResponse,
    Found,
    Naming,
    names_at,
    response,
    rows_of,
    understood,
)
from tasks.problems.hub import HubPlace, read_hub
from tasks.problems.records import InvalidProblem, Record


def read(path: Path, naming: Naming) -> Iterator[Found]:
    """The rows of a file or folder. Raises InvalidProblem."""
    _require_answer(naming)
    return rows_of(path, naming, lambda record, naming: [_row(record, naming)])


def read_from_hub(place: HubPlace, naming: Naming) -> Iterator[Found]:
    """The rows of a data set of the hub. Raises InvalidProblem when it is out of reach."""
    _require_answer(naming)
    for record in read_hub(place):
        yield from understood(record, naming, lambda record, naming: [_row(record, naming)])


def _require_answer(naming: Naming) -> None:
    if naming.columns.keys().isdisjoint({"text", "program"}):
        raise InvalidProblem("plain rows need the column of the answer: --column text=NAME, or --column program=NAME")


def _row(record: Record, naming: Naming) -> ForeignResponse:
    return response(record, naming, problem_ids=names_at(record, "problem_id", "task_id"))
