"""The layout of a problem's inputs as its tests show it: a search over the parts that explain all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.extras.audit.layout import Block, Document, Layout, Line, Lines, Lists, Part, Row, Table

MOST_LINES = 60
"""Lines of fixed meaning that a layout may have."""
MOST_STEPS = 20_000
OFFSETS = (0, -1, 1)
"""A row or block may have this many more tokens or lines than the number says: a tree of N has N - 1 edges."""


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
        unexplained = sum(isinstance(part, Row | Block) and part.count is None for part in layout.parts)
        rank = layout is not written, unexplained, -len(documents)
        if documents and (layout is written or 2 * len(documents) >= most) and (best is None or rank < best[0]):
            best = rank, layout, documents
    return (None, []) if best is None else (best[1], best[2])


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
        return Layout(found, sum(len(part.roles) for part in found))

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
            found = self._search(after, (*parts, part), known, role + len(part.roles))
            if found is not None:
                return found
        return None

    def _next(self, at: tuple[int, ...], numbers: dict[int, list[int]], role: int) -> list[Part]:
        """The parts to be tried here: blocks and rows that a number explains, a line, then what nothing explains."""
        here = [lines[place] if place < len(lines) else None for place, lines in zip(at, self._inputs, strict=True)]
        widths = {len(line) for line in here if line is not None}
        blocks = self._blocks(at, numbers, role)
        found: list[Part] = [block for block in blocks if not block.offset]
        if None not in here and len(widths) > 1:
            found += [Row(role, count, offset) for count in sorted(numbers, reverse=True) for offset in OFFSETS]
        found += [*self._tables(numbers, role), *(block for block in blocks if block.offset)]
        if None not in here and len(widths) == 1:
            found.append(Line(tuple(range(role, role + len(here[0] or ())))))
        if None not in here and len(widths) > 1:
            found.append(Row(role, None))
        left = [len(lines) - place for place, lines in zip(at, self._inputs, strict=True)]
        if len(set(left)) > 1 and (width := self._width(at, left)) is not None:
            found.append(Block(tuple(range(role, role + width)), None))
        return found

    def _blocks(self, at: tuple[int, ...], numbers: dict[int, list[int]], role: int) -> list[Block]:
        """Blocks of as many lines as a number says that is not the same in all inputs."""
        found: list[Block] = []
        for count in sorted(numbers, reverse=True):
            for offset in OFFSETS if len(set(numbers[count])) > 1 else ():
                width = self._width(at, [number + offset for number in numbers[count]])
                if width is not None:
                    found.append(Block(tuple(range(role, role + width)), count, offset))
        return found

    def _tables(self, numbers: dict[int, list[int]], role: int) -> list[Part]:
        """Tables of two numbers that are not the same in all inputs, and lists, where a number says how many."""
        varied = [one for one in sorted(numbers, reverse=True) if len(set(numbers[one])) > 1]
        found: list[Part] = [
            Table(role, rows, columns) for columns in varied for rows in sorted(numbers) if rows != columns
        ]
        return [*found, *(Lists(role, role + 1, count, apart) for count in varied for apart in (False, True))]

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
        if isinstance(part, Row | Table | Lists):
            return self._taken(part, at, numbers)
        if part.count is None:
            return tuple(len(lines) for lines in self._inputs)
        return tuple(place + number + part.offset for place, number in zip(at, numbers[part.count], strict=True))

    def _taken(self, part: Part, at: tuple[int, ...], numbers: dict[int, list[int]]) -> tuple[int, ...] | None:
        """Where every input goes on when the part takes its lines; None when one has none such."""
        found: list[int] = []
        roles = max((*part.roles, *numbers)) + 1
        for index, (place, lines) in enumerate(zip(at, self._inputs, strict=True)):
            document: Document = [[str(numbers[role][index])] if role in numbers else [] for role in range(roles)]
            taken = part.take(lines[place:], document)
            if taken is None:
                return None
            found.append(place + taken)
        return tuple(found)

    def _numbers(self, part: Line, at: tuple[int, ...]) -> dict[int, list[int]]:
        """The roles of the line that are small numbers in every input."""
        found: dict[int, list[int]] = {}
        for column, role in enumerate(part.roles):
            tokens = [lines[place][column] for place, lines in zip(at, self._inputs, strict=True)]
            if all(token.isdecimal() and len(token) < 7 for token in tokens):
                found[role] = [int(token) for token in tokens]
        return found
