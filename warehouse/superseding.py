"""A batch appended once more with other content, which takes the place of the old one in the same commit."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from warehouse.lake import LAKE, STORED
from warehouse.queries import query
from warehouse.schema import PROVENANCE, SUPERSEDED, VIEW_COLUMNS

if TYPE_CHECKING:
    from warehouse.store import Warehouse

_STAMPED: Final = frozenset(column.name for column in (*PROVENANCE, *VIEW_COLUMNS))
"""Columns that the warehouse adds to every row."""
_BY: Final = f"{SUPERSEDED} by "
_BESIDE: Final = f"{SUPERSEDED} beside "


def content(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row that was read, without what the warehouse added to it: so that it can be appended again."""
    return {name: value for name, value in row.items() if name not in _STAMPED}


def superseded(old: str, new: str) -> dict[str, Any]:
    """The row of `quarantine` that leaves batch `old` out for batch `new`; it is appended with `new`."""
    return {"bad_batch_id": old, "reason": f"{_BY}{new}"}


def view_judged_until(table: str, snapshot: int) -> str:
    """The statement after which `table` shows batches that were judged again after `snapshot`, not their successors."""
    names = {"table": table, "stored": f"{LAKE}.{STORED}"}
    return query(__name__, "view_judged_until", **names, until=str(int(snapshot)))


def successors(store: Warehouse, batches: Iterable[str]) -> set[str]:
    """The batches that hold the rows of these now, those that took their place and are shown."""
    pairs = store.rows(query(__name__, "successions"), [_BY])
    found, look = set[str](), set(batches)
    while look := {row["new"] for row in pairs if row["old"] in look} - found:
        found |= look
    return found & {row["new"] for row in pairs if row["shown"]}


def leave_one_successor(store: Warehouse) -> int:
    """Where several batches that are shown supersede the same one, leave out all but the newest; how many.

    Two warehouses that have judged the same batch again come to this when one imports the other: each response would
    count twice.
    """
    pairs = store.rows(query(__name__, "successions"), [_BY])
    shown = {row["new"]: row["created_at"] for row in pairs if row["shown"]}
    surplus = _surplus({(row["old"], row["new"]) for row in pairs}, shown)
    if surplus:
        rows = [{"bad_batch_id": old, "reason": f"{_BESIDE}{new}"} for old, new in sorted(surplus.items())]
        digest = hashlib.sha256("\n".join(sorted(surplus)).encode()).hexdigest()[:16]
        store.append(f"one-successor/{digest}", {"quarantine": rows}, run_id="import")
    return len(surplus)


def _surplus(pairs: set[tuple[str, str]], shown: Mapping[str, datetime]) -> dict[str, str]:
    """Shown batch -> a newer shown one that stands for all that it stands for."""
    before: dict[str, set[str]] = defaultdict(set)
    for old, new in pairs:
        before[new].add(old)

    def origins(batch: str) -> set[str]:
        return set().union(*(origins(old) for old in before[batch])) if batch in before else {batch}

    first = {batch: origins(batch) for batch in shown}
    found: dict[str, str] = {}
    newest_first = sorted(shown, key=lambda batch: (shown[batch], batch), reverse=True)
    for position, batch in enumerate(newest_first):
        newer = (one for one in newest_first[:position] if first[batch] <= first[one])
        if (kept := next(newer, None)) is not None:
            found[batch] = kept
    return found
