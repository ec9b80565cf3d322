"""`spo clean`: what may go without loss, what it frees, and its removal when that is asked for."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from flows.settings import home, warehouse_location

console = Console()


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that nothing needs any more."""

    path: Path
    reason: str
    size_bytes: int
    """What its removal frees."""


def clean(
    apply: Annotated[bool, typer.Option("--apply", help="Remove it; without this only a list is shown.")] = False,
) -> None:
    """List what may go without loss, and what that frees; with --apply remove it. Warehouse and weights stay."""
    found = [*finished_checkpoints(), *resting_server()]
    if not found:
        console.print("nothing to remove")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("frees", justify="right")
    table.add_column("what", overflow="fold")
    table.add_column("why it may go")
    for item in found:
        table.add_row(_size(item.size_bytes), str(item.path.relative_to(home())), item.reason)
    console.print(table)
    total = _size(sum(item.size_bytes for item in found))
    if not apply:
        console.print(f"{total} would be freed; `spo clean --apply` does it", highlight=False)
        return
    for item in found:
        _remove(item)
    console.print(f"{total} freed", highlight=False)


def finished_checkpoints() -> Iterator[Leftover]:
    """The trainer's states of runs whose training has completed: only a training that goes on would read them."""
    from warehouse import Warehouse, WarehouseMissing

    try:
        with Warehouse.open(warehouse_location(), read_only=True) as store:
            rows = store.rows("SELECT DISTINCT run_id FROM stages WHERE stage = 'train' AND status = 'completed'")
    except WarehouseMissing:
        return
    for run_id in sorted(str(row["run_id"]) for row in rows):
        folder = home() / "runs" / run_id / "train" / "checkpoints"
        if folder.is_dir() and not folder.is_symlink():
            yield Leftover(folder, f"training of {run_id} has completed; its weights stay", _used(folder))


def resting_server() -> Iterator[Leftover]:
    """While neither server nor worker runs: their logs, and the pages of Prefect's database that hold no row."""
    from flows.server import embedded

    if any(embedded.running().values()):
        return
    for log in sorted((home() / "logs").glob("*.log")):
        if log.stat().st_size:
            yield Leftover(log, "log of a server or worker that has ended", log.stat().st_size)
    database = home() / "prefect" / "prefect.db"
    if database.is_file():
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (pages,), (size,) = (connection.execute(f"PRAGMA {p}").fetchone() for p in ("freelist_count", "page_size"))
        if pages:
            yield Leftover(database, "pages of Prefect's database that hold no row", pages * size)


def _remove(item: Leftover) -> None:
    if item.path.is_dir():
        shutil.rmtree(item.path)
    elif item.path.suffix == ".db":
        with closing(sqlite3.connect(item.path)) as connection:
            connection.execute("VACUUM")
    else:
        item.path.unlink()


def _used(folder: Path) -> int:
    """Bytes on disk; a file that has a second name elsewhere is not freed."""
    files = (path.lstat() for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def _size(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"
