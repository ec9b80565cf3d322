"""What the commit protocol writes down: a staged batch (intent) and the points a crash test may stop at."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

POINTS: Final = (
    "data-written",
    "data-renamed",
    "intent-written",
    "intent-renamed",
    "lock-taken",
    "transaction-begun",
    "ledger-reconciled",
    "files-registered",
    "catalog-committed",
    "ledger-written",
    "intents-removed",
    "lock-released",
    "merge-begun",
    "merge-committed",
    "sweep-begun",
    "file-swept",
)
"""Labels of the protocol, in order; after each of them a process may die without harm."""

watchers: Final[list[Callable[[str], None]]] = []
"""Called with the label when a point is reached; empty outside of crash tests."""


def reach(label: str) -> None:
    """Tell the watchers that the protocol has come to `label`."""
    for watcher in watchers:
        watcher(label)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a staged batch. `path` is relative to the place's data."""

    table: str
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Intent:
    """A durable batch that waits to become visible; `key` sorts by time and is unique per attempt."""

    key: str
    batch_id: str
    run_id: str
    files: tuple[DataFile, ...]

    def to_json(self) -> str:
        """The intent as JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Intent:
        """The intent that `to_json` wrote."""
        tree: dict[str, Any] = json.loads(text)
        files = tuple(DataFile(**file) for file in tree["files"])
        return cls(tree["key"], tree["batch_id"], tree["run_id"], files)


def new_key() -> str:
    """A name for an attempt: sorts by time, never repeats."""
    return f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}"
