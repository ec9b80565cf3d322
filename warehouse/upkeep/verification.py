"""Checking every file against the catalog and every batch against the ledger, and repairing what is safe."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.commit import protocol as commit
from warehouse.commit.intents import DataFile
from warehouse.commit.ledger import COMMIT_LOCK, CommittedBatch
from warehouse.queries import query
from warehouse.schema import TABLES
from warehouse.store import COMMIT_TIMEOUT_S, Warehouse
from warehouse.upkeep.maintenance import HASH_OF, KEEP_ORPHANS, LiveFile, live_files, made_here, orphans


@dataclass(frozen=True, slots=True)
class IntegrityFinding:
    """Something that `verify` saw: a `problem` (data lost or wrong), `repaired`, or a `note` (harmless)."""

    level: Literal["problem", "repaired", "note"]
    message: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` looked at and found."""

    files: int
    rows: int
    batches: int
    findings: tuple[IntegrityFinding, ...]

    @property
    def clean(self) -> bool:
        """True when nothing is lost or wrong."""
        return all(finding.level != "problem" for finding in self.findings)


def verify(location: str | Path | None = None, *, repair: bool = False) -> Verification:
    """Check sizes, hashes and row counts of every file, and every batch's rows, against catalog and ledger.

    With `repair`, waiting batches are committed, refused ones too whose files are whole, and ledger entries that the
    data prove are added. Nothing is ever deleted. Works beside running writers.
    """
    with Warehouse.open(location, read_only=not repair) as warehouse:
        findings: list[IntegrityFinding] = []
        if repair:
            with warehouse.ledger.lock(COMMIT_LOCK, timeout_s=COMMIT_TIMEOUT_S):
                warehouse.committer.reconcile()
            if offered := warehouse.committer.offer_refused():
                findings.append(IntegrityFinding("repaired", f"{len(offered)} refused batches were stored after all"))
            warehouse.commit()
        files = live_files(warehouse)
        known = int(warehouse.ledger.get("reconciled") or warehouse.snapshot())
        ledger = {batch.batch_id: batch for batch in warehouse.ledger.batches() if batch.snapshot <= known}
        hashes = {file.path: file.sha256 for batch in ledger.values() for file in batch.files}
        made = [file.path for file in files if made_here(file)]
        hashes |= {path: found for path in made if (found := warehouse.ledger.get(HASH_OF + path))}
        broken: set[str] = set()
        filled = {file.table for file in files}
        for file in files:
            faults = list(_faults(warehouse, file, hashes.get(file.path)))
            findings += [IntegrityFinding("problem", message) for message in faults]
            if faults:
                broken.add(file.table)
        findings += _check_batches(warehouse, ledger, filled, broken, known, repair=repair)
        findings += _check_rest(warehouse, ledger)
        if without := [path for path in made if path not in hashes]:
            findings.append(IntegrityFinding("note", f"{len(without)} {_WITHOUT_HASH}, first {without[0]}"))
        asked = {"prompts", "tests", "problems"}
        if asked <= filled and not broken & {*asked, "quarantine"}:
            findings += _check_prompts(warehouse)
        return Verification(len(files), sum(file.rows for file in files), len(ledger), tuple(findings))


_WITHOUT_HASH: Final = (
    "files that merging made have no hash, since an older version made them or the process was killed then: damage "
    "that leaves size and form as they are would not be seen in them"
)


def _faults(warehouse: Warehouse, file: LiveFile, sha256: str | None) -> Iterator[str]:
    name = f"{warehouse.location.data}{file.path}"
    size = warehouse.files.size(file.path)
    if size is None:
        yield f"{name} is missing: {file.rows} rows of table {file.table!r} are lost"
        return
    if size != file.bytes:
        yield f"{name} has {size} bytes, the catalog says {file.bytes}"
        return
    content = warehouse.files.read(file.path)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        yield f"{name} differs from what was written (its sha256 is not {sha256[:16]}...)"
        return
    try:
        rows = sum(batch.num_rows for batch in pq.ParquetFile(io.BytesIO(content)).iter_batches(batch_size=8192))
    except (pa.ArrowException, OSError) as error:
        yield f"{name} cannot be read: {error}"
        return
    if rows != file.rows:
        yield f"{name} has {rows} rows, the catalog says {file.rows}"


def _check_batches(
    warehouse: Warehouse,
    ledger: dict[str, CommittedBatch],
    filled: set[str],
    broken: set[str],
    known: int,
    *,
    repair: bool,
) -> Iterator[IntegrityFinding]:
    """Compare the rows of every batch up to snapshot `known`, the ledger's newest, with the ledger.

    Later ones are on their way into it. Only `filled` tables have rows; those with `broken` files cannot be counted.
    """
    stored: Counter[tuple[str, str]] = Counter()
    where: dict[str, tuple[str, int]] = {}
    for table in sorted((TABLES.keys() & filled) - broken):
        try:
            counted = warehouse.rows(query(commit.__name__, "rows_by_batch", table=table), [known])
        except duckdb.Error as error:  # such as a lost file of deleted rows
            broken.add(table)
            yield IntegrityFinding("problem", f"table {table!r} cannot be read: {error}")
            continue
        for row in counted:
            stored[row["batch_id"], table] = int(row["n"])
            where[row["batch_id"]] = (row["run_id"], int(row["snapshot"]))
    expected: Counter[tuple[str, str]] = Counter()
    for batch in ledger.values():
        for file in batch.files:
            if file.table not in broken:
                expected[batch.batch_id, file.table] += file.rows
    unlisted = {batch_id for batch_id, _ in stored if batch_id not in ledger}
    for batch_id, table in sorted(stored.keys() | expected.keys()):
        if batch_id not in unlisted and stored[batch_id, table] != expected[batch_id, table]:
            yield IntegrityFinding(
                "problem",
                f"batch {batch_id!r} has {stored[batch_id, table]} rows in table {table!r}, "
                f"{expected[batch_id, table]} were appended",
            )
    if unlisted:
        yield from _unlisted(warehouse, unlisted, stored, where, repair=repair)


def _unlisted(
    warehouse: Warehouse,
    unlisted: set[str],
    stored: Counter[tuple[str, str]],
    where: dict[str, tuple[str, int]],
    *,
    repair: bool,
) -> Iterator[IntegrityFinding]:
    if not repair:
        yield IntegrityFinding(
            "problem", f"{len(unlisted)} batches are not in the ledger, first {min(unlisted)!r}: verify with repair"
        )
        return
    with warehouse.ledger.lock(COMMIT_LOCK, timeout_s=COMMIT_TIMEOUT_S):
        warehouse.committer.reconcile()
        known = warehouse.ledger.snapshots(unlisted)
        rebuilt = [
            CommittedBatch(batch_id, *where[batch_id], _counted(batch_id, stored))
            for batch_id in sorted(unlisted - known.keys())
        ]
        warehouse.ledger.record(rebuilt, warehouse.snapshot())
    yield IntegrityFinding("repaired", f"{len(unlisted)} batches were entered into the ledger again")


def _counted(batch_id: str, stored: Counter[tuple[str, str]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(table, "", rows, 0, "") for (batch, table), rows in stored.items() if batch == batch_id)


def _check_rest(warehouse: Warehouse, ledger: Container[str]) -> Iterator[IntegrityFinding]:
    waiting = warehouse.ledger.intents()
    if waiting:
        yield IntegrityFinding("note", f"{len(waiting)} batches are staged and become visible at the next commit")
    lost = {one.batch_id: why for one, why in warehouse.ledger.refused() if one.batch_id not in ledger}
    if lost:
        batch, why = next(iter(lost.items()))
        message = f"{len(lost)} staged batches were refused and are not stored, first {batch!r}: {why}"
        advice = "once their files are whole again, `spo verify --repair`; else run again what was to append them"
        yield IntegrityFinding("note", f"{message}; {advice}")
    left = orphans(warehouse, KEEP_ORPHANS)
    if left:
        yield IntegrityFinding(
            "note", f"{len(left)} files of crashed writers wait for the next compaction, first {left[0]}"
        )


LEAK_LETTERS: Final = 12
"""Expected outputs shorter than this also turn up in prompts by chance."""


def _check_prompts(warehouse: Warehouse) -> Iterator[IntegrityFinding]:
    """Hidden tests whose expected output a prompt shows.

    Outputs that are also in the problem's statement or its public tests are no leak, nor are very short ones.
    """
    found = warehouse.rows(query(__name__, "leaks"), [LEAK_LETTERS])
    if found:
        first = found[0]
        yield IntegrityFinding(
            "note",
            f"{len(found)} hidden expected outputs stand in prompts, first that of test {first['position']} of problem "
            f"{first['problem_id']!r} in prompt {first['prompt_id']!r}",
        )
