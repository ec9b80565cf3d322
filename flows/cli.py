"""The command `spo`."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from flows import judge_command, study_command, warehouse_commands
from flows.settings import api_url, home, recipe_names, warehouse_location

app = typer.Typer(
    name="spo",
    help="Soft Policy Optimization of code models: pipeline, warehouse and judge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
console = Console()
errors = Console(stderr=True)
app.command()(judge_command.judge)
app.command()(study_command.study)
app.command()(warehouse_commands.compact)
app.command()(warehouse_commands.verify)
app.command()(warehouse_commands.quarantine)
app.command()(warehouse_commands.export)
app.command("import")(warehouse_commands.import_)
OWN_ERRORS = {"tasks", "warehouse", "sandbox", "flows", "_duckdb"}
"""Packages whose exceptions are messages for people; DuckDB's are about the SQL that was typed."""


def main() -> None:
    """Entry point: known errors are shown as one message, others with their traceback."""
    try:
        app()
    except Exception as error:
        if type(error).__module__.split(".")[0] not in OWN_ERRORS:
            raise
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    errors.print(f"[bold red]error:[/] {message}", highlight=False, soft_wrap=True)
    sys.exit(1)


@app.command()
def up() -> None:
    """Start the embedded Prefect server and worker, and deploy the flows. Does nothing that is already done."""
    from flows import embedded

    embedded.up(_say)


@app.command()
def down() -> None:
    """Stop the embedded worker and server."""
    from flows import embedded

    embedded.down(_say)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="Recipe name or TOML file.")] = "tiny",
    set_: Annotated[list[str], typer.Option("--set", "-s", help="Override, e.g. train.steps=40.")] = [],  # noqa: B006
    stage: Annotated[str | None, typer.Option(help="Run one stage only.")] = None,
    resume: Annotated[str | None, typer.Option("--run", help="Continue this run instead of creating one.")] = None,
    force: Annotated[list[str], typer.Option(help="Stage to run even if it is done.")] = [],  # noqa: B006
    pin: Annotated[int | None, typer.Option(help="Snapshot at which inputs are read.")] = None,
    summary: Annotated[bool, typer.Option(help="Print the result at the end.")] = True,
) -> None:
    """Run the pipeline: like `prefect deployment run spo/full-pipeline --watch`, with a live table of the stages."""
    from flows import embedded, watching
    from tasks import config as configuration

    overrides: dict[str, Any] = {}
    configuration.merge(overrides, dict(_assignment(text) for text in set_))
    if resume is None:
        configuration.load(recipe, overrides, folder=Path(__file__).parent / "recipes")
    if not embedded.healthy():
        embedded.up(_say)
    parameters: dict[str, Any] = {"pin": pin, "force": force if stage is None else stage in force}
    if resume is None:
        parameters |= {"recipe": recipe, "overrides": overrides}
    else:
        parameters |= {"run": resume}
    deployment = f"spo/{stage or 'full-pipeline'}"
    _say(f"submitting {deployment} to {api_url()}")
    flow_run_id = watching.submit(deployment, parameters)
    state = watching.watch(flow_run_id, console)
    if state != "COMPLETED":
        _explain(str(flow_run_id), state)
    if summary and stage is None:
        from flows import summary as ending

        ending.show(console)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement (DuckDB).")],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    at: Annotated[int | None, typer.Option(help="Read tables as of this snapshot.")] = None,
    limit: Annotated[int, typer.Option(help="Rows shown in the table output; 0 shows all.")] = 100,
) -> None:
    """Ask the warehouse a question. Read-only; works while runs write."""
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        rows = store.rows(query, snapshot=at)
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
    else:
        _table(rows, limit)


@app.command()
def runs(limit: int = 20) -> None:
    """The newest runs and the stages they finished."""
    from tasks import runs as known
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        _table(known.listing(store, limit=limit), limit)


@app.command()
def recipes() -> None:
    """The recipes that ship with the project."""
    for name in recipe_names():
        print(name)


@app.command()
def doctor() -> None:
    """What works on this machine: versions, sandbox walls, engines, GPU, disk, server, warehouse."""
    from flows import doctor as examination

    worst = examination.show(console)
    raise typer.Exit(1 if worst else 0)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        _fail(f"--set needs name=value, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _explain(flow_run_id: str, state: str) -> NoReturn:
    from tasks import runs as known
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        run_id = store.value("SELECT run_id FROM run_events WHERE kind = 'created' AND message = ?", [flow_run_id])
        run_id = run_id or known.latest(store)
        reason = store.value(
            "SELECT stage || ': ' || message FROM run_events WHERE run_id = ? AND kind = 'failed' "
            "ORDER BY created_at DESC LIMIT 1",
            [run_id],
        )
    _fail(
        f"the run ended as {state}; {reason or 'see the flow run in the server'}\n"
        f"resume with: spo run --run {run_id}\n"
        f"          or: prefect deployment run spo/full-pipeline -p run={run_id} --watch\n"
        f"logs: {home() / 'logs' / 'worker.log'}"
    )


def _table(rows: list[dict[str, Any]], limit: int) -> None:
    if not rows:
        console.print("(no rows)")
        return
    shown = rows[:limit] if limit else rows
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, (int, float)) else "left", overflow="fold")
    for row in shown:
        table.add_row(*(_cell(value) for value in row.values()))
    console.print(table)
    if len(shown) < len(rows):
        console.print(f"({len(rows) - len(shown)} more rows; --limit 0 shows all)")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = "" if value is None else str(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _say(message: str) -> None:
    console.print(message, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
