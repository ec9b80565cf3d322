"""The few small columns of every response that pages group and search by, kept in memory beside the lake.

Token ids and texts are nearly all of the warehouse's bytes, and Parquet is read in groups of rows: finding one
problem's responses among millions takes seconds. These columns take about 50 bytes a response in memory and are
searched in milliseconds. Only what became visible since is read again. What they find is then read from the lake by
`created_at`, by which its row groups can be skipped.

`resident.responses` shows them as of the snapshot `shown_snapshot` without quarantined batches, as the lake's views do,
and says who wrote each: `pi_0`, `training`, `evaluation` (a trained policy's), `person`, `other model`.

`resident.uses` says which optimizer step took which response. `resident.by_problem` counts responses by problem: to
count different programs is to read every response, so the counts of the newest snapshot are kept; those of problems
with new responses are made again, and all of them when a batch is left out or somebody else turns out to have written
old ones. An older snapshot is counted anew.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import duckdb

from warehouse.lake import SESSION
from warehouse.location import Location
from warehouse.queries import query
from warehouse.reading.resident_tables import changed_tables, take_in

TABLES: Final = ("eval_samples", "trajectories", "train_batches")
CHECKPOINT_ROWS: Final = 100_000
"""New rows after which they are compressed."""


class ResidentColumns:
    """Follows the responses; `snapshot` is how far. One thread refreshes at a time, any number may read.

    Needs `ResidentTables` on the same connection, which must have come as far.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, location: Location) -> None:
        self._location = location
        self._cursor = connection.cursor()
        anew = query(__name__, "counted", responses="(FROM resident.responses WHERE NOT getvariable('counted'))")
        by_problem = query(__name__, "by_problem", anew=anew)
        for statement in (*SESSION, *query(__name__, "schema").split(";\n"), by_problem):
            self._cursor.execute(statement)
        self._filling = threading.Lock()
        self._loose_rows = 0
        self.snapshot = 0

    def refresh(self, newest: int) -> None:
        """Take in what became visible until snapshot `newest`."""
        with self._filling:
            if newest <= self.snapshot:
                return
            changed = changed_tables(self._cursor, self._location, self.snapshot, newest)
            self._cursor.execute("BEGIN")
            try:
                added = sum(
                    take_in(self._cursor, table, self.snapshot, newest, _insert) for table in TABLES if table in changed
                )
                self._count(newest)
                self._cursor.execute("COMMIT")
            except BaseException:
                self._cursor.execute("ROLLBACK")
                raise
            self.snapshot = newest
            self._loose_rows += added
            if self._loose_rows > CHECKPOINT_ROWS:
                self._compress()

    def close(self) -> None:
        """Close the cursor that reads."""
        self._cursor.close()

    def _compress(self) -> None:
        """Compress the new rows; where another reader takes in small tables just now, the next refresh does it."""
        with suppress(duckdb.TransactionException):
            self._cursor.execute("CHECKPOINT resident")
            self._loose_rows = 0

    def _count(self, newest: int) -> None:
        """Say who wrote the new responses, and count those of each problem that the news touch."""
        bounds = {"since": str(self.snapshot), "newest": str(newest)}
        new_policies, left_out = self._row(query(__name__, "news", **bounds))
        old = self._written_by("-1", bounds["since"], newest) if new_policies else 0
        self._written_by(bounds["since"], bounds["newest"], newest)
        since = "-1" if old or left_out else bounds["since"]
        self._cursor.execute(query(__name__, "forget_counts", since=since))
        kept = "NOT MATERIALIZED" if int(since) <= 0 else "MATERIALIZED"
        counted = query(__name__, "counted", responses="touched")
        self._cursor.execute(query(__name__, "count", kept=kept, counted=counted, since=since, newest=bounds["newest"]))
        self._cursor.execute(f"UPDATE resident.counted_until SET snapshot = {newest}")

    def _written_by(self, after: str, until: str, newest: int) -> int:
        """Say who wrote the responses of some snapshots; the number of those of which it was not known."""
        return self._row(query(__name__, "written_by", after=after, until=until, newest=str(newest)))[0]

    def _row(self, sql: str) -> tuple[int, ...]:
        found = self._cursor.execute(sql).fetchone()
        return tuple(map(int, found or ()))


def _insert(table: str, rows: str, bounds: Mapping[str, str]) -> str:
    texts = {
        "trajectories": query(__name__, "trajectories", rows=rows, **bounds),
        "eval_samples": query(__name__, "eval_samples", rows=rows, **bounds),
        "train_batches": query(__name__, "train_batches", rows=rows, **bounds),
    }
    return texts[table]
