"""The commands of `spo` that look after the warehouse."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.settings import warehouse_location

Form = Literal["parquet", "jsonl", "hf"]


def compact() -> None:
    """Merge small files, expire unused snapshots, delete replaced files. Safe beside runs."""
    from warehouse.upkeep import maintenance

    require_warehouse()
    for name, value in maintenance.describe(maintenance.compact(warehouse_location())).items():
        print(f"{name:<20} {value}")


def upgrade(
    yes: Annotated[bool, typer.Option("--yes", help="Also with unfinished runs.")] = False,
) -> None:
    """Update the identities that an older version stored; once, and not beside runs.

    The changed rows belong to a new snapshot. Older snapshots, and runs that began before, no longer show them.
    """
    from tasks.problems.rehash import rehash
    from warehouse import Warehouse
    from warehouse.upkeep import maintenance

    require_warehouse()
    with Warehouse.open(warehouse_location()) as store:
        states = store.rows("SELECT run_id FROM run_states WHERE state <> 'finished' ORDER BY run_id")
    if states and not yes:
        names = ", ".join(str(row["run_id"]) for row in states)
        print(
            f"nothing was changed: not finished are {names}, which would no longer see what is changed; finish those "
            "that you will go on with, then `spo upgrade --yes`"
        )
        raise typer.Exit(1)
    done = maintenance.rewrite(warehouse_location(), rehash)
    print(f"identities of {done} programs computed anew; start `spo ui` again where it is open")


def verify(
    repair: Annotated[bool, typer.Option(help="Repair what is safe to repair; nothing is deleted.")] = False,
) -> None:
    """Check every file against the catalog and the ledger: sizes, hashes, rows, batches."""
    from warehouse.upkeep import verification

    require_warehouse()
    result = verification.verify(warehouse_location(), repair=repair)
    for finding in result.findings:
        print(f"{finding.level}: {finding.message}")
    state = "clean" if result.clean else "NOT CLEAN"
    print(f"{result.files} files, {result.rows} rows, {result.batches} batches: {state}")
    raise typer.Exit(0 if result.clean else 1)


def quarantine(
    batches: Annotated[list[str], typer.Argument(help="Batch ids.")],
    reason: Annotated[str, typer.Option(help="Reason, stored with the batches.")] = "bad data",
) -> None:
    """Leave batches and their successors out of every view. Nothing is deleted."""
    from warehouse import Warehouse
    from warehouse.schema import SUPERSEDED
    from warehouse.superseding import successors

    if reason.startswith(SUPERSEDED):
        raise typer.BadParameter(f"--reason cannot begin with {SUPERSEDED!r}, the mark of what was replaced")
    require_warehouse()
    with Warehouse.open(warehouse_location()) as store:
        unknown = sorted(set(batches) - store.committed(batches))
        if unknown:
            print(f"no such batch, so nothing was changed: {', '.join(unknown)}")
            raise typer.Exit(1)
        judged_again = sorted(successors(store, batches) - set(batches))
        for batch in (*batches, *judged_again):
            row = {"bad_batch_id": batch, "reason": reason}
            store.append(f"quarantine/{batch}", {"quarantine": [row]}, run_id="quarantine")
    for batch in judged_again:
        print(f"{batch} holds what one of them held, so it is left out, too")
    print(f"{len(batches) + len(judged_again)} batches left out from now on")


def export(
    target: Annotated[Path, typer.Argument(help="New folder.")],
    what: Annotated[
        list[str], typer.Option("--what", "-w", help="Table, view, or a whole query to be written; repeatable.")
    ] = ["trajectories"],  # noqa: B006
    form: Annotated[
        Form, typer.Option(help="File format; hf: the layout of datasets.load_dataset, with a card.")
    ] = "parquet",
    at: Annotated[int | None, typer.Option(help="Snapshot to read at.")] = None,
    hidden_tests: Annotated[bool, typer.Option(help="Allow hidden tests to be written.")] = False,
) -> None:
    """Write tables, views or a query's rows into a folder."""
    from warehouse.exchange import exporting

    require_warehouse()
    done = exporting.export(warehouse_location(), target, what, form=form, snapshot=at, hidden_tests=hidden_tests)
    tell(asdict(done)["rows"], f"into {target}")


def require_warehouse() -> None:
    """Raise WarehouseMissing where there is none, instead of making an empty one to look after."""
    from warehouse import Warehouse

    Warehouse.open(warehouse_location(), read_only=True).close()


def tell(rows: dict[str, int], where: str) -> None:
    """Print how many rows of each table went there."""
    for table, count in rows.items():
        print(f"{table:<24} {count:>10} rows")
    print(f"{sum(rows.values())} rows {where}")
