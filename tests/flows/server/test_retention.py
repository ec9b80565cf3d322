"""What Prefect keeps of ended flow runs goes when it is old, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Completed, Failed, Running, State
from prefect.testing.utilities import prefect_test_harness

from flows.server.retention import ended_before, forget


@flow(name="spo")
def nothing() -> None:
    """A flow that is only recorded."""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of a server of its own."""
    with prefect_test_harness(server_startup_timeout=120), get_client(sync_client=True) as client:
        yield client


def flow_run(client: Any, state: State[Any]) -> UUID:
    """A flow run in that state from now on."""
    found = client.create_flow_run(nothing).id
    client.set_flow_run_state(found, state, force=True)
    return found


def test_flow_runs_that_ended_before_are_found_and_deleted_and_all_others_stay(client: Any) -> None:
    kept = {flow_run(client, Running())}
    old = [flow_run(client, Completed()), flow_run(client, Failed())]
    moment = datetime.now(UTC)
    kept.add(flow_run(client, Completed()))
    assert ended_before(client, moment) == old
    forget(client, old)
    assert {run.id for run in client.read_flow_runs()} == kept
    forget(client, old)
    assert ended_before(client, moment) == []
