"""What a run would do, and which of its stages still stand, read from the warehouse alone; nothing is changed.

A stage of a run is *fresh* when its key, computed now, is the one it was finished with; *stale* when its configuration
or inputs have changed since. What remains to be sampled, judged and trained is counted stage by stage, and timed with
the costs per unit that the warehouse has measured on earlier runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.config import ConfigError, RunConfig, validate
from tasks.evaluate.model_evaluation import STAGE as MODEL_EVALUATION
from tasks.problems.problem import ProblemError
from tasks.run import runs
from tasks.run.errors import StageError
from tasks.run.manifests import Manifest
from tasks.run.provenance import pinned
from tasks.run.stage import Amount, Context, Execution, Outlook, Stage, current_key, finished, run_folder
from tasks.run.stage_names import StageName
from tasks.stages import STAGES
from warehouse import Warehouse
from warehouse.queries import query

State = Literal["fresh", "stale", "failed", "cancelled", "waiting"]

RECORDS = query(__name__, "records")
FAILURES = query(__name__, "failures")
COSTS = query(__name__, "costs")


@dataclass(frozen=True, slots=True)
class StageStatus:
    """How a stage of a run stands."""

    stage: StageName
    state: State
    note: str
    record: dict[str, Any] | None
    """Its newest row of `stages`."""


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """What a stage would do."""

    stage: StageName
    done: bool
    amount: Amount
    seconds: float | None
    """Predicted time; 0 when it is done, None when nothing like it has been measured, or nothing of it is counted."""
    basis: str = ""
    """What the prediction rests on."""


def statuses(store: Warehouse, run_id: str, home: Path) -> list[StageStatus]:
    """How every stage of `run_id` stands; an evaluation has one. Raises UnknownRun."""
    config = runs.load_config(store, run_id)
    records = {row["stage"]: row for row in store.rows(RECORDS, [run_id])}
    failures = {row["stage"]: row for row in store.rows(FAILURES, [run_id])}
    found: list[StageStatus] = []
    evaluation: Mapping[StageName, Stage[Any]] = {MODEL_EVALUATION.name: MODEL_EVALUATION}
    stages = STAGES if config.subject is None else evaluation
    for name, stage in stages.items():
        record, failure = records.get(name), failures.get(name)
        if failure is not None and (record is None or failure["snapshot_id"] > record["snapshot_id"]):
            found.append(StageStatus(name, failure["kind"], str(failure["message"]), record))
        elif record is None:
            found.append(StageStatus(name, "waiting", "", None))
        else:
            context = Context(run_id, config, store, home, pin=pinned(store, run_id))
            found.append(_status(stage, context, record))
    return found


def _status(stage: Stage[Any], context: Context, record: dict[str, Any]) -> StageStatus:
    manifest = stage.manifest.model_validate_json(record["manifest_json"])
    try:
        key = current_key(stage, context)
    except (StageError, ProblemError) as error:
        return StageStatus(stage.name, "stale", f"its inputs are gone: {error}", record)
    if key != record["key"]:
        return StageStatus(stage.name, "stale", "what it reads has changed since", record)
    if not stage.usable(manifest):
        return StageStatus(stage.name, "stale", "its files are gone or others", record)
    return StageStatus(stage.name, "fresh", manifest.summary, record)


def plan(store: Warehouse | None, config: RunConfig, home: Path, *, run_id: str = "") -> list[PlannedStage]:
    """What each stage would do for `config`: as a new run, or as a continuation of `run_id`."""
    manifests: dict[StageName, Manifest] = {}
    context = (
        None if store is None else Context(run_id, config, store, home, pin=pinned(store, run_id), manifests=manifests)
    )
    run_dir = run_folder(home, run_id) if run_id else None
    planned: list[PlannedStage] = []
    earlier = {} if store is None else earlier_executions(store, config)
    for name, stage in STAGES.items():
        known = None if context is None else _finished(stage, context)
        if known is not None:
            manifests[name] = known
            planned.append(PlannedStage(name, True, Amount(0, "", known.summary), 0.0))
            continue
        executions = earlier.get(name, [])
        amount = stage.amount(Outlook(config, context if "prepare" in manifests else None, run_dir, executions))
        planned.append(PlannedStage(name, False, amount, *_predict(stage, executions, amount)))
    return planned


def _finished(stage: Stage[Any], context: Context) -> Manifest | None:
    try:
        known = finished(context.warehouse, stage.manifest, key=current_key(stage, context))
    except (StageError, ProblemError):  # what it reads does not exist yet, or cannot be read
        return None
    return known if known is not None and stage.usable(known) else None


def _predict(stage: Stage[Any], executions: Sequence[Execution], amount: Amount) -> tuple[float | None, str]:
    """Time for the work ahead, from the median cost per unit of earlier executions, and what that rests on."""
    if amount.units == 0:
        return (None, "not counted yet") if amount.open_ended else (0.0, "")
    costs = sorted(execution.seconds / did for execution in executions if (did := stage.units(execution)))
    if not costs:
        return None, "never measured here"
    cost = costs[len(costs) // 2]
    each = f"{cost:.1f} s" if cost >= 1 else f"{1000 * cost:.1f} ms"
    return amount.units * cost, f"{each} each, as in {len(costs)} earlier"


def earlier_executions(store: Warehouse, config: RunConfig) -> dict[StageName, list[Execution]]:
    """By stage the newest executions with this reference policy and engine, those of the same recipe first."""
    found: dict[StageName, list[Execution]] = {name: [] for name in STAGES}
    for row in store.rows(COSTS, [config.reference.model, config.engine.kind, config.recipe, list(STAGES)]):
        with suppress(ConfigError):  # of a version whose configuration was another one
            execution = Execution(row["seconds"], int(row["rows"]), validate(json.loads(row["config_json"])))
            found[row["stage"]].append(execution)
    return found
