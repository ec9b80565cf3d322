"""The layout of a problem's inputs, inferred from its tests: which token counts which, and which belong together.

A layout is a sequence of parts: `Line`, a line with so many tokens; `Row`, a line with as many tokens as an earlier
number says; `Block`, as many lines of so many tokens as an earlier number says. Every column of tokens is a `role`:
a single token of a `Line`, all tokens of a `Row`, one column of a `Block`. An input is then a list of tokens per role.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Lines = list[list[str]]
"""An input as tokens by line."""
Document = list[list[str]]
"""An input as tokens by role."""

MOST_LINES = 60
"""Lines of fixed meaning that a layout may have."""
MOST_STEPS = 20_000
OFFSETS = (0, -1, 1)
"""A row or block may have this many more tokens or lines than the number says: a tree of N has N - 1 edges."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line with one token per role."""

    roles: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: as many tokens as role `count` says plus `offset`; any number of them without a count."""

    role: int
    count: int | None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """As many lines as role `count` says plus `offset`; any number of them up to the end without a count."""

    roles: tuple[int, ...]
    count: int | None
    offset: int = 0


Part = Line | Row | Block


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of an input in order, and how many roles they have."""

    parts: tuple[Part, ...]
    roles: int

    def counted(self, role: int) -> list[tuple[int, int]]:
        """(role, offset) of each role whose number of tokens this role says."""
        found: list[tuple[int, int]] = []
        for part in self.parts:
            if isinstance(part, Row) and part.count == role:
                found.append((part.role, part.offset))
            elif isinstance(part, Block) and part.count == role:
                found += [(one, part.offset) for one in part.roles]
        return found

    def beside(self, role: int) -> tuple[int, ...]:
        """The roles with as many tokens as this one whatever they are: the columns of its block."""
        for part in self.parts:
            if isinstance(part, Block) and role in part.roles:
                return part.roles
        return (role,)

    def render(self, document: Document) -> str:
        """The input as text."""
        lines: list[str] = []
        for part in self.parts:
            if isinstance(part, Line):
                lines.append(" ".join(document[role][0] for role in part.roles))
            elif isinstance(part, Row):
                lines.append(" ".join(document[part.role]))
            else:
                lines += [" ".join(row) for row in zip(*(document[role] for role in part.roles), strict=True)]
        return "\n".join(lines) + "\n"

    def parse(self, lines: Lines) -> Document | None:
        """The input's tokens by role; None when it is none of this layout."""
        document: Document = [[] for _ in range(self.roles)]
        place = 0
        for part in self.parts:
            rows, tokens = _taken(part, document, len(lines) - place)
            chosen = lines[place : place + rows]
            if rows < 0 or len(chosen) != rows or any(tokens not in (None, len(line)) for line in chosen):
                return None
            if isinstance(part, Row):
                document[part.role] = list(chosen[0])
            else:
                for column, role in enumerate(part.roles):
                    document[role] = [line[column] for line in chosen]
            place += rows
        return document if place == len(lines) else None


def infer(inputs: Sequence[Lines]) -> Layout | None:
    """A layout that all the inputs have, one that explains numbers of tokens if there is one; None without any."""
    return Inference(inputs).run()


def layout_of(
    public: Sequence[Lines], examples: Sequence[Lines], written: Layout | None, most: int
) -> tuple[Layout | None, list[Document]]:
    """The layout of the tests, and the tests of that layout, the public ones first.

    It is the one written in the statement if the public tests have it, else one inferred from them all or from the
    public ones, which most of the tests must have: generated tests may break it, few show less of it than there is.
    """
    tried = [written] if written is not None else []
    tried += [infer(inputs) for inputs in (examples, public) if inputs]
    best: tuple[tuple[bool, int, int], Layout, list[Document]] | None = None
    for layout in tried:
        if layout is None or any(layout.parse(lines) is None for lines in public):
            continue
        documents = [document for lines in examples if (document := layout.parse(lines)) is not None]
        unexplained = sum(not isinstance(part, Line) and part.count is None for part in layout.parts)
        rank = layout is not written, unexplained, -len(documents)
        if documents and (layout is written or 2 * len(documents) >= most) and (best is None or rank < best[0]):
            best = rank, layout, documents
    return (None, []) if best is None else (best[1], best[2])


def lines_of(text: str) -> Lines:
    """The tokens of each line; empty lines at the end do not count."""
    return [line.split() for line in text.rstrip().split("\n")] if text.strip() else []


class Inference:
    """A search with backtracking over the parts that could come next in all inputs at once."""

    def __init__(self, inputs: Sequence[Lines]) -> None:
        self._inputs = inputs
        self._steps = MOST_STEPS

    def run(self) -> Layout | None:
        """The first layout found; explanations by counts are tried first."""
        if not self._inputs or not all(self._inputs):
            return None
        found = self._search((0,) * len(self._inputs), (), {}, 0)
        if found is None:
            return None
        roles = [role for part in found for role in (part.roles if not isinstance(part, Row) else (part.role,))]
        return Layout(found, len(roles))

    def _search(
        self, at: tuple[int, ...], parts: tuple[Part, ...], numbers: dict[int, list[int]], role: int
    ) -> tuple[Part, ...] | None:
        """Parts up to the end of all inputs, from the lines `at`; `numbers` are the scalars before, one per input."""
        self._steps -= 1
        ended = [place == len(lines) for place, lines in zip(at, self._inputs, strict=True)]
        if all(ended):
            return parts
        if self._steps < 0 or len(parts) > MOST_LINES:
            return None
        for part in self._next(at, numbers, role):
            after = self._after(part, at, numbers)
            if after is None:
                continue
            known = numbers | (self._numbers(part, at) if isinstance(part, Line) else {})
            taken = 1 if isinstance(part, Row) else len(part.roles)
            found = self._search(after, (*parts, part), known, role + taken)
            if found is not None:
                return found
        return None

    def _next(self, at: tuple[int, ...], numbers: dict[int, list[int]], role: int) -> list[Part]:
        """The parts to be tried here: blocks and rows that a number explains, a line, then what nothing explains."""
        here = [lines[place] if place < len(lines) else None for place, lines in zip(at, self._inputs, strict=True)]
        widths = {len(line) for line in here if line is not None}
        found: list[Part] = []
        for count in sorted(numbers, reverse=True):
            if len(set(numbers[count])) > 1:
                for offset in OFFSETS:
                    width = self._width(at, [number + offset for number in numbers[count]])
                    if width is not None:
                        found.append(Block(tuple(range(role, role + width)), count, offset))
        if None not in here and len(widths) > 1:
            found += [Row(role, count, offset) for count in sorted(numbers, reverse=True) for offset in OFFSETS]
        if None not in here and len(widths) == 1:
            found.append(Line(tuple(range(role, role + len(here[0] or ())))))
        if None not in here and len(widths) > 1:
            found.append(Row(role, None))
        left = [len(lines) - place for place, lines in zip(at, self._inputs, strict=True)]
        if len(set(left)) > 1 and (width := self._width(at, left)) is not None:
            found.append(Block(tuple(range(role, role + width)), None))
        return found

    def _width(self, at: tuple[int, ...], counts: list[int]) -> int | None:
        """The tokens of every one of the next `counts` lines of the inputs; None if they differ or are not there."""
        widths: set[int] = set()
        for place, count, lines in zip(at, counts, self._inputs, strict=True):
            if count < 0 or place + count > len(lines):
                return None
            widths |= {len(line) for line in lines[place : place + count]}
        return widths.pop() if len(widths) == 1 and 0 not in widths else None

    def _after(self, part: Part, at: tuple[int, ...], numbers: dict[int, list[int]]) -> tuple[int, ...] | None:
        """Where the inputs go on after the part; None when it does not fit."""
        if isinstance(part, Line):
            return tuple(place + 1 for place in at)
        if isinstance(part, Row):
            if part.count is not None:
                for place, lines, number in zip(at, self._inputs, numbers[part.count], strict=True):
                    if len(lines[place]) != number + part.offset:
                        return None
            return tuple(place + 1 for place in at)
        if part.count is None:
            return tuple(len(lines) for lines in self._inputs)
        return tuple(place + number + part.offset for place, number in zip(at, numbers[part.count], strict=True))

    def _numbers(self, part: Line, at: tuple[int, ...]) -> dict[int, list[int]]:
        """The roles of the line that are small numbers in every input."""
        found: dict[int, list[int]] = {}
        for column, role in enumerate(part.roles):
            tokens = [lines[place][column] for place, lines in zip(at, self._inputs, strict=True)]
            if all(token.isdecimal() and len(token) < 7 for token in tokens):
                found[role] = [int(token) for token in tokens]
        return found


def _taken(part: Part, document: Document, left: int) -> tuple[int, int | None]:
    """(lines, tokens of each) of a part when the roles before it are known; (-1, ...) where they make no sense."""
    if isinstance(part, Line):
        return 1, len(part.roles)
    number = None
    if part.count is not None:
        text = document[part.count][0]
        number = int(text) + part.offset if text.isdecimal() else -1
    if isinstance(part, Row):
        return 1 if number is None or number >= 0 else -1, number
    return left if number is None else number, len(part.roles)
