"""Addresses of pages: what a page is asked for, and links that others can be sent.

Everything that a page shows is in its address: path, filters, and `at`, the snapshot that it shows.

Errors
------
BadAddress, NotFound
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from tasks.errors import CodedError

Linker = Callable[[str], str | None]
"""The href of an address such as `/problem?id=a`; None where there is no page (outside of a bundle)."""
LONGEST = 4_000
"""Characters of one value."""
LARGEST = 2**63 - 1
"""A whole number that the warehouse can be asked about."""
LAST_PAGE = 1_000_000_000


class BadAddress(CodedError):
    """A filter in an address cannot be understood; the message says which."""


class NotFound(CodedError):
    """What an address names is not in the warehouse at this snapshot."""


@dataclass(frozen=True, slots=True)
class Address:
    """A path and its filters, in their order; a filter may be given several times."""

    path: str
    values: tuple[tuple[str, str], ...] = ()
    linker: Linker = field(default=lambda address: address, compare=False, repr=False)

    @classmethod
    def parse(cls, path: str, query: str, linker: Linker | None = None) -> Address:
        """The address of a request; raises BadAddress for a value that is too long."""
        values = tuple(parse_qsl(query, keep_blank_values=False, errors="replace"))
        for name, value in values:
            if len(value) > LONGEST and name != "sql":
                raise BadAddress(f"the filter {name[:40]!r} is longer than {LONGEST} characters")
        return cls(path, values) if linker is None else cls(path, values, linker)

    def text(self, name: str, default: str = "") -> str:
        """The last value of a filter."""
        return next((value for key, value in reversed(self.values) if key == name), default)

    def texts(self, name: str) -> list[str]:
        """Every value of a filter, each once."""
        return list(dict.fromkeys(value for key, value in self.values if key == name))

    def needed(self, name: str) -> str:
        """The value of a filter that the page cannot do without; raises BadAddress."""
        value = self.text(name)
        if not value:
            raise BadAddress(f"the address {self.path} needs {name}=...")
        return value

    def number(self, name: str, default: int | None = None, *, most: int = LARGEST) -> int | None:
        """A filter that is a whole number between -`most` and `most`; raises BadAddress."""
        value = self.text(name)
        if not value:
            return default
        try:
            number = int(value)
        except ValueError:
            raise BadAddress(f"the filter {name} must be a whole number, not {value[:40]!r}") from None
        if abs(number) > most:
            raise BadAddress(f"the filter {name} must be at most {most}, not {value[:40]!r}")
        return number

    def page(self) -> int:
        """The number of the part of a list that is shown, from 1; raises BadAddress."""
        return max(1, self.number("page", 1, most=LAST_PAGE) or 1)

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """A filter with a few values, by default the first; raises BadAddress."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise BadAddress(f"the filter {name} must be one of {', '.join(choices)}, not {value[:40]!r}")
        return value

    def link(self, path: str, **filters: object) -> str | None:
        """The href of another page at the same snapshot."""
        at = self.text("at")
        wanted: dict[str, object] = {**filters} | ({"at": at} if at and "at" not in filters else {})
        return self.linker(_written(path, wanted))

    def changed(self, **filters: object) -> str | None:
        """The href of this page with some filters set to others; None and "" take one out."""
        kept = [(name, value) for name, value in self.values if name not in filters]
        added = [(name, str(value)) for name, value in filters.items() if value not in (None, "")]
        values = kept + added
        return self.linker(self.path + ("?" + urlencode(values) if values else ""))


def _written(path: str, filters: Mapping[str, object]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in filters.items():
        if isinstance(value, (list, tuple)):
            pairs += [(name, str(one)) for one in value]
        elif value not in (None, ""):
            pairs.append((name, str(value)))
    return path + ("?" + urlencode(pairs) if pairs else "")
