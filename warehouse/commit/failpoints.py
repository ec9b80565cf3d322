"""The points of the commit protocol and of upkeep after which a process may die without harm.

Outside of crash tests `failpoint` does nothing: `failpoint_hooks` is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FAILPOINTS: Final = (
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
"""Labels in the order in which they are reached; the last four belong to upkeep."""

failpoint_hooks: Final[list[Callable[[str], None]]] = []
"""Called with the label when a failpoint is reached; a crash test puts one here that kills its own process."""


def failpoint(label: str) -> None:
    """Call every hook with `label`, one of `FAILPOINTS`."""
    for hook in failpoint_hooks:
        hook(label)
