"""Inspect: evaluation logs, `.eval` (a zip with a file a sample) or `.json` (one file).

Source: EvalLog, EvalSample and ModelOutput of inspect-ai 0.3. What is longer than a line may stand in `attachments`.
Log-probabilities come without token ids, so none are taken.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.extras.importing.formats.response import (
    CUT_OFF,
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
    understood,
)
from tasks.problems.records import InvalidProblem, Record
from warehouse.errors import InvalidRows
from warehouse.exchange.zip_members import zip_members

SAMPLES = "samples/"
"""Folder of the samples in a zipped log."""
ATTACHED = "attachment://"
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's letters: correct, incorrect, partial, no answer."""


def read(path: Path, naming: Naming) -> Iterator[Found]:
    """The samples of a log, or of the logs in a folder. Raises InvalidProblem."""
    files = [path] if path.is_file() else sorted(file for kind in ("*.eval", "*.json") for file in path.rglob(kind))
    if not files:
        raise InvalidProblem(f"{path}: cannot be read: no such file, and no folder with .eval or .json logs")
    for file in files:
        for record in _zipped(file) if zipfile.is_zipfile(file) else _whole(file):
            yield from understood(record, naming, lambda record, naming: [_sample(record, naming)])


def _zipped(path: Path) -> Iterator[Record]:
    try:
        for name, member in zip_members(path, SAMPLES):
            yield Record(f"{path}:{name.removeprefix(SAMPLES)}", json.loads(member))
    except (InvalidRows, ValueError) as error:
        raise InvalidProblem(f"{path}: cannot be read: {error}") from error


def _whole(path: Path) -> Iterator[Record]:
    try:
        log = Record(str(path), json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise InvalidProblem(f"{path}: cannot be read: {error}") from error
    for place, sample in enumerate(log.records("samples"), start=1):
        yield Record(f"{path}:sample {place}", sample.data)


def _sample(record: Record, naming: Naming) -> ForeignResponse:
    if record.data.get("error"):
        raise record.error("error", f"says that the sample failed: {record.record('error').text('message', '')[:200]}")
    record = Record(record.where, _resolved(record.data, record.data.get("attachments") or {}))
    said = [one for one in record.records("messages") if one.data.get("role") == "assistant"]
    if len(said) > 1:
        raise record.error("messages", f"hold {len(said)} answers: a sample must be one")
    output = record.record("output")
    choice = next(iter(output.records("choices")), Record(record.where, {}))
    return response(
        record,
        naming,
        text=content(answer([choice.record("message")])) if choice.data else "",
        prompt=asked(messages(record, "input")),
        problem_ids=names_at(record, "id", "metadata.problem_id", "metadata.task_id"),
        model=output.text("model", ""),
        finished=choice.text("stop_reason", "stop") not in CUT_OFF,
        reward=_reward(record),
    )


def _reward(record: Record) -> float | None:
    """The sample's score where one scorer gave one; None with several: the user names one."""
    scores = record.record("scores")
    if len(scores.data) != 1:
        return None
    value = scores.record(next(iter(scores.data))).data.get("value")
    return GRADES[value] if isinstance(value, str) and value in GRADES else number(record, "scores", value)


def _resolved(value: Any, attachments: dict[str, Any]) -> Any:
    """The value with attachments in the place of what refers to them."""
    if isinstance(value, str) and value.startswith(ATTACHED):
        return attachments.get(value.removeprefix(ATTACHED), value)
    if isinstance(value, list):
        return [_resolved(one, attachments) for one in value]
    if isinstance(value, dict):
        return {name: _resolved(one, attachments) for name, one in value.items() if name != "attachments"}
    return value
