"""OAPL: the Parquet that its script for offline data sets writes, a response a row.

Source: `verl/trainer/generate_offline_dataset.py` of the paper's repository (danieldritter/OAPL). Columns
`data_source`, `prompt` (messages), `ability`, `reward_model`, `extra_info` {split, index}, `response`,
`precomputed_reward`, and `response_rewards`: those of all responses to the prompt, which say what the prompt is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tasks.extras.importing.formats.response import (
    ForeignResponse,
    Found,
    Naming,
    asked,
    messages,
    names_at,
    number,
    response,
    rows_of,
)
from tasks.problems.records import Record


def read(path: Path, naming: Naming) -> Iterator[Found]:
    """The responses of a file or folder. Raises InvalidProblem."""
    return rows_of(path, naming, lambda record, naming: [_row(record, naming)])


def _row(record: Record, naming: Naming) -> ForeignResponse:
    reward = number(record, "precomputed_reward", record.data.get("precomputed_reward"))
    group = record.items("response_rewards")
    if group and reward not in group:
        raise record.error("precomputed_reward", f"{reward} is none of 'response_rewards', so the row is damaged")
    return response(
        record,
        naming,
        text=record.text("response"),
        prompt=asked(messages(record, "prompt")),
        problem_ids=names_at(record, "extra_info.problem_id", "extra_info.task_id"),
        reward=reward,
    )
