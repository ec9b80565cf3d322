"""The flow `spo/rejudge`: what an older version of the sandbox may have judged wrongly is judged again."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from prefect import flow
from prefect.context import get_run_context
from prefect.states import Completed

from flows.progress import Log, ProgressTable, Publisher
from flows.server.liveness import kept_running
from flows.settings import warehouse_location

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

LINE = "rejudge"


@flow(name="spo", flow_run_name="rejudge", validate_parameters=True)
def rejudge(verdicts: list[str] = []) -> Any:  # noqa: B006 (never mutated; Prefect needs the plain default)
    """Judge suspect responses again; stopped at any moment, it goes on where it was.

    verdicts: further stored verdicts to be doubted, e.g. ["time_limit"].
    """
    from tasks.extras.rejudge import look
    from tasks.extras.rejudge import rejudge as judge_again
    from warehouse import Warehouse

    this: FlowRun = get_run_context().flow_run  # type: ignore[union-attr, assignment]
    board = ProgressTable([LINE], Publisher(this.id, LINE), Log())
    with kept_running(this.id), board.running(LINE):
        with closing(Warehouse.open(warehouse_location())) as store, store.lock(LINE, timeout_s=60):
            result = judge_again(store, look(store, verdicts), lambda *told: board.progress(LINE, *told))
        board.end(LINE, "done", result.summary)
    return Completed(message=result.summary)
