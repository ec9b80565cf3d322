"""`spo status` and `spo plan`: what runs, what stands, what is to be done."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.cli import under_way, watch
from flows.retries import new_run, settled
from flows.server import embedded, record
from flows.settings import RECIPES, api_url, home, warehouse_location, warehouse_shown
from tasks import config as configuration
from tasks.checks import plan
from tasks.checks.plan import PlannedStage, StageStatus
from tasks.engines.devices import visible_gpus
from tasks.run import placement, runs
from tasks.run.durations import duration
from tasks.run.errors import Oversubscribed
from warehouse import Warehouse, WarehouseMissing

COLOURS = {
    "fresh": "green",
    "stale": "yellow",
    "failed": "red",
    "cancelled": "yellow",
    "retrying": "magenta",
    "waiting": "dim",
    "running": "cyan",
}


def show_status(console: Console, run_id: str | None) -> None:
    """Print the server, what is under way, and the stages of `run_id` (None: of the newest run)."""
    running = _show_server(console)
    try:
        store = Warehouse.open(warehouse_location(), read_only=True)
    except WarehouseMissing:
        console.print("Warehouse  none yet; `spo run` makes it", highlight=False)
        return
    with store:
        console.print(f"Warehouse  {store.location}", highlight=False, soft_wrap=True)
        newest = runs.listing(store, limit=1)
        if run_id is None and not newest:
            console.print("Runs       none yet; `spo run` starts one", highlight=False)
            return
        if run_id is None:
            with suppress(runs.UnknownRun):  # where there are evaluations alone
                run_id = runs.latest(store)
        run_id = run_id or str(newest[0]["run_id"])
        found = plan.statuses(store, run_id, home())
        evaluation = runs.load_config(store, run_id).subject is not None
    console.print(_stages(run_id, found, running.get(run_id, {})))
    if any(status.state != "fresh" for status in found) and run_id not in running:
        ended = next((status.note.partition(":")[0] for status in found if status.state == "failed"), "")
        way = new_run(run_id) if ended and settled(ended) else f"continue with: spo resume {run_id}"
        way = runs.OF_AN_EVALUATION if evaluation else way
        console.print(way, highlight=False, soft_wrap=True)


def _show_server(console: Console) -> dict[str, dict[str, watch.StageRow]]:
    """Print what is under way; the lines of every run under way by run and stage."""
    alive = embedded.running()
    if not embedded.usable():
        console.print(f"Server     {_not_usable()}", highlight=False, soft_wrap=True)
        return {}
    worker = "worker running" if alive["worker"] else "no embedded worker"
    console.print(f"Server     {api_url().removesuffix('/api')} answers; {worker}", highlight=False)
    going = under_way.active()
    for run in going:
        console.print(watch.render(run.lines, f"{run.run_id or run.name}: {run.state.lower()}, flow run {run.name}"))
    if not going:
        console.print("Under way  nothing", highlight=False)
    return by_run(going)


def by_run(going: list[under_way.Active]) -> dict[str, dict[str, watch.StageRow]]:
    """The lines of every run under way by run and stage; of a study those of the run that it is at."""
    found = {run.run_id: {line.stage: line for line in run.lines} for run in going if run.run_id}
    of_studies = (line for run in going for line in run.lines if line.run and line.state in {"running", "retrying"})
    return found | {line.run: {line.run_stage: line} for line in of_studies}


def _not_usable() -> str:
    number = embedded.own_port()
    if number is not None:
        return f"runs on port {number}, and {api_url()} is asked or does not answer"
    return record.foreign_record() or "not running; `spo up` starts it"


def _stages(run_id: str, found: list[StageStatus], lines: dict[str, watch.StageRow]) -> Table:
    table = Table(title=f"Run {run_id}", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading, side in (("stage", "left"), ("state", "left"), ("ended", "right"), ("took", "right"), ("", "left")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for status in found:
        live = lines.get(status.stage)
        state = live.state if live is not None and live.state in {"running", "retrying"} else status.state
        record: dict[str, Any] = status.record or {}
        took = duration(record["seconds"]) if record.get("status") == "completed" else ""
        ended = f"{duration((datetime.now(UTC) - record['created_at']).total_seconds())} ago" if record else ""
        table.add_row(status.stage, f"[{COLOURS[state]}]{state}[/]", ended, took, Text(status.note.split("\n")[0]))
    return table


def show_plan(console: Console, recipe: str, overrides: dict[str, Any], run_id: str | None) -> None:
    """Print what a run of `recipe` (or the rest of `run_id`) would do. Raises ConfigError and UnknownRun."""
    with ExitStack() as stack:
        try:
            store = stack.enter_context(Warehouse.open(warehouse_location(), read_only=True))
        except WarehouseMissing:
            store = None
        if run_id is None:
            config = configuration.load(recipe, overrides, folder=RECIPES)
        elif store is None:
            raise runs.UnknownRun(f"no run {run_id!r}: there is no warehouse at {warehouse_shown()} yet")
        else:
            config = runs.load_pipeline_config(store, run_id)
        work = plan.plan(store, config, home(), run_id=run_id or "")
    console.print(_work(f"Run {run_id}" if run_id else f"A new run of {config.recipe}", work))
    _show_gpus(console, config)
    unknown = [item.stage for item in work if item.seconds is None]
    total = sum(item.seconds or 0.0 for item in work)
    if total == 0 and unknown:
        console.print("how long it takes is known after the first run", highlight=False)
        return
    rest = f", and {', '.join(unknown)}, whose time nobody knows yet" if unknown else ""
    console.print(f"about {duration(total)}, judged by earlier runs{rest}", highlight=False)


def _show_gpus(console: Console, config: configuration.RunConfig) -> None:
    """Print who would get which GPU of this machine while training; what does not fit is told by `preflight`."""
    with suppress(Oversubscribed, configuration.InvalidConfig):
        if told := placement.place(config, visible_gpus()).lines():
            console.print(f"GPUs while training: {'; '.join(told)}", highlight=False, soft_wrap=True)


def _work(title: str, work: list[PlannedStage]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("stage")
    table.add_column("to do", justify="right")
    table.add_column("time", justify="right")
    table.add_column("")
    for item in work:
        if item.done:
            table.add_row(item.stage, "[green]nothing[/]", "", Text(f"done before: {item.amount.note}"))
            continue
        time = "?" if item.seconds is None else duration(item.seconds)
        basis = f" ({item.basis})" if item.basis else ""
        table.add_row(item.stage, f"{item.amount.units:,} {item.amount.unit}", time, Text(item.amount.note + basis))
    return table
