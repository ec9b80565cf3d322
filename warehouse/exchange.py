"""Taking data out (Parquet, JSON Lines, a Hugging Face data set) and in (another warehouse, or files)."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from graphlib import TopologicalSorter
from itertools import groupby, islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import pyarrow as pa

from warehouse import encoding, lake, superseding
from warehouse.errors import InvalidRows, WarehouseError
from warehouse.files import storage_errors, translated
from warehouse.ledger import CommittedBatch
from warehouse.parquet_rows import parquet_rows
from warehouse.schema import PROVENANCE, TABLES
from warehouse.store import Parameters, Warehouse, utc_now

Format = Literal["parquet", "jsonl", "hf"]
PRIVATE: Final = frozenset({"tests", "audit_findings", "suite_versions", "verdicts", "survivors"})
"""Tables and views that hold inputs or expected outputs of hidden tests, or say them in words."""
_ROWS_PER_BATCH: Final = 10_000
_TELLS_SNAPSHOT: Final = {"stages": "manifest_json", "run_events": "payload_json"}
_NAMED: Final = 5
NAMED_BY_CONTENT: Final = (
    "problems", "prompts", "policy", "suite", "q0", "corpus", "scores", "pivotal", "eval", "import", "rollout", "train",
    "reference", "stage", "event",
)  # fmt: skip
"""How ids of batches begin that say what is in them, or which place of which run: equal ones are of the same work."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What was exported or imported: rows by table, and the files written or the batches added and skipped."""

    rows: dict[str, int]
    files: tuple[str, ...] = ()
    batches: int = 0
    skipped: int = 0


def export(
    location: str | Path | None,
    target: str | Path,
    what: str | Sequence[str] = ("trajectories",),
    *,
    form: Format = "parquet",
    snapshot: int | None = None,
    hidden_tests: bool = False,
) -> Exchanged:
    """Write tables, views or one query (`SELECT ...`) into the folder `target`, a file each.

    `hf` is the layout that `datasets.load_dataset(target)` reads, with a card. Hidden tests are only written when
    `hidden_tests` says so. Raises WarehouseError (unknown name, two queries, what is private, folder not empty),
    UnknownSnapshot and StorageFull.
    """
    names = [what] if isinstance(what, str) else list(what)
    folder = Path(target)
    with Warehouse.open(location, read_only=True) as warehouse:
        if sum(_label(name) == "query" for name in names) > 1:
            raise WarehouseError("one query at a time: each is written as `query`, a file of its own folder")
        queries = {_label(name): _source(warehouse, name, hidden_tests=hidden_tests) for name in names}
        at = warehouse.snapshot() if snapshot is None else snapshot
        warehouse.check_snapshot(at)
        with storage_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise WarehouseError(f"{folder} is not empty: export into a new folder")
        return _write(warehouse, folder, queries, form, at)


def copy_rows(warehouse: Warehouse, query: str, parameters: Parameters, path: Path) -> int:
    """Write a query's rows into a Parquet file; their number. Raises StorageFull and StorageLost."""
    with storage_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    statement = f"COPY ({query}) TO {lake.quoted(str(path))} (FORMAT parquet, COMPRESSION zstd)"
    return _copy(warehouse, statement, warehouse.snapshot(), parameters)


def _write(warehouse: Warehouse, folder: Path, queries: Mapping[str, str], form: Format, at: int) -> Exchanged:
    rows: dict[str, int] = {}
    files: list[str] = []
    for label, query in queries.items():
        path = _path(folder, label, form)
        path.parent.mkdir(parents=True, exist_ok=True)
        options = "FORMAT parquet, COMPRESSION zstd" if form != "jsonl" else "FORMAT json"
        rows[label] = _copy(warehouse, f"COPY ({query}) TO {lake.quoted(str(path))} ({options})", at)
        if form == "hf" and not rows[label]:  # `datasets` cannot load a split without rows
            path.unlink()
            path.parent.rmdir()
            continue
        files.append(str(path.relative_to(folder)))
    if form == "hf":
        (folder / "README.md").write_text(_card(rows, at), encoding="utf-8")
        files.append("README.md")
    return Exchanged(rows, tuple(files))


def _label(name: str) -> str:
    return "query" if " " in name.strip() else name.strip()


def _source(warehouse: Warehouse, name: str, *, hidden_tests: bool) -> str:
    if " " in name.strip():
        query = name.strip().rstrip(";")
    else:
        known = {row["view_name"] for row in warehouse.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")}
        if name not in known:
            raise WarehouseError(f"there is no table or view {name!r}; there are {', '.join(sorted(known))}")
        ordered = " ORDER BY arrival" if name in TABLES else ""  # so that an import keeps what is newest
        query = f'SELECT * FROM "{name}"{ordered}'
    private = () if hidden_tests else sorted(PRIVATE.intersection(map(str.lower, warehouse.tables_of(query))))
    if private:
        raise WarehouseError(
            f"{name!r} reads {', '.join(private)}, which holds what hidden tests expect: ask for hidden tests "
            "(--hidden-tests) to export it"
        )
    return query


def _path(folder: Path, label: str, form: Format) -> Path:
    if form == "hf":
        return folder / label / "train-00000-of-00001.parquet"
    return folder / f"{label}.{form}"


def _copy(warehouse: Warehouse, statement: str, snapshot: int, parameters: Parameters = ()) -> int:
    try:
        return int(warehouse.rows(statement, parameters, snapshot=snapshot)[0]["Count"])
    except duckdb.IOException as error:
        raise translated(error, "the export") from error


def _card(rows: Mapping[str, int], snapshot: int) -> str:
    configs = "\n".join(
        f"- config_name: {label}\n  data_files:\n  - split: train\n    path: {label}/*.parquet"
        for label, count in rows.items()
        if count
    )
    lines = [f"---\nconfigs:\n{configs}\n---\n\n# Trajectory warehouse, snapshot {snapshot}\n"]
    lines.append("Exported from a warehouse of Soft Policy Optimization runs. Quarantined batches are left out.\n")
    for label, count in rows.items():
        lines.append(f"## {label}\n\n{f'{count:,} rows' if count else 'No rows, so no file'}.\n")
        if label in TABLES:
            lines.append(f"One row per {TABLES[label].row}.\n\n| column | type | meaning |\n|---|---|---|")
            columns = (*TABLES[label].columns, *PROVENANCE)
            lines.append("\n".join(f"| {c.name} | {c.type} | {c.meaning} |" for c in columns) + "\n")
    return "\n".join(lines)


def import_(
    location: str | Path | None, source: str | Path, *, table: str | None = None, run_id: str | None = None
) -> Exchanged:
    """Import a file into `table` (see `import_file`), or, without `table`, another warehouse."""
    if table is None:
        return import_warehouse(location, source)
    return import_file(location, source, table, run_id=run_id)


def import_warehouse(location: str | Path | None, source: str | Path) -> Exchanged:
    """Add every batch of another warehouse that is not here yet, oldest first; run twice it adds nothing.

    A batch keeps its run and time, and its id where that says what it holds (`NAMED_BY_CONTENT`): manifests name such
    batches, and one that is here already is not taken, since it is the same work. Others, also those that make a run,
    become `warehouse/<source>/<batch>`. Batches that came from here stay there. Of several batches that took the place
    of the same one, here and there, the newest is shown.
    Raises WarehouseError before anything is taken when both have runs of one name that are not the same runs.
    """
    with Warehouse.open(source, read_only=True) as theirs, Warehouse.open(location) as ours:
        own, origin = ours.ledger.get("warehouse_id"), theirs.ledger.get("warehouse_id")
        if own == origin:
            raise WarehouseError(f"{theirs.location} and {ours.location} are the same warehouse")
        batches = theirs.ledger.batches()
        names = _names(ours, (batch.batch_id for batch in batches), str(origin))
        known = ours.committed(names.values())
        first: dict[str, CommittedBatch] = {}  # of equal work
        for batch in batches:
            first.setdefault(names[batch.batch_id], batch)
        missing = [
            batch for name, batch in first.items() if name not in known and not name.startswith(f"warehouse/{own}/")
        ]
        if missing:
            _refuse_other_runs(theirs, ours)
        rows: Counter[str] = Counter()
        moments = [(0, ours.snapshot())]
        for commit in _commits(theirs, missing):
            for batch in commit:
                name, tables = names[batch.batch_id], sorted({file.table for file in batch.files})
                parts = _parts(theirs, batch.batch_id, name, tables, names, moments)
                ours.stage_parts(name, parts, run_id=batch.run_id)
                rows.update({table: count for table, count, _ in parts})
            ours.commit()  # so that what came later there has a later snapshot here
            moments.append((commit[0].snapshot, ours.snapshot()))
        superseding.leave_one_successor(ours)
    return Exchanged(dict(rows), batches=len(missing), skipped=len(batches) - len(missing))


def _refuse_other_runs(theirs: Warehouse, ours: Warehouse) -> None:
    """Refuse runs of one name that began at different times or with different configurations.

    Batch ids, manifests and folders spell out the names of runs, so that a run cannot be renamed on its way in.
    """
    there, here = _runs(theirs), _runs(ours)
    other = sorted(name for name in there.keys() & here.keys() if there[name].isdisjoint(here[name]))
    if other:
        named = ", ".join(other[:_NAMED]) + (f" and {len(other) - _NAMED} more" if len(other) > _NAMED else "")
        raise WarehouseError(
            f"{theirs.location} and {ours.location} have different runs of the same name: {named}. Nothing was "
            "imported, because nobody could tell their rows apart. Keep the two apart and ask each on its own, or take "
            "the rows that you need, under another name: with SPO_WAREHOUSE set to the other one `spo export FOLDER -w "
            f"\"SELECT * FROM trajectories WHERE run_id = '{other[0]}'\"`, then here `spo import FOLDER/query.parquet "
            f"--table trajectories --run other-{other[0]}`"
        )


def _runs(warehouse: Warehouse) -> dict[str, set[tuple[datetime, str | None]]]:
    """When each run began and with which configuration: an import keeps both, and no two runs share them."""
    found: dict[str, set[tuple[datetime, str | None]]] = defaultdict(set)
    for row in warehouse.rows(f"SELECT DISTINCT run_id, created_at, config_json FROM {lake.STORED}.runs"):
        found[row["run_id"]].add((row["created_at"], row["config_json"]))
    return found


def _commits(warehouse: Warehouse, batches: Sequence[CommittedBatch]) -> Iterator[list[CommittedBatch]]:
    """The batches of each snapshot, oldest first; those of one snapshot in the order of their rows in every table."""
    named = {batch.batch_id: batch for batch in batches}
    before: dict[str, set[str]] = {name: set() for name in named}
    for table in sorted({file.table for batch in batches for file in batch.files}):
        found = warehouse.rows(f'SELECT batch_id FROM {lake.STORED}."{table}" GROUP BY batch_id ORDER BY min(rowid)')
        order = [row["batch_id"] for row in found if row["batch_id"] in named]
        for earlier, later in pairwise(order):
            if named[earlier].snapshot == named[later].snapshot:
                before[later].add(earlier)
    by_snapshot = sorted(batches, key=attrgetter("snapshot"))
    for _, members in groupby(by_snapshot, key=attrgetter("snapshot")):
        order = TopologicalSorter({batch.batch_id: before[batch.batch_id] for batch in members}).static_order()
        yield [named[name] for name in order]


def _names(ours: Warehouse, batches: Iterable[str], origin: str) -> dict[str, str]:
    """What each batch of warehouse `origin` is called here; those that are here under another name keep it."""
    others = {batch: batch if batch.startswith("warehouse/") else f"warehouse/{origin}/{batch}" for batch in batches}
    before = ours.committed(others.values())
    names: dict[str, str] = {}
    for batch, other in others.items():
        plain = other.split("/", 2)[2]  # also of what they have from a third warehouse
        names[batch] = plain if plain.split("/")[0] in NAMED_BY_CONTENT and other not in before else other
    return names


def _parts(
    theirs: Warehouse,
    batch_id: str,
    name: str,
    tables: Sequence[str],
    names: Mapping[str, str],
    moments: Sequence[tuple[int, int]],
) -> list[tuple[str, int, memoryview]]:
    """The batch's rows by table, as they are written here. `moments`: snapshots there, and here when they had come."""
    parts: list[tuple[str, int, memoryview]] = []
    for table in tables:
        found = theirs.arrow(f'SELECT * FROM {lake.STORED}."{table}" WHERE batch_id = ? ORDER BY rowid', [batch_id])
        columns = {column: found.column(column) for column in found.column_names}
        columns["batch_id"] = pa.repeat(pa.scalar(name), found.num_rows)
        if table == "quarantine":
            bad: list[Any] = [names.get(value, value) for value in found.column("bad_batch_id").to_pylist()]
            columns["bad_batch_id"] = pa.array(bad, pa.string())
        if column := _TELLS_SNAPSHOT.get(table):
            told: list[Any] = [_here(value, moments) for value in found.column(column).to_pylist()]
            columns[column] = pa.array(told, pa.string())
        built = encoding.from_arrow(table, pa.table(columns))
        parts.append((table, built.num_rows, encoding.parquet_bytes(table, built)))
    return parts


def _here(told: str | None, moments: Sequence[tuple[int, int]]) -> str | None:
    """What a stage left or a run began with, its `snapshot` being that in which all that it had read has come here."""
    if told is None or '"snapshot"' not in told:
        return told
    content: dict[str, Any] = json.loads(told)
    if not content.get("snapshot"):
        return told
    content["snapshot"] = max(here for there, here in moments if there <= content["snapshot"])
    return json.dumps(content)


def import_file(location: str | Path | None, path: str | Path, table: str, *, run_id: str | None = None) -> Exchanged:
    """Add the rows of a Parquet (`.parquet`) or JSON Lines (`.jsonl`) file to a table; run twice it adds nothing.

    The file may be one that `export` wrote. The rows belong to `run_id`; without it each keeps the run that the file
    names, and those without one belong to the run "import". They keep their time and their order.
    Raises InvalidRows naming file, row and field, and WarehouseError when the rows are here under other runs, before
    anything is written.
    """
    source = Path(path)
    encoding.table_named(table)
    if source.suffix not in (".parquet", ".jsonl"):
        raise WarehouseError(f"{source} is neither .parquet nor .jsonl")
    if not source.is_file():
        raise WarehouseError(f"there is no file {source}")
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    place, under = f"import/{source.name}/{digest}/{table}/", f"/run/{run_id}" if run_id else ""
    wanted: dict[str, set[str]] = {}
    for start, found in _slices(source):
        of_these = f", of the rows from {start} on" if start else ""
        encoding.check(table, [superseding.content(row) for row in found], origin=f"{source}{of_these}")
        _times(found, source, start)
        wanted[f"{place}{start // _ROWS_PER_BATCH}{under}"] = set(_run_ids(found, run_id))
    added, batches, skipped = 0, 0, 0
    with Warehouse.open(location) as warehouse:
        here = _already_here(warehouse, source, table, place, wanted)
        for name, (start, found) in zip(wanted, _slices(source), strict=True):
            if name in here:
                skipped += 1
                continue
            rows, runs = [superseding.content(row) for row in found], _run_ids(found, run_id)
            built = encoding.to_arrow(table, rows, run_id=runs, batch_id=name, now=_times(found, source, start))
            content = (table, built.num_rows, encoding.parquet_bytes(table, built))
            warehouse.stage_parts(name, [content], run_id=run_id or "import")
            added, batches = added + len(rows), batches + 1
        warehouse.commit()
    return Exchanged({table: added}, batches=batches, skipped=skipped)


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
        f"twice. To have them under another run, `spo quarantine {shlex.join(sorted(leave))}` first, then {then}"
    )


def _slices(source: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The rows of a file, so many at a time as a batch has, each with the number of the first."""
    rows = parquet_rows(source) if source.suffix == ".parquet" else _read_lines(source)
    start = 0
    while found := list(islice(rows, _ROWS_PER_BATCH)):
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
        raise InvalidRows(f"{source}: row {number}: field 'created_at' holds {value!r}, which is no time") from None


def _read_lines(source: Path) -> Iterator[dict[str, Any]]:
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidRows(f"{source}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise InvalidRows(f"{source}, line {number}: not an object")
            yield row
