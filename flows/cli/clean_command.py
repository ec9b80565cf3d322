"""`spo clean`: what may go without loss, what it frees, and its removal when that is asked for."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.settings import home, warehouse_location

console = Console()


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that nothing needs any more."""

    what: str
    reason: str
    size_bytes: int | None
    """What its removal frees; None: rows of a database, which has room for others then."""
    remove: Callable[[], object]


def clean(
    apply: Annotated[bool, typer.Option("--apply", help="Remove; without it only a list is printed.")] = False,
    keep_days: Annotated[
        float, typer.Option("--keep-days", min=0, help="Days that Prefect keeps ended flow runs.")
    ] = 7.0,
) -> None:
    """List removable files and the space they take. Warehouse and weights stay."""
    found = [*finished_checkpoints(), *shared_memory(), *resting_server(), *old_flow_runs(timedelta(days=keep_days))]
    if not found:
        console.print("nothing to remove")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("frees", justify="right")
    table.add_column("what", overflow="fold")
    table.add_column("why it may go")
    for item in found:
        table.add_row("" if item.size_bytes is None else _size(item.size_bytes), Text(item.what), Text(item.reason))
    console.print(table)
    total = _size(sum(item.size_bytes or 0 for item in found))
    if not apply:
        console.print(f"{total} would be freed; `spo clean --apply` does it", highlight=False)
        return
    for item in found:
        item.remove()
    console.print(f"{total} freed", highlight=False)


def finished_checkpoints() -> Iterator[Leftover]:
    """The trainer's states of runs whose training has completed: only a training that goes on would read them."""
    from tasks.train.shared import trainer_lock
    from warehouse import Warehouse, WarehouseMissing

    try:
        with Warehouse.open(warehouse_location(), read_only=True) as store:
            rows = store.rows("SELECT DISTINCT run_id FROM stages WHERE stage = 'train' AND status = 'completed'")
    except WarehouseMissing:
        return
    for run_id in sorted(str(row["run_id"]) for row in rows):
        folder = home() / "runs" / run_id / "train" / "checkpoints"
        if folder.is_dir() and not folder.is_symlink() and not trainer_lock.is_held(folder.parent):
            reason = f"training of {run_id} has completed; its weights stay"
            yield Leftover(_named(folder), reason, _used(folder), partial(shutil.rmtree, folder))


def shared_memory() -> Iterator[Leftover]:
    """While neither server nor worker runs: weights that killed trainings left in memory; resuming publishes anew."""
    from flows.server import embedded
    from tasks.train.shared import published_weights, trainer_lock

    if any(embedded.running().values()):
        return
    for run_dir in sorted((home() / "runs").glob("*/train")):
        folder = published_weights.memory_folder(run_dir)
        if folder.is_dir() and not trainer_lock.is_held(run_dir):
            reason = f"in memory; training of {run_dir.parent.name} was killed, and publishes again when it goes on"
            yield Leftover(str(folder), reason, _used(folder), partial(shutil.rmtree, folder))


def resting_server() -> Iterator[Leftover]:
    """While neither server nor worker runs: their logs, and the pages of Prefect's database that hold no row."""
    from flows.server import embedded

    if any(embedded.running().values()):
        return
    for log in sorted((home() / "logs").glob("*.log")):
        if log.stat().st_size:
            reason = "log of a server or worker that has ended"
            yield Leftover(_named(log), reason, log.stat().st_size, log.unlink)
    database = home() / "prefect" / "prefect.db"
    if database.is_file():
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            (pages,), (size,) = (connection.execute(f"PRAGMA {p}").fetchone() for p in ("freelist_count", "page_size"))
        if pages:
            reason = "pages of Prefect's database that hold no row"
            yield Leftover(_named(database), reason, pages * size, partial(_shrink, database))


def old_flow_runs(age: timedelta) -> Iterator[Leftover]:
    """While the embedded server runs: what it knows of flow runs that ended longer ago than `age`."""
    from flows.server import embedded, retention

    if not embedded.running()["server"] or not embedded.usable():
        return
    with _client() as client:
        ended = retention.ended_before(client, datetime.now(UTC) - age)
    if ended:
        days = age / timedelta(days=1)
        reason = f"ended more than {days:g} days ago; `spo down`, then `spo clean --apply` frees the pages"
        yield Leftover(f"{len(ended)} flow runs", reason, None, partial(_forget, ended))


def _forget(flow_runs: Sequence[UUID]) -> None:
    from flows.server import retention

    with _client() as client:
        retention.forget(client, flow_runs)


def _client() -> Any:
    from flows.server import embedded

    embedded.use_server()
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def _shrink(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM")


def _named(path: Path) -> str:
    return str(path.relative_to(home()))


def _used(folder: Path) -> int:
    """Bytes on disk; a file that has a second name elsewhere is not freed."""
    files = (path.lstat() for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def _size(number: int) -> str:
    return f"{number / 2**20:.1f} MiB"
