"""What the commit protocol writes down before it commits: a staged batch with its files (an intent)."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a staged batch. `path` is relative to the data of the warehouse."""

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


class KeyMaker:
    """Names for the attempts of a process: they sort in the order in which it made them, and never repeat."""

    def __init__(self) -> None:
        self._latest_ns = 0

    def new_key(self) -> str:
        """A name that sorts by time, and after every earlier one also when the clock was set back."""
        self._latest_ns = max(time.time_ns(), self._latest_ns + 1)
        return f"{self._latest_ns:020d}-{uuid.uuid4().hex[:12]}"
