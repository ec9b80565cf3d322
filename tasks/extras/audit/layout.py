"""The layout of a problem's inputs: which token counts which, and which belong together.

A layout is a sequence of parts. Every column of tokens is a `role`: a single token of a `Line`, all tokens of a `Row`,
one column of a `Block`, all tokens of a `Table` or of `Lists`. An input is then a list of tokens per role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Lines = list[list[str]]
"""An input as tokens by line."""
Document = list[list[str]]
"""An input as tokens by role."""
LONGEST_COUNT = 18
"""Digits of a number that may count tokens."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line with one token per role."""

    roles: tuple[int, ...]

    def counts(self) -> tuple[int, ...]:
        """The roles whose numbers say how many tokens the part's roles have."""
        return ()

    def lengths(self, _: Document) -> tuple[int | None, ...]:
        """How many tokens each role has, by those of the roles before it; None where nothing says so."""
        return (1,) * len(self.roles)

    def lines(self, document: Document) -> Lines:
        """The part's lines."""
        return [[document[role][0] for role in self.roles]]

    def take(self, lines: Lines, document: Document) -> int | None:
        """Fill the document's roles from the next lines; how many these were, None when they are none of this part."""
        if not lines or len(lines[0]) != len(self.roles):
            return None
        for role, token in zip(self.roles, lines[0], strict=True):
            document[role] = [token]
        return 1


@dataclass(frozen=True, slots=True)
class Row:
    """One line: as many tokens as role `count` says plus `offset`; any number of them without a count."""

    role: int
    count: int | None
    offset: int = 0

    @property
    def roles(self) -> tuple[int, ...]:
        """Its only one."""
        return (self.role,)

    def counts(self) -> tuple[int, ...]:
        """As for `Line`, like everything below."""
        return () if self.count is None else (self.count,)

    def lengths(self, document: Document) -> tuple[int | None, ...]:
        """The number, unless there is none."""
        return (None if self.count is None else said(document, self.count) + self.offset,)

    def lines(self, document: Document) -> Lines:
        """The line."""
        return [document[self.role]]

    def take(self, lines: Lines, document: Document) -> int | None:
        """One line."""
        if not lines or self.lengths(document)[0] not in (None, len(lines[0])):
            return None
        document[self.role] = list(lines[0])
        return 1


@dataclass(frozen=True, slots=True)
class Block:
    """As many lines as role `count` says plus `offset`; any number of them up to the end without a count."""

    roles: tuple[int, ...]
    count: int | None
    offset: int = 0

    def counts(self) -> tuple[int, ...]:
        """The number of lines."""
        return () if self.count is None else (self.count,)

    def lengths(self, document: Document) -> tuple[int | None, ...]:
        """As many tokens as lines."""
        length = None if self.count is None else said(document, self.count) + self.offset
        return (length,) * len(self.roles)

    def lines(self, document: Document) -> Lines:
        """Each with a token of every role."""
        return [list(row) for row in zip(*(document[role] for role in self.roles), strict=True)]

    def take(self, lines: Lines, document: Document) -> int | None:
        """As many lines as it says, or all."""
        number = self.lengths(document)[0]
        chosen = lines if number is None else lines[: max(0, number)]
        if number not in (None, len(chosen)) or any(len(line) != len(self.roles) for line in chosen):
            return None
        for column, role in enumerate(self.roles):
            document[role] = [line[column] for line in chosen]
        return len(chosen)


@dataclass(frozen=True, slots=True)
class Table:
    """As many lines as role `rows` says, each of as many tokens as role `columns` says."""

    role: int
    rows: int
    columns: int

    @property
    def roles(self) -> tuple[int, ...]:
        """Its only one."""
        return (self.role,)

    def counts(self) -> tuple[int, ...]:
        """Its two numbers."""
        return (self.rows, self.columns)

    def lengths(self, document: Document) -> tuple[int | None, ...]:
        """Their product."""
        return (max(0, said(document, self.rows)) * max(0, said(document, self.columns)),)

    def lines(self, document: Document) -> Lines:
        """The tokens, row by row."""
        return cut(document[self.role], [said(document, self.columns)] * said(document, self.rows))

    def take(self, lines: Lines, document: Document) -> int | None:
        """As many lines of as many tokens as the numbers say."""
        rows, columns = said(document, self.rows), said(document, self.columns)
        chosen = lines[: max(0, rows)]
        if len(chosen) != rows or any(len(line) != columns for line in chosen):
            return None
        document[self.role] = [token for line in chosen for token in line]
        return rows


@dataclass(frozen=True, slots=True)
class Lists:
    """As many lists as role `count` says: a number (`sizes`) and as many tokens (`role`), on one line or `apart`."""

    sizes: int
    role: int
    count: int
    apart: bool = False

    @property
    def roles(self) -> tuple[int, ...]:
        """The numbers before what they count."""
        return (self.sizes, self.role)

    def counts(self) -> tuple[int, ...]:
        """The number of lists, and the numbers of their tokens."""
        return (self.count, self.sizes)

    def lengths(self, document: Document) -> tuple[int | None, ...]:
        """The number of lists, and the sum of their sizes."""
        return (said(document, self.count), sum(max(0, int(size)) for size in document[self.sizes]))

    def lists(self, document: Document) -> Lines:
        """The tokens of each list."""
        return cut(document[self.role], [int(size) for size in document[self.sizes]])

    def lines(self, document: Document) -> Lines:
        """Every list with its number before it."""
        pairs = zip(document[self.sizes], self.lists(document), strict=True)
        if self.apart:
            return [line for size, tokens in pairs for line in ([size], tokens)]
        return [[size, *tokens] for size, tokens in pairs]

    def take(self, lines: Lines, document: Document) -> int | None:
        """As many lists as the number says."""
        per_list = 2 if self.apart else 1
        number = per_list * said(document, self.count)
        if number < 0 or len(lines) < number or any(not line for line in lines[:number:per_list]):
            return None
        heads, found = lines[:number:per_list], list[str]()
        lists = lines[1:number:2] if self.apart else [line[1:] for line in heads]
        for head, tokens in zip(heads, lists, strict=True):
            if (self.apart and len(head) != 1) or head[0] != str(len(tokens)):
                return None
            found += tokens
        document[self.sizes], document[self.role] = [head[0] for head in heads], found
        return number


Part = Line | Row | Block | Table | Lists


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of an input in order, and how many roles they have."""

    parts: tuple[Part, ...]
    roles: int

    def of_lines(self) -> list[int]:
        """The roles of one token each."""
        return [role for part in self.parts if isinstance(part, Line) for role in part.roles]

    def counts(self, role: int) -> bool:
        """Whether the role's numbers say how many tokens others have."""
        return any(role in part.counts() for part in self.parts)

    def counted(self) -> list[int]:
        """The roles of which others say how many tokens they have, in order."""
        return [role for part in self.parts if part.counts() for role in part.roles]

    def length(self, role: int, document: Document) -> int | None:
        """How many tokens the role has, by those of the roles before it; None where nothing says so."""
        part = next(part for part in self.parts if role in part.roles)
        length = part.lengths(document)[part.roles.index(role)]
        return None if length is None else max(0, length)

    def render(self, document: Document) -> str:
        """The input as text."""
        return "\n".join(" ".join(line) for part in self.parts for line in part.lines(document)) + "\n"

    def parse(self, lines: Lines) -> Document | None:
        """The input's tokens by role; None when it is none of this layout."""
        document: Document = [[] for _ in range(self.roles)]
        place = 0
        for part in self.parts:
            taken = part.take(lines[place:], document)
            if taken is None:
                return None
            place += taken
        return document if place == len(lines) else None


def said(document: Document, role: int) -> int:
    """The number that a role says; -1 where it says none, or one that counts nothing."""
    text = document[role][0] if document[role] else ""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_COUNT else -1


def cut(tokens: Sequence[str], sizes: Sequence[int]) -> Lines:
    """The tokens in lists of these sizes."""
    found: Lines = []
    place = 0
    for size in sizes:
        found.append(list(tokens[place : place + size]))
        place += size
    return found


def lines_of(text: str) -> Lines:
    """The tokens of each line; empty lines at the end do not count."""
    return [line.split() for line in text.rstrip().split("\n")] if text.strip() else []
