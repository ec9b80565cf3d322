"""Taking data out: tables, views or a query as Parquet, JSON Lines, or a data set that `datasets` loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import duckdb

from warehouse import lake
from warehouse.errors import WarehouseError
from warehouse.files import storage_errors, translated
from warehouse.schema import PROVENANCE, TABLES
from warehouse.store import Parameters, Warehouse

Format = Literal["parquet", "jsonl", "hf"]
PRIVATE: Final = frozenset({"tests", "audit_findings", "suite_versions", "verdicts", "survivors"})
"""Tables and views that hold inputs or expected outputs of hidden tests, or say them in words."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: rows by table, view or `query`, and the files."""

    rows: dict[str, int]
    files: tuple[str, ...]


def export(
    location: str | Path | None,
    target: str | Path,
    what: str | Sequence[str] = ("trajectories",),
    *,
    form: Format = "parquet",
    snapshot: int | None = None,
    hidden_tests: bool = False,
) -> Exported:
    """Write tables, views or one query (`SELECT ...`) into the folder `target`, a file each.

    `hf` is the layout that `datasets.load_dataset(target)` reads, with a card. Hidden tests are only written when
    `hidden_tests` says so. Raises WarehouseError (unknown name, two queries, what is private, folder not empty),
    UnknownSnapshot and StorageFull.
    """
    names = [what] if isinstance(what, str) else list(what)
    folder = Path(target)
    with Warehouse.open(location, read_only=True) as warehouse:
        if sum(_label(name) == "query" for name in names) > 1:
            raise WarehouseError(
                "one query at a time: each is written as `query`, a file of its own folder", code="SeveralQueries"
            )
        queries = {_label(name): _source(warehouse, name, hidden_tests=hidden_tests) for name in names}
        at = warehouse.snapshot() if snapshot is None else snapshot
        warehouse.check_snapshot(at)
        with storage_errors(str(folder)):
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise WarehouseError(f"{folder} is not empty: export into a new folder", code="FolderNotEmpty")
        return _write(warehouse, folder, queries, form, at)


def copy_rows(warehouse: Warehouse, query: str, parameters: Parameters, path: Path) -> int:
    """Write a query's rows into a Parquet file; their number. Raises StorageFull and StorageLost."""
    with storage_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
    statement = f"COPY ({query}) TO {lake.quoted(str(path))} (FORMAT parquet, COMPRESSION zstd)"
    return _copy(warehouse, statement, warehouse.snapshot(), parameters)


def _write(warehouse: Warehouse, folder: Path, queries: Mapping[str, str], form: Format, at: int) -> Exported:
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
    return Exported(rows, tuple(files))


def _label(name: str) -> str:
    return "query" if " " in name.strip() else name.strip()


def _source(warehouse: Warehouse, name: str, *, hidden_tests: bool) -> str:
    if " " in name.strip():
        query = name.strip().rstrip(";")
    else:
        known = {row["view_name"] for row in warehouse.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")}
        if name not in known:
            raise WarehouseError(
                f"there is no table or view {name!r}; there are {', '.join(sorted(known))}", code="UnknownView"
            )
        ordered = " ORDER BY arrival" if name in TABLES else ""  # so that an import keeps what is newest
        query = f'SELECT * FROM "{name}"{ordered}'
    private = () if hidden_tests else sorted(PRIVATE.intersection(map(str.lower, warehouse.tables_of(query))))
    if private:
        raise WarehouseError(
            f"{name!r} reads {', '.join(private)}, which holds what hidden tests expect: ask for hidden tests "
            "(--hidden-tests) to export it",
            code="HoldsHiddenTests",
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
