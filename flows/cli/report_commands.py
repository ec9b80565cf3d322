"""The commands of `spo` that show runs: `report`, `compare`, `show`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.settings import home, warehouse_location

LONGEST_NAME = 200
"""Bytes of a report's folder's name; most file systems hold 255."""


def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs; default: the newest.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write into.")] = None,
) -> None:
    """Write one HTML file and its figures about one run or several; also while they train."""
    from tasks.report import run_history, run_report
    from tasks.run import runs as known
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        names = list(dict.fromkeys(runs or [known.latest(store)]))
        histories = [run_history.read(store, home(), name) for name in names]
        folder = out or home() / "reports" / _folder_name(names)
        page, *pictures = run_report.write(histories, str(store.location), folder)
    print(page)
    print(f"{len(pictures)} figures beside it: {', '.join(path.name for path in pictures)}")


def _folder_name(names: Sequence[str]) -> str:
    """The runs' names, as long as a folder's name may hold them; else the first one, their number and a digest."""
    from tasks.run.identity import digest

    whole = "+".join(names)
    return whole if len(whole.encode()) <= LONGEST_NAME else f"{names[0]}+{len(names) - 1}-{digest(runs=names)[:8]}"


def compare(
    first: Annotated[str, typer.Argument(help="Run, or RUN@STEP.", metavar="RUN_A")],
    second: Annotated[str, typer.Argument(help="Run, or RUN@STEP.", metavar="RUN_B")],
) -> None:
    """Compare two policies on the same problems: pass@k, paired difference with interval, sign test.

    A run stands for its last evaluated policy; tiny-1@0 is the reference policy it started from.
    """
    from tasks.report.comparison import compare as compared
    from tasks.run.intervals import interval_text
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        result = compared(store, home(), first, second)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("", first, second, "change", "95% interval", "better", "worse", "equal", "p"):
        whole = heading not in (first, second)  # long names of runs are folded, so that no number is cut
        table.add_column(heading, justify="right" if heading else "left", no_wrap=whole, overflow="fold")
    for row in result.rows:
        table.add_row(
            f"pass@{row.k}",
            f"{row.first:.1%}",
            f"{row.second:.1%}",
            f"{100 * row.difference.difference:+.1f}",
            interval_text(row.difference.low, row.difference.high, " .. "),
            *(str(count) for count in (row.difference.better, row.difference.worse, row.difference.equal)),
            "—" if row.difference.p_value is None else f"{row.difference.p_value:.2g}",
        )
    console = Console()
    console.print(table)
    for note in result.notes:
        console.print(note, highlight=False, soft_wrap=True)


def show(
    trajectory: Annotated[
        str | None, typer.Argument(help="Trajectory id or its beginning; default: list the searched ones.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Policy whose own values to show; default: the newest.")] = None,
    values: Annotated[bool, typer.Option(help="Show a policy's own values (loads two checkpoints).")] = True,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Write the page of one program as a file: tokens, pivotal tokens, values."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    from tasks.explorer import one_file
    from tasks.explorer.pages import Explorer
    from warehouse.reading.readers import Readers

    console = Console()
    with Readers.open(warehouse_location()) as readers:
        readers.fill()
        if trajectory is None:
            _list(console, one_file.searched(readers, home()))
            return
        wanted = one_file.chosen(readers, home(), trajectory, policy, values=values)
        page = out or home() / "trajectories" / f"{wanted.trajectory_id}.html"
        of = f"the values of policy {wanted.policy_id[:12]}" if wanted.policy_id else "the page"
        with Console(stderr=True).status(f"computing {of}"):
            one_file.write(Explorer(readers, home()), wanted, page)
    print(page)


def _list(console: Console, rows: list[dict[str, Any]]) -> None:
    if not rows:
        console.print("no trajectory has been searched for pivotal tokens yet (stage pivotal)")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, value in rows[0].items():
        side = "right" if isinstance(value, int) else "left"
        table.add_column(name, justify=side, no_wrap=name != "problem", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))
    console.print(table)
    console.print("show one: spo show TRAJECTORY (the first characters are enough)", highlight=False)
