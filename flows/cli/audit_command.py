"""`spo audit`: run programs stored as correct against each other, and accept what was found as tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.cli.warehouse_commands import require_warehouse
from flows.settings import warehouse_location
from tasks.errors import CodedError

if TYPE_CHECKING:
    from tasks.extras.audit.audits import Backlog
    from tasks.problems.problem import Problem

console = Console()
INPUTS = 200


class AuditFailed(CodedError):
    """The audit ended early; the same command goes on."""


def audit(
    problems: Annotated[list[str] | None, typer.Argument(help="Problem ids; default: all problems.")] = None,
    set_: Annotated[str | None, typer.Option("--set", help="Problems of this set, as `problems.problem_set`.")] = None,
    run: Annotated[str | None, typer.Option(help="Problems of this run.")] = None,
    inputs: Annotated[int, typer.Option(min=1, max=100_000, help="New inputs for each problem.")] = INPUTS,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the inputs.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per problem.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Make tests of the findings of these problems.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="With --accept: every problem with findings.")] = False,
) -> None:
    """Run programs that passed the same tests on new inputs, and report different answers."""
    named = list(problems or [])
    if accept and (bool(named) == everything or set_ or run):
        raise typer.BadParameter("--accept takes the names of problems, or --all")
    if everything and not accept:
        raise typer.BadParameter("--all belongs to --accept; without names every problem is audited")
    require_warehouse()
    if accept:
        _require(named)
        _submit({"problems": named, "accept": True}, quiet=as_json)
        return
    parameters = {"problems": named, "problem_set": set_, "run": run, "inputs": inputs, "seed": seed}
    backlog = _look(named, set_, run, inputs, seed)
    if not as_json:
        for reason, count in sorted(backlog.left_out.items()):
            _say(f"{count:>9,} problems left out: they {reason}")
    if not backlog.groups:
        if not as_json:
            _say("there is nothing to audit: no problem has two different programs that passed its tests")
        return
    _submit(parameters, quiet=as_json)
    _show(backlog.problems, as_json=as_json)


def _require(names: list[str]) -> None:
    """Refuse unknown names before a server is started."""
    from tasks.extras.audit.audits import Wanted, asked_for
    from warehouse import Warehouse

    if names:
        with Warehouse.open(warehouse_location()) as store:
            asked_for(store, Wanted(tuple(names)))


def _look(problems: list[str], problem_set: str | None, run: str | None, inputs: int, seed: int) -> Backlog:
    """What there is to audit. Opened for writing, which brings a warehouse of an older version up to date."""
    from tasks.extras.audit.audits import Wanted, look
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location()) as store:
        return look(store, Wanted(tuple(problems), problem_set, run, inputs, seed))


def _show(problems: list[Problem], *, as_json: bool) -> None:
    from tasks.extras.audit.audits import results
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        rows = results(store, problems)
    if as_json:
        for row in rows:
            print(json.dumps(row, default=str))
        return
    console.print(_table([row for row in rows if row["disagreeing"]]))
    untested = sum(not row["inputs"] for row in rows)
    quiet = sum(not row["disagreeing"] for row in rows) - untested
    if quiet:
        _say(f"on {quiet} problems all programs agree")
    if untested:
        _say(f"nothing is known of the tests of {untested} problems, for which no new input counted")
    if any(row["disagreeing"] for row in rows):
        _say('`spo sql "FROM survivors"` shows the programs; `spo audit --accept PROBLEM` makes tests of the inputs')


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("problem", overflow="fold")
    for heading in ("programs", "groups", "inputs", "disagreeing", "survivors"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = (row["programs"], row["behaviours"], row["inputs"], row["disagreeing"], len(row["survivors"]))
        table.add_row(escape(row["problem_id"]), *map(str, figures))
    return table


def _submit(parameters: dict[str, Any], *, quiet: bool) -> None:
    from flows.cli import watch
    from flows.server import embedded

    shown = Console(stderr=True) if quiet else console
    embedded.ready(lambda message: shown.print(message, highlight=False, soft_wrap=True))
    ended = watch.watch(watch.submit("spo/audit", parameters), shown)
    if ended.state != "COMPLETED":
        raise AuditFailed(f"it ended as {ended.state}: {ended.message}; the same command goes on where it was")


def _say(message: str) -> None:
    console.print(message, highlight=False, soft_wrap=True)
