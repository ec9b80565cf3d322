"""What Prefect keeps of flow runs that have ended: its rows and logs, which nothing of this project reads later."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

PAGE = 200
"""Flow runs that the server lists at a time."""


def ended_before(client: Any, moment: datetime) -> list[UUID]:
    """The flow runs that ended before `moment`, oldest first, whatever became of them."""
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterEndTime,
        FlowRunFilterState,
        FlowRunFilterStateType,
    )
    from prefect.client.schemas.objects import TERMINAL_STATES
    from prefect.client.schemas.sorting import FlowRunSort

    wanted = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=sorted(TERMINAL_STATES))),
        end_time=FlowRunFilterEndTime.model_validate({"before_": moment}),
    )
    ended: list[UUID] = []
    order = FlowRunSort.START_TIME_ASC
    while page := client.read_flow_runs(flow_run_filter=wanted, sort=order, limit=PAGE, offset=len(ended)):
        ended += [run.id for run in page]
    return ended


def forget(client: Any, flow_runs: Sequence[UUID]) -> None:
    """Delete these flow runs, their tasks and their logs; one that is gone already is no fault."""
    from prefect.exceptions import ObjectNotFound

    for flow_run in flow_runs:
        try:
            client.delete_flow_run(flow_run)
        except ObjectNotFound:
            continue
