"""Taking in the rows of a file, Parquet or JSON Lines."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from warehouse import encoding, superseding
from warehouse.errors import InvalidRows, WarehouseError
from warehouse.exchange.parquet_rows import parquet_rows
from warehouse.store import Warehouse, utc_now

ROWS_PER_BATCH: Final = 10_000


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """What was added: rows by table and batches, and the batches that were here already."""

    rows: dict[str, int]
    batches: int
    skipped: int


def import_file(
    location: str | Path | None,
    path: str | Path,
    table: str,
    *,
    run_id: str | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> ImportedFile:
    """Add the rows of a Parquet (`.parquet`) or JSON Lines (`.jsonl`) file to a table; run twice it adds nothing.

    The file may be one that `export` wrote. The rows belong to `run_id`; without it each keeps the run that the file
    names, and those without one belong to the run "import". They keep their time and their order.
    Raises InvalidRows naming file, row and field, and WarehouseError when the rows are here under other runs, before
    anything is written.
    """
    source = Path(path)
    encoding.table_named(table)
    if source.suffix not in (".parquet", ".jsonl"):
        raise WarehouseError(f"{source} is neither .parquet nor .jsonl", code="UnknownFormat")
    if not source.is_file():
        raise WarehouseError(f"there is no file {source}", code="FileMissing")
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    place, under = f"import/{source.name}/{digest}/{table}/", f"/run/{run_id}" if run_id else ""
    wanted: dict[str, set[str]] = {}
    for start, found in _slices(source, rows_per_batch):
        of_these = f", of the rows from {start} on" if start else ""
        encoding.check(table, [superseding.content(row) for row in found], origin=f"{source}{of_these}")
        _times(found, source, start)
        wanted[f"{place}{start // rows_per_batch}{under}"] = set(_run_ids(found, run_id))
    added, batches, skipped = 0, 0, 0
    with Warehouse.open(location) as warehouse:
        here = _already_here(warehouse, source, table, place, wanted)
        for name, (start, found) in zip(wanted, _slices(source, rows_per_batch), strict=True):
            if name in here:
                skipped += 1
                continue
            rows, runs = [superseding.content(row) for row in found], _run_ids(found, run_id)
            built = encoding.to_arrow(table, rows, run_id=runs, batch_id=name, now=_times(found, source, start))
            content = (table, built.num_rows, encoding.parquet_bytes(table, built))
            warehouse.stage_parts(name, [content], run_id=run_id or "import")
            added, batches = added + len(rows), batches + 1
        warehouse.commit()
    return ImportedFile({table: added}, batches=batches, skipped=skipped)


def _already_here(
    warehouse: Warehouse, source: Path, table: str, place: str, wanted: Mapping[str, set[str]]
) -> set[str]:
    """Those batches of a file that need not be added. `wanted`: each batch with the runs that its rows shall have.

    Raises WarehouseError when a part of the file is shown under other runs: its rows would count twice.
    """
    done = warehouse.committed(wanted)
    if not warehouse.committed_under(place):
        return done
    asked = f'SELECT batch_id, list(DISTINCT run_id) AS runs FROM "{table}" WHERE starts_with(batch_id, ?) GROUP BY ALL'
    shown = {row["batch_id"]: set(row["runs"]) for row in warehouse.rows(asked, [place])}
    names = {batch: list(wanted)[int(batch.removeprefix(place).split("/")[0])] for batch in shown}
    others = [batch for batch, runs in shown.items() if runs != wanted[names[batch]]]
    if not others:
        return done | set(names.values())
    runs = ", ".join(sorted(set().union(*(shown[batch] for batch in others))))
    leave, then = others, "import it again"
    if done.intersection(names[batch] for batch in others):  # it would be known by its name, and left out
        leave, then = list(shown), "import a copy of it that has another name"
    raise WarehouseError(
        f"the rows of {source} are here already, under run {runs}. Nothing was imported, because they would count "
        f"twice. To have them under another run, `spo quarantine {shlex.join(sorted(leave))}` first, then {then}",
        code="OfAnotherRun",
    )


def _slices(source: Path, size: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The rows of a file, `size` at a time, each slice with the number of its first row."""
    rows = parquet_rows(source) if source.suffix == ".parquet" else _read_lines(source)
    start = 0
    while found := list(islice(rows, size)):
        yield start, found
        start += len(found)


def _run_ids(found: Iterable[Mapping[str, Any]], run_id: str | None) -> list[str]:
    return [run_id or str(row.get("run_id") or "import") for row in found]


def _times(found: Iterable[Mapping[str, Any]], source: Path, start: int) -> list[datetime]:
    return [_time(row.get("created_at"), source, number) for number, row in enumerate(found, start)]


def _time(value: Any, source: Path, number: int) -> datetime:
    """When a row of a file was made: what it says itself, else now."""
    if value is None:
        return utc_now()
    try:
        return value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidRows(
            f"{source}: row {number}: field 'created_at' holds {value!r}, which is no time", code="NoTime"
        ) from None


def _read_lines(source: Path) -> Iterator[dict[str, Any]]:
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidRows(f"{source}, line {number}: not JSON: {error}", code="NotJson") from None
            if not isinstance(row, dict):
                raise InvalidRows(f"{source}, line {number}: not an object", code="NotAnObject")
            yield row
