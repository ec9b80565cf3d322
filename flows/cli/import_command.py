"""`spo import`: another warehouse, rows of a table, or rollouts that another program wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from flows.settings import home, warehouse_location

if TYPE_CHECKING:
    from tasks.extras.importing.rollouts import Account, Source

console = Console(highlight=False, soft_wrap=True)
HUB = "hf:"
SHOWN = 5
"""Rows that are named for each reason; the account in the warehouse names all."""


class Format(StrEnum):
    """Who wrote the rollouts."""

    verifiers = "verifiers"
    trl = "trl"
    verl = "verl"
    oapl = "oapl"
    inspect = "inspect"
    columns = "columns"


class Origin(StrEnum):
    """What imported rollouts count as in the corpus."""

    other_model = "other_model"
    human = "human"
    prior_spo = "prior_spo"
    prior_ppo = "prior_ppo"


def import_(
    source: Annotated[
        str,
        typer.Argument(help="Another warehouse, a file or folder, or hf:OWNER/NAME (with --from columns)."),
    ],
    table: Annotated[str | None, typer.Option(help="Table that a file's rows belong to.")] = None,
    from_: Annotated[
        Format | None,
        typer.Option("--from", help="Rollouts: the program that wrote them; columns: any file, see --column."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Rollouts: run with their problems, prompts and policy; default: the newest. --table: run of the rows."
        ),
    ] = None,
    column: Annotated[
        list[str], typer.Option("--column", "-c", help="Rollouts: FIELD=PLACE, e.g. problem_id=info.task; repeatable.")
    ] = [],  # noqa: B006
    model: Annotated[str, typer.Option(help="Rollouts: model of rows that name none.")] = "",
    as_: Annotated[Origin, typer.Option("--as", help="Rollouts: their source in the corpus.")] = Origin.other_model,
    trust: Annotated[bool, typer.Option("--trust", help="Rollouts: use the file's rewards unjudged.")] = False,
    correct_at: Annotated[float, typer.Option(help="Rollouts: least reward of a correct row.")] = 1.0,
    split: Annotated[str, typer.Option(help="hf: split of the data set.")] = "train",
    revision: Annotated[str | None, typer.Option(help="hf: commit or branch.")] = None,
    account: Annotated[Path | None, typer.Option(help="Rollouts: also write the account here, as JSON.")] = None,
) -> None:
    """Add another warehouse, a file's rows, or rollouts of another program. Repeating it adds nothing.

    Rollouts are judged here and retokenized exactly or refused; every row is accounted for (docs/guides/import.md).
    """
    if from_ is None:
        claimed = {"--as": as_ != Origin.other_model, "--trust": trust, "--correct-at": correct_at != 1.0}
        of_rollouts = {"--column": column, "--model": model, **claimed, "--account": account}
        for option, given in (of_rollouts | {"--split": split != "train", "--revision": revision}).items():
            if given:
                raise typer.BadParameter(f"{option} is for rollouts: say --from FORMAT (docs/guides/import.md)")
        _take_rows(source, table, run)
        return
    if table is not None:
        raise typer.BadParameter("--table is for rows of a table, --from for rollouts")
    from tasks.extras.importing.formats.response import Naming
    from tasks.extras.importing.rollouts import Claims, Source
    from tasks.problems.hub import HubPlace

    hub = source.startswith(HUB)
    if hub and from_ != Format.columns:
        raise typer.BadParameter("data sets of the hub are read with --from columns")
    what = Source(
        format=str(from_),
        path=None if hub else Path(source),
        hub=HubPlace(source.removeprefix(HUB), split, None, revision) if hub else None,
        naming=Naming(_columns(column)),
        model=model,
        source=str(as_),
        claims=Claims(trust, correct_at),
    )
    _take_in(what, run, account)


def _take_rows(source: str, table: str | None, run: str | None) -> None:
    if run is not None and table is None:
        raise typer.BadParameter("--run is for rollouts (--from) and for rows of a table (--table)")
    from flows.cli.warehouse_commands import tell
    from warehouse.exchange.importing_files import import_file
    from warehouse.exchange.importing_warehouses import import_warehouse

    if table is None and (source.startswith(HUB) or Path(source).is_file()):
        raise typer.BadParameter(
            f"{source} is no warehouse: say --from FORMAT for a file of rollouts (docs/guides/import.md), "
            f"--from columns for a data set of the hub, or --table TABLE for rows of a table"
        )
    here = "in {0.batches} batches; {0.skipped} batches were here already".format
    if table is not None:
        file = import_file(warehouse_location(), source, table, run_id=run)
        tell(file.rows, here(file))
        return
    done = import_warehouse(warehouse_location(), source)
    tell(done.rows, here(done))
    for batch in done.still_shown:
        print(f"{batch} is left out there; another run made it here, and it stays (else `spo quarantine {batch}`)")


def _take_in(what: Source, run: str | None, account: Path | None) -> None:
    if account is not None and not account.absolute().parent.is_dir():
        raise typer.BadParameter(f"--account {account}: there is no folder {account.parent}")
    done = _imported(what, run)
    _show(done)
    if account is not None:
        account.write_text(json.dumps(asdict(done), indent=2) + "\n", encoding="utf-8")


def _columns(given: list[str]) -> dict[str, str]:
    from tasks.extras.importing.formats.response import FIELDS

    found: dict[str, str] = {}
    for text in given:
        name, equals, place = text.partition("=")
        if name not in FIELDS or not equals or not place:
            raise typer.BadParameter(f"--column {text!r}: needs FIELD=PLACE, a field being one of {', '.join(FIELDS)}")
        found[name] = place
    return found


def _imported(source: Source, run: str | None) -> Account:
    from tasks.extras.importing.rollouts import import_rollouts
    from tasks.run import runs
    from tasks.run.stage import Context
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location()) as store:
        run_id = run or runs.latest(store)
        console.print(f"for the training problems of run {escape(run_id)}")
        with console.status("reading") as status:

            def progress(done: int, total: int, unit: str, note: str) -> None:
                status.update(f"{done} of {total} {unit} {note}")

            context = Context(run_id, runs.load_config(store, run_id), store, home(), progress)
            return import_rollouts(context, source)


def _show(account: Account) -> None:
    lines = [
        (account.rows, f"rows of {account.name} ({account.format})"),
        (account.new, "taken"),
        (account.known, "taken before"),
        (account.refusals, "refused"),
    ]
    lines += [(count, f"  {reason}: {_some(account.refused[reason])}") for reason, count in _counted(account)]
    lines += [(count, f"drawn by {writer}") for writer, count in account.writers.items()]
    lines += [(count, f"with verdict {verdict}") for verdict, count in account.verdicts.items()]
    lines += [
        (account.judged, "programs judged now"),
        (account.reused, "with a verdict that was known"),
        (account.with_logprobs, "with log-probabilities"),
        (account.without_logprobs, "without log-probabilities"),
        (account.retokenized, "put into the policy's tokens in place of their own"),
    ]
    if account.compared:
        named = f": {_some(account.disagreeing)}" if account.disagreeing else ""
        lines.append((len(account.disagreeing), f"of {account.compared} judged otherwise than the file says{named}"))
    for count, text in lines:
        console.print(f"{count:>9,} {escape(text)}")


def _counted(account: Account) -> list[tuple[str, int]]:
    return sorted(((reason, len(where)) for reason, where in account.refused.items()), key=lambda one: -one[1])


def _some(where: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(where) - SHOWN} more" if len(where) > SHOWN else ""
    return ", ".join(where[:SHOWN]) + more
