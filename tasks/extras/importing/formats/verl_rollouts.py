"""verl: `STEP.jsonl` in the folder that `trainer.rollout_data_dir` (or `validation_data_dir`) names.

Source: `RayPPOTrainer._write_generations` of verl 0.9. Fields `input` and `output` (decoded without special tokens),
`gts`, `score` and `step`, and what the reward function returned besides. Whether a response was cut off is not written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.extras.importing.formats.response import ForeignResponse, Found, Naming, names_at, number, response, rows_of
from tasks.problems.records import Record


def read(path: Path, naming: Naming) -> Iterator[Found]:
    """The rollouts of a file or folder. Raises InvalidProblem."""
    return rows_of(path, naming, lambda record, naming: [_rollout(record, naming)])


def _rollout(record: Record, naming: Naming) -> ForeignResponse:
    return response(
        record,
        naming,
        text=record.text("output"),
        prompt=record.text("input"),
        problem_ids=names_at(record, "problem_id", "task_id"),
        reward=number(record, "score", record.data.get("score")),
    )
