"""Rows that became visible since, exactly once: of all that is committed, or of one run's own batches."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warehouse.columns import PROVENANCE
from warehouse.commit.ledger import CommittedBatch
from warehouse.encoding import table_named
from warehouse.queries import query

if TYPE_CHECKING:
    from warehouse.store import Warehouse

Row = dict[str, Any]


class RunFollower:
    """The rows of one table that a run's own batches bring, for a loop that asks many times a second.

    The ledger says which files hold them, and these are read one by one, at about a fifth of what a query of the lake
    takes. Where compaction has merged one of them meanwhile, or a rebuilt ledger does not know their names, the lake
    is asked (`Warehouse.follow`): the answer is the same. Rows of the run in another run's batch, as an import may
    bring them, are not followed.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        table: str,
        run_id: str,
        *,
        since: int,
        columns: Sequence[str] | None = None,
        batches: str = "",
    ) -> None:
        """Follow what became visible after snapshot `since`.

        `columns` are those that are needed, if not all; `batches` is what the names of the batches begin with.
        """
        self.since = since
        """Snapshot up to which everything has been read."""
        self._warehouse = warehouse
        self._table = table
        self._run_id = run_id
        self._batches = batches
        self._columns = list(columns or (column.name for column in (*table_named(table).columns, *PROVENANCE)))
        self._quarantined: set[str] = set()
        self._quarantine_read = since
        """Snapshot up to which `_quarantined` is complete, of what hides batches that become visible after `since`."""

    def read(self) -> list[Row]:
        """What became visible since the last call, earlier snapshots first, without quarantined batches."""
        batches = self._warehouse.ledger.batches_of(self._run_id, self.since)
        if not batches:
            return []
        self._read_quarantine(batches[-1].snapshot)
        rows: list[Row] = []
        for batch in batches:
            wanted = batch.batch_id.startswith(self._batches) and batch.batch_id not in self._quarantined
            found = self._rows_of(batch) if wanted else []
            if found is None:
                return self._read_from_lake()
            rows += found
        self.since = batches[-1].snapshot
        return rows

    def _rows_of(self, batch: CommittedBatch) -> list[Row] | None:
        """The rows of a batch; None where a file of it is not there any more, or its name is not known."""
        import pyarrow.parquet as pq  # loaded when a file is read: whoever follows nothing need not wait for it

        rows: list[Row] = []
        for file in batch.files:
            if file.table != self._table:
                continue
            content = self._warehouse.files.read_if_there(file.path) if file.path else None
            if content is None:
                return None
            with pq.ParquetFile(io.BytesIO(content)) as parquet:
                rows += parquet.read(self._columns).to_pylist()
        older = dict.fromkeys(self._columns)  # a file may be older than some of its table's columns
        return [older | row | {"snapshot_id": batch.snapshot} for row in rows]

    def _read_quarantine(self, until: int) -> None:
        """Know what is quarantined as of snapshot `until`, which the ledger has, at least."""
        newest = self._warehouse.ledger.newest_in("quarantine", self._quarantine_read)
        if newest:
            found = self._warehouse.rows(query(__name__, "quarantined"))
            self._quarantined = {str(row["bad_batch_id"]) for row in found}
        self._quarantine_read = max(newest, until)

    def _read_from_lake(self) -> list[Row]:
        rows, self.since = self._warehouse.follow(
            self._table,
            self.since,
            where="run_id = ? AND starts_with(batch_id, ?)",
            parameters=(self._run_id, self._batches),
        )
        return rows
