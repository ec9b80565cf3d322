"""The few small columns of every response that pages group and search by, kept in memory beside the lake.

Token ids and texts are nearly all of the warehouse's bytes, and Parquet is read in groups of rows: finding one
problem's responses among millions takes seconds. These columns take about 50 bytes a response in memory and are
searched in milliseconds. Only what became visible since is read again. What they find is then read from the lake by
`created_at`, by which its row groups can be skipped.

`resident.responses` shows them as of the snapshot `shown_snapshot` without quarantined batches, as the lake's views do,
and says who wrote each: `pi_0`, `training`, `evaluation` (a trained policy's), `person`, `other model`.
"""

from __future__ import annotations

import threading
from typing import Final

import duckdb

from warehouse.lake import LAKE, SESSION, STORED
from warehouse.queries import query

TABLES: Final = ("quarantine", "policies", "eval_samples", "trajectories")
CHECKPOINT_ROWS: Final = 100_000
"""New rows after which they are compressed."""


class ResidentColumns:
    """Follows the warehouse; `snapshot` is how far. One thread refreshes at a time, any number may read."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._cursor = connection.cursor()
        for statement in SESSION:
            self._cursor.execute(statement)
        for statement in query(__name__, "schema").split(";\n"):
            self._cursor.execute(statement)
        self._filling = threading.Lock()
        self._loose_rows = 0
        self.snapshot = 0

    def refresh(self, newest: int) -> None:
        """Take in what became visible until snapshot `newest`."""
        with self._filling:
            if newest <= self.snapshot:
                return
            self._cursor.execute("BEGIN")
            try:
                added = {table: self._take_in(table, newest) for table in TABLES}
                since = -1 if added["policies"] else self.snapshot  # a policy may be told of after its samples
                self._cursor.execute(query(__name__, "written_by_pi_0", since=str(since)))
                self._cursor.execute("COMMIT")
            except BaseException:
                self._cursor.execute("ROLLBACK")
                raise
            self.snapshot = newest
            self._loose_rows += sum(added.values())
            if self._loose_rows > CHECKPOINT_ROWS:
                self._cursor.execute("CHECKPOINT resident")
                self._loose_rows = 0

    def close(self) -> None:
        """Close the cursor that reads."""
        self._cursor.close()

    def _take_in(self, table: str, newest: int) -> int:
        """Rows that were added. The catalog lists the files of these snapshots while they are not expired."""
        whole = f"(SELECT *, rowid, snapshot_id FROM {STORED}.{table})"
        bounds = {"since": str(self.snapshot), "newest": str(newest)}
        if self.snapshot:
            inserted = f"ducklake_table_insertions('{LAKE}', '{STORED}', '{table}', {self.snapshot + 1}, {newest})"
            try:
                return self._insert(table, inserted, bounds)
            except duckdb.InvalidInputException as error:
                if "No snapshot found" not in str(error):
                    raise
        return self._insert(table, whole, bounds)

    def _insert(self, table: str, rows: str, bounds: dict[str, str]) -> int:
        texts = {
            "trajectories": query(__name__, "trajectories", rows=rows, **bounds),
            "eval_samples": query(__name__, "eval_samples", rows=rows, **bounds),
            "quarantine": query(__name__, "quarantine", rows=rows, **bounds),
            "policies": query(__name__, "policies", rows=rows, **bounds),
        }
        found = self._cursor.execute(texts[table]).fetchone()
        return 0 if found is None else int(found[0])
