"""The order: the flow `spo` and one deployment per stage.

    prepare -> q0 -> corpus -> pivotal -> train -> evaluate -> report

The flow only orders, records and shows; the work is in `tasks`. Each stage decides by its key whether it has been
done before (tasks/run/stage.py), so that running again, running one stage alone and retrying a failed run are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import httpx
from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import get_run_context
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import WithJsonSchema

from flows import artifacts
from flows.progress import Log, NestedProgress, ProgressTable, Publisher, cause, ended
from flows.ray_shards import executor_of
from flows.retries import RETRY_DELAYS_S, condition, new_run, settled
from flows.server.liveness import kept_running
from flows.settings import DEFAULT_RECIPE, RECIPES, home, recipe_names, warehouse_location, warehouse_shown
from tasks import config as configuration
from tasks.run.stage_names import NEED_EARLIER_STAGES, STAGE_NAMES, StageName

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

    from tasks.run.manifests import Manifest
    from tasks.run.stage import StageResult

RETRIES = {"q0": 3, "pivotal": 3, "evaluate": 3, "corpus": 2, "train": 2}

Overrides = Annotated[dict[str, Any], WithJsonSchema(configuration.overrides_schema())]
Recipe = Annotated[str, WithJsonSchema({"type": "string", "pattern": rf"^({'|'.join(recipe_names())}|.+\.toml)$"})]


def _flow_run_name() -> str:
    """`tiny-3` when a run is continued, else the recipe's name."""
    asked = flow_run.parameters
    return str(asked.get("run") or asked.get("like") or Path(asked.get("recipe") or DEFAULT_RECIPE).stem)


@flow(name="spo", flow_run_name=_flow_run_name, validate_parameters=True)
def full_pipeline(
    recipe: Recipe | None = None,
    run: str | None = None,
    like: str | None = None,
    overrides: Overrides = {},  # noqa: B006 (never mutated; Prefect needs the plain default)
    force: list[StageName] = [],  # noqa: B006
    pin: int | None = None,
) -> State[Any]:
    """Every stage in order.

    recipe: a name in flows/recipes or the path of a TOML file; `tiny` when neither `run` nor `like` is given.
    run: continue this run with its stored configuration, instead of creating one.
    like: create a run with the stored configuration of this one.
    overrides: fields of the new run to change, e.g. {"train": {"steps": 40}}.
    force: stages to run even if they are done.
    pin: snapshot of the warehouse after which nothing of other runs is read, now and whenever the run is continued.
    """
    run_id = _run_id(overrides, recipe=recipe, run=run, like=like)
    return _run(STAGE_NAMES, run_id=run_id, force=force, pin=pin)


def _stage_flow(stage: StageName) -> Any:
    def body(
        run: str | None = None,
        recipe: Recipe | None = None,
        like: str | None = None,
        overrides: Overrides = {},  # noqa: B006
        force: bool = False,
        pin: int | None = None,
    ) -> State[Any]:
        """One stage of the newest run or of `run`; one that needs no more than `prepare`, also of a new run."""
        new = bool(recipe or like)
        if new:
            _refuse_without_inputs(stage)
        needed: Sequence[StageName] = ("prepare", stage) if new and stage != "prepare" else (stage,)
        run_id = _run_id(overrides, recipe=recipe, run=run, like=like) if new or run else _newest(overrides)
        return _run(needed, run_id=run_id, force=[stage] if force else [], pin=pin)

    body.__name__ = stage
    return flow(name="spo", flow_run_name=stage)(body)


prepare = _stage_flow("prepare")
q0 = _stage_flow("q0")
corpus = _stage_flow("corpus")
pivotal = _stage_flow("pivotal")
train = _stage_flow("train")
evaluate = _stage_flow("evaluate")
report = _stage_flow("report")


def _run_id(
    overrides: dict[str, Any], *, recipe: str | None = None, run: str | None = None, like: str | None = None
) -> str:
    """The run to continue, or a new one. Raises ConfigError and UnknownRun."""
    from tasks.checks import preflight
    from tasks.run import runs
    from warehouse import Warehouse

    given = [name for name, value in (("recipe", recipe), ("run", run), ("like", like)) if value]
    if len(given) > 1:
        raise configuration.InvalidConfig(f"{' and '.join(given)} were given together; a run has one origin")
    with closing(Warehouse.open(warehouse_location())) as store:
        if run is not None:
            if overrides:
                raise configuration.InvalidConfig(f"run {run!r} has its configuration; start a new run to override it")
            runs.load_pipeline_config(store, run)
            return run
        if like is not None:
            config = configuration.changed(runs.load_pipeline_config(store, like), overrides)
        else:
            config = configuration.load(recipe or DEFAULT_RECIPE, overrides, folder=RECIPES)
        config = _absolute(config)
        if runs.created_by(store, str(flow_run.id)) is None:
            preflight.require(config, home(), warehouse_location())
        return runs.create(store, config, origin=str(flow_run.id))


def _refuse_without_inputs(stage: StageName) -> None:
    """Raise InvalidConfig for a stage that reads what earlier ones leave: a new run has nothing of it."""
    if stage in NEED_EARLIER_STAGES:
        raise configuration.InvalidConfig(
            f"stage {stage!r} of a new run has nothing to read: run spo/full-pipeline, or give the run that is to go "
            f"on (run=NAME), without recipe and like"
        )


def _newest(overrides: dict[str, Any]) -> str:
    """The newest run of the pipeline. Raises InvalidConfig when something is to be overridden in it."""
    from tasks.run import runs
    from warehouse import Warehouse

    if overrides:
        raise configuration.InvalidConfig(
            "overrides were given without recipe or like: the newest run has its configuration; name what a new run "
            "is made of (recipe=NAME or like=RUN), or leave overrides out"
        )
    with closing(Warehouse.open(warehouse_location())) as store:
        return runs.latest(store)


def _absolute(config: configuration.RunConfig) -> configuration.RunConfig:
    """Paths in the configuration made independent of the folder a worker happens to run in."""
    return configuration.absolute(config, Path(os.environ.get("SPO_ROOT", ".")))


def _run(stages: Sequence[StageName], *, run_id: str, force: Iterable[StageName], pin: int | None) -> State[Any]:
    """The flow run's final state, whose message is the result. Raises what a stage raises."""
    this: FlowRun = get_run_context().flow_run  # type: ignore[union-attr, assignment]
    recipe = _settle(run_id, force, pin)
    asked = [stage for stage in stages if stage != "prepare" or len(stages) == 1]
    whole = len(stages) == len(STAGE_NAMES)
    label(this, run_id if whole else f"{run_id} {asked[-1]}", [recipe, "full-pipeline" if whole else asked[-1]])
    board = ProgressTable(stages, Publisher(this.id, f"run {run_id}"), Log())
    with kept_running(this.id):
        manifests = execute_stages(stages, run_id, board, force=force)
        artifacts.publish(run_id, manifests)
    return Completed(message=artifacts.headline(run_id, manifests))


def label(this: FlowRun, name: str, tags: Iterable[str]) -> None:
    """Name the flow run after its run, now that it is known, and tag it."""
    with get_client(sync_client=True) as client:
        try:
            client.update_flow_run(this.id, name=name, tags=sorted({*this.tags, *tags}))
        except httpx.HTTPError as error:  # a label is no reason to fail
            get_run_logger().warning("the flow run is not named %s: %s", name, error)


def _settle(run_id: str, force: Iterable[StageName], pin: int | None) -> str:
    """Pin the run where that is asked for and refuse at once what cannot be; its recipe.

    Raises TrainingHasBegun and UnknownSnapshot.
    """
    from tasks.run import provenance, runs
    from tasks.run.stage import refuse
    from warehouse import Warehouse

    with closing(Warehouse.open(warehouse_location())) as store:
        refuse(store, run_id, force, pin)
        if pin is not None:
            provenance.pin(store, run_id, pin)
        return runs.load_config(store, run_id).recipe


def execute_stages(
    stages: Sequence[StageName],
    run_id: str,
    board: ProgressTable | NestedProgress,
    *,
    force: Iterable[StageName] = (),
    tidy: bool = True,
) -> dict[StageName, Manifest]:
    """What the stages of a run leave: each in order as a Prefect task of the current flow run, shown on `board`.

    `tidy`: the warehouse is tidied up behind the last of them.
    """
    from tasks.train import supervisor

    log = get_run_logger()
    log.info("run %s, stages %s, warehouse %s", run_id, ", ".join(stages), warehouse_shown())
    manifests: dict[StageName, Manifest] = {}
    for stage in stages:
        board.start(stage)
        try:
            state: State[Any] = _task(stage, board)(stage, run_id, board, stage in force, return_state=True)
            result: StageResult[Any] = state.result()
        except BaseException as error:
            state_name, why = ended(error), cause(error)
            board.end(stage, state_name, why)
            log.error("stage %s %s: %s\n%s", stage, state_name, why, ways_on(run_id, stage, type(error).__name__))
            raise
        if not result.skipped and "train" in stages[len(manifests) + 1 :]:
            supervisor.get_ready()  # while the stages before it work
        manifests[stage] = result.manifest
        summary = result.manifest.summary
        board.end(stage, *(("skipped", f"done before: {summary}") if result.skipped else ("done", summary)))
    if tidy:
        _tidy(log)
    return manifests


def _tidy(log: Any) -> None:
    """Upkeep of the warehouse after a run; what keeps it from it is told and undoes nothing."""
    from warehouse import WarehouseError
    from warehouse.upkeep import maintenance

    try:
        done = maintenance.describe(maintenance.compact(warehouse_location()))
    except WarehouseError as error:
        log.warning("the warehouse was not tidied up, `spo compact` does it: %s", error)
    else:
        log.info("warehouse: %s", ", ".join(f"{name} {value}" for name, value in done.items()))


def ways_on(run_id: str, stage: str, kind: str) -> str:
    """What to do after `stage` has ended with the error class `kind`: continue, or start anew where that is no use."""
    if settled(kind):
        return new_run(run_id)
    return "resume with:\n  " + "\n  ".join(resume_commands(run_id, stage))


def resume_commands(run_id: str, stage: str) -> list[str]:
    """The commands that continue a run after `stage` has failed; finished stages are skipped."""
    prefect = "prefect deployment run spo/{} -p run={} --watch"
    return [
        f"spo resume {run_id}",
        prefect.format("full-pipeline", run_id),
        f"{prefect.format(stage, run_id)}   # it alone",
    ]


def _task(stage: StageName, board: ProgressTable | NestedProgress) -> Any:
    retries = RETRIES.get(stage, 0)
    return task(
        name=stage,
        task_run_name=stage,
        retries=retries,
        retry_delay_seconds=RETRY_DELAYS_S[: max(1, retries)],
        retry_condition_fn=condition(retries, lambda wait_s, cause: board.retry(stage, wait_s, cause[:500])),
        persist_result=False,
        cache_policy=NO_CACHE,
    )(_execute)


def _execute(stage: StageName, run_id: str, board: ProgressTable | NestedProgress, force: bool) -> Any:
    from tasks.run import provenance, runs
    from tasks.run.stage import Context, run_stage
    from tasks.stages import STAGES
    from warehouse import Warehouse
    from warehouse.upkeep.background_compaction import BackgroundCompaction

    compaction = BackgroundCompaction(warehouse_location(), tell=get_run_logger().warning)
    with closing(Warehouse.open(warehouse_location())) as store, compaction:
        config = runs.load_config(store, run_id)
        context = Context(
            run_id,
            config,
            store,
            home(),
            progress=lambda done, total, unit, note: board.progress(stage, done, total, unit, note),
            pin=provenance.pinned(store, run_id),
            executor=executor_of(config.shards),
        )
        attempts: int = get_run_context().task_run.run_count  # type: ignore[union-attr]
        result = run_stage(STAGES[stage], context, force=force, again=attempts > 1)
    return Completed(name="Skipped", data=result) if result.skipped else result
