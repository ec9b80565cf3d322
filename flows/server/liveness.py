"""A live flow run that the server took for dead is put back: heartbeats are judged by a clock that may jump.

The automation of `flows.server.deployments` compares the times of heartbeats with the server's clock. When that clock
is set forward, or the machine has slept, a run whose process is alive is marked as crashed. Only the process itself
knows better, so it looks now and then, by a clock that does not jump.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import UUID

from flows.server.deployments import SILENT

LOOK_EVERY_S = 20.0
GRACE_S = 2 * LOOK_EVERY_S
"""How long a run that was marked as crashed may take to show that it is alive."""


def taken_for_dead(state_type: str, message: str | None) -> bool:
    """Whether the automation, and not the worker that saw the process end, has ended the run."""
    return state_type == "CRASHED" and (message or "") == SILENT


@contextmanager
def kept_running(
    flow_run_id: UUID,
    *,
    every_s: float = LOOK_EVERY_S,
    worker: int | None = None,
    connect: Callable[[], AbstractContextManager[Any]] | None = None,
) -> Generator[None]:
    """While the block runs, and once at its end, the flow run is put back to Running when it is taken for dead.

    A cancelled run is stopped by its worker. Where that has died, this process stops itself as the worker would.
    `worker`: its process, by default this one's parent. `connect`: makes the client of the server.
    """
    over, worker = threading.Event(), worker or os.getppid()

    def look() -> None:
        stopped = False
        with (connect or _connect)() as client:
            while not over.wait(every_s):
                put_back(client, flow_run_id)
                if not stopped and os.getppid() != worker and is_cancelled(client, flow_run_id):
                    stopped = True
                    os.kill(os.getpid(), signal.SIGTERM)
            put_back(client, flow_run_id)

    thread = threading.Thread(target=look, name="liveness", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOOK_EVERY_S)


def _connect() -> AbstractContextManager[Any]:
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def is_cancelled(client: Any, flow_run_id: UUID) -> bool:
    """Whether somebody has cancelled the flow run; False, too, when the server does not answer."""
    import httpx

    try:
        state = client.read_flow_run(flow_run_id).state
    except httpx.HTTPError:
        return False
    return state is not None and str(state.type.value) in ("CANCELLING", "CANCELLED")


def put_back(client: Any, flow_run_id: UUID) -> bool:
    """Whether the flow run was taken for dead and runs again; False, too, when the server does not answer."""
    import httpx
    from prefect.states import Running

    try:
        state = client.read_flow_run(flow_run_id).state
        if state is None or not taken_for_dead(str(state.type.value), state.message):
            return False
        alive = Running(message="taken for dead after a jump of the clock, but alive")
        client.set_flow_run_state(flow_run_id, alive, force=True)
    except httpx.HTTPError:
        return False
    return True
