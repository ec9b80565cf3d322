"""A batch appended once more with other content, which takes the place of the old one in the same commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from warehouse.schema import PROVENANCE, SUPERSEDED, VIEW_COLUMNS

_STAMPED: Final = frozenset(column.name for column in (*PROVENANCE, *VIEW_COLUMNS))
"""Columns that the warehouse adds to every row."""


def content(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that was read, without what the warehouse added to it: so that it can be appended again."""
    return {name: value for name, value in row.items() if name not in _STAMPED}


def superseded(old: str, new: str) -> dict[str, Any]:
    """The row of `quarantine` that leaves batch `old` out for batch `new`; it is appended with `new`."""
    return {"bad_batch_id": old, "reason": f"{SUPERSEDED} by {new}"}
