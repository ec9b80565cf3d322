"""Files that other programs wrote: rows as plain dicts, whatever table they may once have been."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warehouse.errors import InvalidRows

_ROWS_AT_A_TIME = 256
"""A published problem may hold megabytes of tests."""


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file in order, a few at a time in memory. Raises InvalidRows (names the file)."""
    import pyarrow as pa  # loaded when a file is read: many commands import this module and read none
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_A_TIME):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InvalidRows(f"{path} cannot be read as Parquet: {error}") from error
