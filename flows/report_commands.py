"""The commands of `spo` that show runs: `report`, `compare`, `show`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.settings import home, warehouse_location


def report(
    runs: Annotated[list[str] | None, typer.Argument(help="Runs, the newest if none is named.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write into.")] = None,
) -> None:
    """Write one HTML file, and its figures as PNG, about a run or several side by side; also while they train."""
    from tasks import report as reports
    from tasks import run_history
    from tasks import runs as known
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        names = list(dict.fromkeys(runs or [known.latest(store)]))
        histories = [run_history.read(store, home(), name) for name in names]
        folder = out or home() / "reports" / "+".join(names)
        page, *pictures = reports.write(histories, store.location, folder)
    print(page)
    print(f"{len(pictures)} figures beside it: {', '.join(path.name for path in pictures)}")


def compare(
    first: Annotated[str, typer.Argument(help="Run, or RUN@STEP.", metavar="RUN_A")],
    second: Annotated[str, typer.Argument(help="Run, or RUN@STEP.", metavar="RUN_B")],
) -> None:
    """Compare two policies on the same problems: pass@k of both, the difference with its interval, the sign test.

    A run stands for its last evaluated policy; tiny-1@0 is the reference policy it started from.
    """
    from tasks.comparison import compare as compared
    from warehouse import Warehouse

    with Warehouse.open(warehouse_location(), read_only=True) as store:
        result = compared(store, home(), first, second)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", first, second, "change", "95% interval", "better", "worse", "equal", "p"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in result.rows:
        low, high = row.difference.low, row.difference.high
        table.add_row(
            f"pass@{row.k}",
            f"{row.first:.1%}",
            f"{row.second:.1%}",
            f"{100 * row.difference.difference:+.1f}",
            "unknown" if math.isnan(low) else f"{100 * low:+.1f} .. {100 * high:+.1f}",
            *(str(count) for count in (row.difference.better, row.difference.worse, row.difference.equal)),
            f"{row.difference.p_value:.2g}",
        )
    console = Console()
    console.print(table)
    for note in result.notes:
        console.print(note, highlight=False, soft_wrap=True)
