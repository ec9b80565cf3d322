"""What a page function is given: the questions it may ask, its address, and where the project writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.explorer.address import Address
from warehouse.reading.readers import Session


@dataclass(frozen=True, slots=True)
class Look:
    """One request: a session at one snapshot, and an address."""

    session: Session
    address: Address
    home: Path

    def rows(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """The rows of a named query."""
        return self.session.rows(sql, values)

    def row(self, sql: str, **values: Any) -> dict[str, Any] | None:
        """The first row of a named query."""
        return self.session.row(sql, values)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page function gives back: a template and its values."""

    template: str
    title: str
    section: str = ""
    """Entry of the navigation that the page belongs to."""
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    live: bool = False
    """Something that it shows is still growing."""
