"""Upkeep beside long work: small files are merged and snapshots forgotten as they gather, without anybody asking."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from warehouse.errors import WarehouseError
from warehouse.store import Warehouse
from warehouse.upkeep.maintenance import KEEP_SNAPSHOTS, MANY_FILES, MOST_SNAPSHOTS, expire, merge_where_many

INTERVAL_S: Final = 120.0


class BackgroundCompaction:
    """A thread that merges small files and forgets old snapshots every `interval_s`; a context manager.

    It begins after the first interval, so that short work pays nothing. Whatever keeps it from merging is handed to
    `tell` and tried again later: nothing is lost by it, queries only get slower.
    """

    def __init__(
        self,
        location: str | Path | None,
        *,
        tell: Callable[[str], None],
        interval_s: float = INTERVAL_S,
        many_files: int = MANY_FILES,
        most_snapshots: int = MOST_SNAPSHOTS,
    ) -> None:
        self._location = location
        self._tell = tell
        self._interval_s = interval_s
        self._many_files = many_files
        self._most_snapshots = most_snapshots
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="background-compaction", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop, after what is being made."""
        self._done.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._done.wait(self._interval_s):
            try:
                with Warehouse.open(self._location) as warehouse:
                    merge_where_many(warehouse, self._many_files, enough=self._done.is_set)
                    expire(warehouse, KEEP_SNAPSHOTS, self._most_snapshots, enough=self._done.is_set)
            except WarehouseError as error:
                self._tell(f"small files or old snapshots were left as they are this time: {error}")
