"""The flow `spo/audit`: programs stored as correct, run against each other, and findings accepted as tests."""

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

LINE = "audit"


@flow(name="spo", flow_run_name="audit", validate_parameters=True)
def audit(
    problems: list[str] = [],  # noqa: B006 (never mutated; Prefect needs the plain default)
    problem_set: str | None = None,
    run: str | None = None,
    inputs: int = 200,
    seed: int = 0,
    accept: bool = False,
) -> Any:
    """Audit problems, or accept what their audits found; stopped at any moment, it goes on where it was.

    problems, problem_set, run: what to audit, or whose findings to accept; all without any of them.
    inputs: new inputs for each problem.
    accept: make tests of the findings, and judge by them what had passed.
    """
    from tasks.extras.audit.acceptance import accept as accept_findings
    from tasks.extras.audit.audits import Wanted, look
    from tasks.extras.audit.audits import audit as run_audit
    from warehouse import Warehouse

    this: FlowRun = get_run_context().flow_run  # type: ignore[union-attr, assignment]
    board = ProgressTable([LINE], Publisher(this.id, LINE), Log())

    def tell(*told: Any) -> None:
        board.progress(LINE, *told)

    with kept_running(this.id), board.running(LINE):
        with closing(Warehouse.open(warehouse_location())) as store, store.lock(LINE, timeout_s=60):
            if accept:
                result: Any = accept_findings(store, problems or None, tell)
            else:
                result = run_audit(store, look(store, Wanted(tuple(problems), problem_set, run, inputs, seed)), tell)
        board.end(LINE, "done", result.summary)
    return Completed(message=result.summary)
