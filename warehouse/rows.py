"""Rows as types, for code that reads them by name; a test holds them to the schema."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict, cast

from warehouse.errors import InvalidRows


class _Arrival(TypedDict, total=False):
    arrival: int
    """Not in what `Warehouse.follow` gives, which comes in this order."""


class TrajectoryRow(_Arrival):
    """A row of `SELECT * FROM trajectories`; `warehouse.schema` says what each field means, and in which unit.

    An example: {"trajectory_id": "rollout/tiny-1/0/17/3", "problem_id": "miniature/line.even.cube.sorted", "source":
    "online", "token_ids": [412, 88, 2], "sampled_logprobs": [-0.5, -1.0, -0.25], "reward": 0.0, ...}.
    """

    trajectory_id: str
    problem_id: str
    prompt_id: str | None
    suite_hash: str | None
    source: str
    policy_start: str | None
    policy_end: str | None
    temperature: float | None
    top_p: float | None
    max_response_tokens: int | None
    seed: int | None
    engine: str | None
    prompt_tokens: int | None
    prefix_tokens: int | None
    token_ids: list[int]
    sampled_logprobs: list[float | None] | None
    logprob_kind: str | None
    text: str | None
    program_hash: str | None
    normal_hash: str | None
    finish_reason: str | None
    reward: float | None
    verdict: str | None
    tests_passed: int | None
    tests_total: int | None
    parent_trajectory_id: str | None
    worker: str | None
    step: int | None
    run_id: str
    batch_id: str
    created_at: datetime
    schema_version: int
    snapshot_id: int


def trajectory_rows(rows: Sequence[dict[str, Any]]) -> list[TrajectoryRow]:
    """`rows` of a query as trajectories, which they must hold every column of. Raises InvalidRows naming those missing.

    `trajectory_rows(store.rows("SELECT * FROM trajectories WHERE run_id = ?", [run_id]))`
    """
    if rows:
        missing = TrajectoryRow.__required_keys__ - rows[0].keys()
        if missing:
            raise InvalidRows(
                f"the rows of the query are no whole trajectories: {', '.join(sorted(missing))} missing",
                code="MissingField",
            )
    return cast(list[TrajectoryRow], list(rows))
