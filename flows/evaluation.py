"""The flow `spo/eval`: any model on any problems, as a run of its own with one stage."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import get_run_context
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.pipeline import label
from flows.progress import Log, ProgressTable, Publisher
from flows.retries import RETRY_DELAYS_S, condition
from flows.server.liveness import kept_running
from flows.settings import home, warehouse_location
from tasks import config as configuration

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

LINE = "evaluate"
RETRIES = 3


@flow(name="spo", flow_run_name="eval", validate_parameters=True)
def evaluation(settings: dict[str, Any]) -> State[Any]:
    """Evaluate a model; started again with the same settings it draws and judges nothing twice.

    settings: a configuration with `subject` and `evaluate.transfer`, as `spo eval` writes it.
    """
    from tasks.checks import preflight
    from tasks.run import runs
    from warehouse import Warehouse

    config = configuration.validate(settings | {"recipe": configuration.EVALUATION}, origin="settings of spo/eval")
    preflight.require(config, home(), warehouse_location())
    with closing(Warehouse.open(warehouse_location())) as store:
        run_id = runs.create(store, config, origin=str(flow_run.id))
    this: FlowRun = get_run_context().flow_run  # type: ignore[union-attr, assignment]
    board = ProgressTable([LINE], Publisher(this.id, f"run {run_id}"), Log())
    label(this, run_id, [configuration.EVALUATION])
    with kept_running(this.id), board.running(LINE):
        result = _task(board)(run_id, board)
        board.end(LINE, "skipped" if result.skipped else "done", result.manifest.summary)
    return Completed(message=f"{run_id}: {result.manifest.summary}")


def _task(board: ProgressTable) -> Any:
    return task(
        name=LINE,
        task_run_name=LINE,
        retries=RETRIES,
        retry_delay_seconds=RETRY_DELAYS_S[:RETRIES],
        retry_condition_fn=condition(RETRIES, lambda wait_s, cause: board.retry(LINE, wait_s, cause[:500])),
        persist_result=False,
        cache_policy=NO_CACHE,
    )(_evaluate)


def _evaluate(run_id: str, board: ProgressTable) -> Any:
    from tasks.evaluate.model_evaluation import STAGE
    from tasks.run import runs
    from tasks.run.stage import Context, run_stage
    from warehouse import Warehouse

    with closing(Warehouse.open(warehouse_location())) as store:

        def progress(done: int, total: int, unit: str, note: str) -> None:
            board.progress(LINE, done, total, unit, note)

        return run_stage(STAGE, Context(run_id, runs.load_config(store, run_id), store, home(), progress))
