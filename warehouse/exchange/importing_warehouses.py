"""Taking in another warehouse: its batches as they are, in the order in which they became visible there."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import TopologicalSorter
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from warehouse import encoding, lake, superseding
from warehouse.commit.ledger import CommittedBatch
from warehouse.errors import WarehouseError
from warehouse.schema import SUPERSEDED
from warehouse.store import Warehouse

_TELLS_SNAPSHOT: Final = {"stages": "manifest_json", "run_events": "payload_json"}
_SNAPSHOTS: Final = {
    "runs": ("snapshot",),
    "stages": ("snapshot_in", "snapshot_out"),
    "train_batches": ("max_snapshot",),
}
_NAMED: Final = 5
NAMED_BY_CONTENT: Final = (
    "problems", "prompts", "policy", "suite", "solutions", "q0", "corpus", "scores", "pivotal", "eval", "import",
    "rollout", "train", "reference", "stage", "event",
)  # fmt: skip
"""How ids of batches begin that say what is in them, or which place of which run: equal ones are of the same work."""


@dataclass(frozen=True, slots=True)
class ImportedWarehouse:
    """What was added: rows by table and batches; the batches that were here already or came from here."""

    rows: dict[str, int]
    batches: int
    skipped: int
    still_shown: tuple[str, ...]
    """Batches of runs of here that another run had made there, too, and that were put aside there."""


@dataclass(frozen=True, slots=True)
class _Journey:
    """What is known of the other warehouse's batches and snapshots when they are written here."""

    names: Mapping[str, str]
    """What each batch there is called here."""
    of_others: frozenset[str]
    """Batches (as called there) that are another run's here: what puts them aside there does not do so here."""
    put_aside: frozenset[str]
    """Batches that were put aside there."""
    moments: list[tuple[int, int]]
    """Snapshots there, and here when they had come."""
    still_shown: set[str] = field(default_factory=set[str])
    """Batches that were put aside there and are still shown here, as they are called here."""

    def here(self, snapshot: int) -> int:
        """The snapshot here in which all that was to be read in `snapshot` there has come."""
        return max(here for there, here in self.moments if there <= snapshot)


def import_warehouse(location: str | Path | None, source: str | Path) -> ImportedWarehouse:
    """Add every batch of another warehouse that is not here yet, oldest first; run twice it adds nothing.

    A batch keeps its run and time, and its id where that says what it holds (`NAMED_BY_CONTENT`): manifests name such
    batches, and one that is here already is not taken, since it is the same work. Others, also those that make a run,
    become `warehouse/<source>/<batch>`. Batches that came from here stay there. Of several batches that took the place
    of the same one, here and there, the newest is shown. Snapshots that rows tell of become those of here. What was put
    aside there is put aside here, but for a batch that a run of here had made itself.
    Raises WarehouseError before anything is taken when both have runs of one name that are not the same runs.
    """
    with Warehouse.open(source, read_only=True) as theirs, Warehouse.open(location) as ours:
        own, origin = ours.ledger.get("warehouse_id"), theirs.ledger.get("warehouse_id")
        if own == origin:
            raise WarehouseError(f"{theirs.location} and {ours.location} are the same warehouse", code="SameWarehouse")
        batches = theirs.ledger.batches()
        names = _names(ours, (batch.batch_id for batch in batches), str(origin))
        known = {batch.batch_id: batch for batch in ours.ledger.batches()}
        first: dict[str, CommittedBatch] = {}  # of equal work
        for batch in batches:
            first.setdefault(names[batch.batch_id], batch)
        missing = [
            batch for name, batch in first.items() if name not in known and not name.startswith(f"warehouse/{own}/")
        ]
        if missing:
            _refuse_other_runs(theirs, ours)
        moments = _moments(known, batches, names, str(own))
        journey = _Journey(names, _of_other_runs(known, batches, names), _put_aside(theirs), moments)
        rows, taken = Counter[str](), 0
        for commit in _commits(theirs, missing):
            for batch in commit:
                parts = _parts(theirs, batch, journey)
                if parts or not batch.files:  # one without rows says that its work is done
                    ours.stage_parts(names[batch.batch_id], parts, run_id=batch.run_id)
                    rows.update({table: count for table, count, _ in parts})
                    taken += 1
            ours.commit()  # so that what came later there has a later snapshot here
            journey.moments.append((commit[0].snapshot, ours.snapshot()))
        superseding.leave_one_successor(ours)
        hidden = {row["bad_batch_id"] for row in ours.rows(f"SELECT bad_batch_id FROM {lake.STORED}.quarantine")}
    return ImportedWarehouse(dict(rows), taken, len(batches) - taken, tuple(sorted(journey.still_shown - hidden)))


def _moments(
    known: Mapping[str, CommittedBatch], batches: Sequence[CommittedBatch], names: Mapping[str, str], own: str
) -> list[tuple[int, int]]:
    """Snapshots there, and here when their batches had come: those taken in before, and those that came from here."""
    pairs = ((one, known.get(names[one.batch_id].removeprefix(f"warehouse/{own}/"))) for one in batches)
    return [(0, 0), *((theirs.snapshot, here.snapshot) for theirs, here in pairs if here is not None)]


def _of_other_runs(
    known: Mapping[str, CommittedBatch], batches: Iterable[CommittedBatch], names: Mapping[str, str]
) -> frozenset[str]:
    """Which of their batches are here by the work of another run."""
    pairs = ((one, known.get(names[one.batch_id])) for one in batches)
    return frozenset(theirs.batch_id for theirs, here in pairs if here is not None and here.run_id != theirs.run_id)


def _put_aside(theirs: Warehouse) -> frozenset[str]:
    """Batches that are left out there, and not because another batch stands for them."""
    asked = f"SELECT bad_batch_id FROM {lake.STORED}.quarantine WHERE NOT starts_with(reason, ?)"
    return frozenset(row["bad_batch_id"] for row in theirs.rows(asked, [SUPERSEDED]))


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
            f"--table trajectories --run other-{other[0]}`",
            code="DifferentRunsOfOneName",
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


def _parts(theirs: Warehouse, batch: CommittedBatch, journey: _Journey) -> list[tuple[str, int, memoryview]]:
    """The batch's rows by table, as they are written here; none where they would put aside what stays."""
    parts: list[tuple[str, int, memoryview]] = []
    for table in sorted({file.table for file in batch.files}):
        asked = f'SELECT * FROM {lake.STORED}."{table}" WHERE batch_id = ? ORDER BY rowid'
        found = theirs.arrow(asked, [batch.batch_id])
        if table == "quarantine":
            found = _that_count_here(found, journey)
        if not found.num_rows:
            continue
        columns = {column: found.column(column) for column in found.column_names}
        columns["batch_id"] = pa.repeat(pa.scalar(journey.names[batch.batch_id]), found.num_rows)
        if table == "quarantine":
            bad: list[Any] = [journey.names.get(value, value) for value in found.column("bad_batch_id").to_pylist()]
            columns["bad_batch_id"] = pa.array(bad, pa.string())
        if column := _TELLS_SNAPSHOT.get(table):
            told: list[Any] = [_told_here(value, journey) for value in found.column(column).to_pylist()]
            columns[column] = pa.array(told, pa.string())
        for column in _SNAPSHOTS.get(table, ()):
            numbers: list[Any] = [value and journey.here(value) for value in found.column(column).to_pylist()]
            columns[column] = pa.array(numbers, pa.int64())
        built = encoding.from_arrow(table, pa.table(columns))
        parts.append((table, built.num_rows, encoding.parquet_bytes(table, built)))
    return parts


def _that_count_here(found: pa.Table, journey: _Journey) -> pa.Table:
    """The rows of `quarantine` but those that would put aside another run's batch: by hand, or for a batch that was put
    aside itself."""
    counts: list[bool] = []
    for row in found.select(["bad_batch_id", "reason", "batch_id"]).to_pylist():
        stands_for_it = row["reason"].startswith(SUPERSEDED) and row["batch_id"] not in journey.put_aside
        counts.append(stands_for_it or row["bad_batch_id"] not in journey.of_others)
        if not counts[-1]:
            journey.still_shown.add(journey.names[row["bad_batch_id"]])
    return found.filter(pa.array(counts, pa.bool_()))


def _told_here(told: str | None, journey: _Journey) -> str | None:
    """What a stage left or a run began with, its `snapshot` being that in which all that it had read has come here."""
    if told is None or '"snapshot"' not in told:
        return told
    content: dict[str, Any] = json.loads(told)
    if not content.get("snapshot"):
        return told
    return json.dumps(content | {"snapshot": journey.here(content["snapshot"])})
