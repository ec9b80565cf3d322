"""The command `spo`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.cli import (
    audit_command,
    clean_command,
    eval_command,
    import_command,
    judge_command,
    publish_command,
    recipe_commands,
    rejudge_command,
    report_commands,
    run_commands,
    study_command,
    ui_command,
    warehouse_commands,
)
from flows.settings import warehouse_location

app = typer.Typer(
    name="spo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
NARROWEST = 12
"""Characters that a column has at least, or else the values of a row stand one below the other."""
ALL_RUNS = 1 << 40
console = Console()
errors = Console(stderr=True)
app.command()(run_commands.run)
app.command()(run_commands.resume)
app.command()(run_commands.plan)
app.command()(run_commands.status)
app.command()(recipe_commands.recipes)
app.command()(judge_command.judge)
app.command()(study_command.study)
app.command()(report_commands.report)
app.command()(report_commands.compare)
app.command()(report_commands.show)
app.command("eval")(eval_command.evaluate)
app.command()(publish_command.publish)
app.command()(ui_command.ui)
app.command()(clean_command.clean)
app.command()(warehouse_commands.compact)
app.command()(warehouse_commands.upgrade)
app.command()(rejudge_command.rejudge)
app.command()(audit_command.audit)
app.command()(warehouse_commands.verify)
app.command()(warehouse_commands.quarantine)
app.command()(warehouse_commands.export)
app.command("import")(import_command.import_)
OWN_ERRORS = {"tasks", "warehouse", "sandbox", "flows", "_duckdb"}
"""Packages whose exceptions are messages for people; DuckDB's are about the SQL that was typed."""


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"spo {version('spo-pipeline')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Soft Policy Optimization of code models: pipeline, warehouse and judge."""


def main() -> None:
    """Entry point: known errors, and those of files, are shown as one message, others with their traceback."""
    try:
        app()
    except Exception as error:
        of_a_file = isinstance(error, OSError) and error.filename is not None
        if type(error).__module__.split(".")[0] not in OWN_ERRORS and not of_a_file:
            raise
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    errors.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(1)


@app.command()
def up() -> None:
    """Start the embedded Prefect server and worker, and deploy the flows."""
    from flows.server import embedded

    embedded.up(_say)


@app.command()
def down() -> None:
    """Stop the embedded worker and server."""
    from flows.server import embedded

    embedded.down(_say)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="One SQL statement (DuckDB).")],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    at: Annotated[int | None, typer.Option(help="Read tables as of this snapshot.")] = None,
    limit: Annotated[int, typer.Option(help="Rows shown in the table output; 0 shows all.")] = 100,
) -> None:
    """Query the warehouse. Read-only; works while runs write."""
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
def runs(limit: Annotated[int, typer.Option(min=0, help="Newest runs shown; 0 shows all.")] = 20) -> None:
    """List the newest runs and their finished stages."""
    from tasks.run import runs as known
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        _table(known.listing(store, limit=limit or ALL_RUNS), limit)


@app.command()
def doctor() -> None:
    """Check this machine: versions, sandbox walls, engines, GPU, disk, server, warehouse."""
    from flows.cli import doctor as examination

    worst = examination.show(console)
    raise typer.Exit(1 if worst else 0)


def _table(rows: list[dict[str, Any]], limit: int) -> None:
    if not rows:
        console.print("(no rows)")
        return
    shown = rows[:limit] if limit else rows
    cells = [[_cell(value) for value in row.values()] for row in shown]
    names = list(rows[0])
    wanted = [max(len(name), *map(len, column)) for name, column in zip(names, zip(*cells, strict=True), strict=True)]
    if sum(min(width, NARROWEST) + 2 for width in wanted) > console.width:
        _one_below_the_other(names, cells)
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name, value in rows[0].items():
            justify = "right" if isinstance(value, (int, float)) else "left"
            table.add_column(escape(name), justify=justify, overflow="fold")
        for row in cells:
            table.add_row(*row)
        console.print(table)
    if len(shown) < len(rows):
        console.print(f"({len(rows) - len(shown)} more rows; --limit 0 shows all)")


def _one_below_the_other(names: Sequence[str], cells: Sequence[Sequence[Text]]) -> None:
    """Each row as lines of a name and its value, for rows too wide to stand side by side."""
    for number, row in enumerate(cells, start=1):
        console.print(f"row {number}", style="bold")
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column()
        table.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            table.add_row(escape(name), cell)
        console.print(table)


def _cell(value: Any) -> Text:
    """The value as it is: brackets in a program are no styles."""
    if isinstance(value, float):
        return Text(f"{value:.4g}")
    if isinstance(value, datetime):
        return Text(value.isoformat(sep=" ", timespec="seconds"))
    text = "" if value is None else str(value)
    return Text(text if len(text) <= 200 else text[:197] + "...")


def _say(message: str) -> None:
    console.print(message, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
