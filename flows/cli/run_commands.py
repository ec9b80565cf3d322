"""The commands of `spo` that start, continue and show runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from flows.settings import DEFAULT_RECIPE, RECIPES, api_url, home, server_elsewhere, warehouse_location
from tasks.errors import CodedError
from tasks.run.stage_names import NEED_EARLIER_STAGES, STAGE_NAMES, StageName

if TYPE_CHECKING:
    from uuid import UUID

    from flows.cli.watch import Look
    from tasks.config import RunConfig
    from warehouse import Warehouse

Stage = StrEnum("Stage", list(STAGE_NAMES))
Settings = Annotated[list[str], typer.Option("--set", "-s", help="Override, e.g. train.steps=40.")]
Pin = Annotated[int | None, typer.Option(help="Snapshot at which inputs are read.")]
console = Console()


class RunEnded(CodedError):
    """A run ended otherwise than completed; the message says how to go on."""


def run(
    recipe: Annotated[str | None, typer.Argument(help="Recipe name or TOML file; `tiny` without --like.")] = None,
    set_: Settings = [],  # noqa: B006
    like: Annotated[str | None, typer.Option(metavar="RUN", help="Use this run's settings.")] = None,
    stage: Annotated[Stage | None, typer.Option(help="Run one stage only: prepare, q0 or corpus.")] = None,
    force: Annotated[list[Stage], typer.Option(help="Run this stage although it is done; repeatable.")] = [],  # noqa: B006
    pin: Pin = None,
    summary: Annotated[bool, typer.Option(help="Print the result at the end.")] = True,
) -> None:
    """Run the pipeline with a live table of the stages."""
    if recipe and like:
        raise typer.BadParameter(f"a recipe ({recipe!r}) and --like {like} cannot both be the origin of a run")
    if stage in NEED_EARLIER_STAGES:
        raise typer.BadParameter(
            f"--stage {stage}: a new run has nothing for it to read; for a run that has: spo resume RUN --only {stage}"
        )
    if stage is not None and (others := [name for name in force if name != stage]):
        raise typer.BadParameter(
            f"--force {others[0]} with --stage {stage}, which runs that stage alone; leave one out"
        )
    config, tree = submitted(recipe or DEFAULT_RECIPE, set_, like)
    check(config)
    _tell_faster(config)
    _check_pin(pin)
    _check_warehouse()
    _start_server()
    parameters: dict[str, Any] = {"overrides": tree, "pin": pin, **_origin(recipe or DEFAULT_RECIPE, like)}
    parameters["force"] = list(force) if stage is None else stage in force
    run_id = _watch(f"spo/{stage or 'full-pipeline'}", parameters, None)
    if summary and stage is None:
        _summary(run_id)


def resume(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Run to continue; default: the newest.")] = None,
    from_: Annotated[
        Stage | None, typer.Option("--from", help="Run this stage and all later ones, even if they are done.")
    ] = None,
    only: Annotated[Stage | None, typer.Option(help="Run this stage alone.")] = None,
    pin: Pin = None,
    summary: Annotated[bool, typer.Option(help="Print the result at the end.")] = True,
) -> None:
    """Continue a run: skip finished stages, continue unfinished ones."""
    from tasks.run import runs
    from tasks.run.stage import refuse
    from warehouse import Warehouse

    later: Sequence[StageName] = () if from_ is None else STAGE_NAMES[STAGE_NAMES.index(from_) :]
    if later and only is not None and only not in later:
        again = f"--from {only} --only {only}"
        raise typer.BadParameter(f"--from {from_} does nothing of {only}, which comes before it, again: {again}")
    forced: list[StageName] = [stage for stage in later if only is None or stage == only]
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        run_id = run_id or runs.latest(store)
        runs.load_pipeline_config(store, run_id)
        refuse(store, run_id, forced, pin)
        done = not forced and pin is None and _all_done(store, run_id)
    if done:
        console.print(f"every stage of {run_id} is done; to do one again: spo resume {run_id} --from evaluate")
    else:
        _check_warehouse()
        _start_server()
        parameters: dict[str, Any] = {"run": run_id, "pin": pin, "force": forced if only is None else bool(forced)}
        _watch(f"spo/{only or 'full-pipeline'}", parameters, run_id)
    if summary and only is None:
        _summary(run_id)


def _all_done(store: Warehouse, run_id: str) -> bool:
    """Whether every stage stands; with a server on another machine that is for the worker there to see."""
    from tasks.checks import plan

    return not server_elsewhere() and all(stage.state == "fresh" for stage in plan.statuses(store, run_id, home()))


def status(
    run_id: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Run; default: the newest.")] = None,
) -> None:
    """Print active stages with rates and times left, and the state of each stage of a run."""
    from flows.cli import status as shown

    shown.show_status(console, run_id)


def plan(
    recipe: Annotated[str, typer.Argument(help="Recipe name or TOML file.")] = "tiny",
    set_: Settings = [],  # noqa: B006
    of: Annotated[str | None, typer.Option("--run", help="Estimate the rest of this run.")] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Draw 16 samples of 16 prompts first; Q0 reuses them.")
    ] = False,
) -> None:
    """Estimate a run: samples, judgements, training steps, stored work, time.

    Without --probe it changes nothing.
    """
    from flows.cli import status as shown

    tree = overrides(set_)
    config = None
    if probe and of:
        raise typer.BadParameter(f"--probe is for a new run, and --run {of} is a run")
    if of and set_:
        raise typer.BadParameter(f"--set is for a new run, and --run {of} has its settings: spo plan RECIPE --set ...")
    if not of:
        config, tree = submitted(recipe, set_)
    if probe and config is not None:
        from flows.cli import probe as probing

        check(config)
        probing.show(console, config)
        return
    shown.show_plan(console, recipe, tree, of)
    if config is not None:
        _tell_faster(config)
        _tell_faults(config)


def _tell_faster(config: RunConfig) -> None:
    """Say when a pretrained model would be computed in float32 on a processor that is faster in bfloat16."""
    from tasks.engines.processor import computes_bfloat16

    chosen = config.reference
    if chosen.dtype == "float32" and chosen.model != "miniature" and not server_elsewhere() and computes_bfloat16():
        console.print(
            "[yellow]faster:[/] this processor computes in bfloat16, and this run would in float32, which takes "
            "about twice as long: -s reference.dtype=bfloat16",
            highlight=False,
            soft_wrap=True,
        )


def _tell_faults(config: RunConfig) -> None:
    from tasks.checks import preflight

    try:
        check(config)
    except preflight.NotReady as error:
        console.print(f"[yellow]not ready:[/] {escape(str(error))}", highlight=False, soft_wrap=True)


def submitted(recipe: str, settings: list[str], like: str | None = None) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration of a new run of `recipe`, or `like` another, and the overrides that make it.

    They are what `--set` options describe, and the paths of the recipe and of theirs from this folder on.
    Raises ConfigError when the recipe and they make no possible configuration, UnknownRun when there is no run `like`.
    """
    from tasks import config as configuration

    tree = overrides(settings)
    if like is None:
        config = configuration.load(recipe, tree, folder=RECIPES)
    else:
        config = configuration.changed(_stored_config(like), tree)
    _take_back(tree, config.model_dump(mode="json"))
    paths = configuration.absolute_paths(config, Path.cwd())
    configuration.merge(tree, paths)
    return configuration.changed(config, paths), tree


def _take_back(tree: dict[str, Any], settled: Any) -> None:
    """Write what "none" took back as None, as Prefect's check of parameters wants it; a text may be that word."""
    for name, value in tree.items():
        meant = settled.get(name) if isinstance(settled, Mapping) else None
        if isinstance(value, dict):
            _take_back(value, meant)
        elif value == "none" and meant != "none":
            tree[name] = None


def _stored_config(run_id: str) -> RunConfig:
    from tasks.run import runs
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        return runs.load_pipeline_config(store, run_id)


def _origin(recipe: str, like: str | None) -> dict[str, str]:
    """The parameter that says what a new run is made of."""
    if like is not None:
        return {"like": like}
    return {"recipe": str(Path(recipe).absolute()) if recipe.endswith(".toml") else recipe}


def _check_pin(pin: int | None) -> None:
    """Raise UnknownSnapshot when there is no snapshot `pin`, WarehouseMissing when there is none at all."""
    from warehouse import Warehouse

    if pin is not None:
        with Warehouse.open(warehouse_location(), read_only=True) as store:
            store.check_snapshot(pin)


def check(config: RunConfig) -> None:
    """Raise NotReady, which lists everything that is wrong, unless the run could begin.

    With a server on another machine the worker may be there, too: its files are not here to be looked at, and the flow
    looks before it makes the run.
    """
    from tasks.checks import preflight

    if not server_elsewhere():
        preflight.require(config, home(), warehouse_location())


def overrides(settings: list[str]) -> dict[str, Any]:
    """The tree that `--set name=value` options describe; values are JSON, or else text."""
    from tasks import config as configuration

    tree: dict[str, Any] = {}
    configuration.merge(tree, dict(_assignment(text) for text in settings))
    return tree


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--set needs name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _check_warehouse() -> None:
    """Raise NotWritable now, and not in the flow, when a run here may not write its warehouse."""
    from warehouse import Warehouse

    if not server_elsewhere():
        Warehouse.open(warehouse_location()).close()


def _start_server() -> None:
    from flows.server import embedded

    embedded.ready(_say)


def _watch(deployment: str, parameters: dict[str, Any], run_id: str | None) -> str:
    """Submit and watch; the run's name. Raises RunEnded unless it completes."""
    from flows.cli import watch
    from tasks.run import runs
    from warehouse import Warehouse

    _say(f"submitting {deployment} to {api_url()}")
    flow_run_id = watch.submit(deployment, parameters)
    ended = watch.watch(flow_run_id, console)
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        found = run_id or runs.created_by(store, str(flow_run_id))
    if ended.state != "COMPLETED" or found is None:
        explain(ended, found, flow_run_id)
    return found


def explain(ended: Look, run_id: str | None, flow_run_id: UUID) -> NoReturn:
    """Raise RunEnded: NoRunMade, RunCancelled or RunFailed by its code."""
    from flows.retries import new_run, settled

    stopped = [f"{line.stage}: {line.note}" for line in ended.lines if line.state == "failed"]
    cause = "" if ended.state == "CANCELLED" else f": {stopped[0] if stopped else ended.message}"
    logs = f"log: prefect flow-run logs {flow_run_id}"
    if run_id is None:
        raise RunEnded(f"the flow run ended as {ended.state} before it had made a run{cause}\n{logs}", code="NoRunMade")
    how = "was cancelled" if ended.state == "CANCELLED" else f"ended as {ended.state}"
    kind = cause.removeprefix(": ").partition(": ")[2].partition(":")[0]
    ways = (
        new_run(run_id)
        if settled(kind)
        else (
            f"resume with: spo resume {run_id}\n"
            f"         or: prefect deployment run spo/full-pipeline -p run={run_id} --watch"
        )
    )
    code = "RunCancelled" if ended.state == "CANCELLED" else "RunFailed"
    raise RunEnded(f"run {run_id} {how}{cause}\n{ways}\n{logs}", code=code)


def _summary(run_id: str) -> None:
    from flows.cli import summary as ending

    ending.show(console, run_id)


def _say(message: str) -> None:
    console.print(message, highlight=False, soft_wrap=True)
