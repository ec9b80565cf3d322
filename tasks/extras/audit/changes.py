"""Tests with a change: a token, an order, a number of tokens, lines exchanged, texts and numbers made of others."""

from __future__ import annotations

import random
import string

from tasks.extras.audit import domains as at
from tasks.extras.audit.description import Description
from tasks.extras.audit.drawing import SMALL, Drawing
from tasks.extras.audit.layout import Block, Document, Layout, Line, Lines, Lists, Table

CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)


class Changes:
    """Changes tests of one problem."""

    def __init__(self, known: Description, drawing: Drawing, rng: random.Random) -> None:
        assert known.layout is not None
        self._known, self._layout, self._drawing, self._rng = known, known.layout, drawing, rng
        self._lines = self._layout.of_lines()

    def any_of(self) -> list[Document]:
        """One test changed in each way."""
        rng = self._rng
        test = [self._known.some_test(rng) for _ in range(7)]
        return [
            self.changed(test[0]),
            self.changed(self.changed(test[1])),
            self._of_few_values(test[2]),
            self._echo(test[3]),
            self._tied(test[4]),
            exchanged(self._layout, test[5], rng),
            respaced(self._layout, test[6], rng),
        ]

    def changed(self, document: Document) -> Document:
        """The document with one change: a token, an order, a number of tokens, two roles exchanged."""
        rng = self._rng
        role = rng.randrange(self._layout.roles)
        tokens, domain = list(document[role]), self._known.domains[role]
        if self._layout.counts(role):
            return self._resized(document, role)
        way = rng.random()
        if len(tokens) > 1 and way < 0.35:
            rng.shuffle(tokens)
            if way < 0.15:
                tokens.sort(key=lambda token: (len(token), token), reverse=way < 0.05)
            return with_role(document, role, tokens)
        other = rng.randrange(self._layout.roles)
        if way < 0.45 and len(document[other]) == len(tokens) and self._known.domains[other].kind == domain.kind:
            return with_role(with_role(document, role, document[other]), other, tokens)
        if way < 0.55:
            donor = rng.choice(self._known.documents)[role]
            return with_role(document, role, donor) if len(donor) == len(tokens) else document
        if not tokens:
            return document
        place = rng.randrange(len(tokens))
        tokens[place] = self._drawing.token(role, document)
        if domain.kind == "text" and rng.random() < 0.3:
            others = [token for column in document for token in column]
            tokens[place] = at.text_from(others, domain, rng) or tokens[place]
        if way > 0.9 and len(tokens) > 1:
            tokens[place] = tokens[place - 1]
        return with_role(document, role, tokens)

    def _resized(self, document: Document, role: int) -> Document:
        """The document with another number in this role, and as many tokens as it then says where it counts."""
        domain, rng, tokens = self._known.domains[role], self._rng, list(document[role])
        if not tokens:
            return document
        place, low = rng.randrange(len(tokens)), max(0, domain.low)
        number = rng.choice((low, low + 1, int(tokens[place]) + 1, rng.randint(low, max(low, min(domain.high, SMALL)))))
        tokens[place] = str(number)
        return self._drawing.fitted(with_role(document, role, tokens))

    def _echo(self, document: Document) -> Document:
        """The test with one text of a line made from another, and numbers that are their lengths are so still."""
        rng = self._rng
        texts = [role for role in self._lines if self._known.domains[role].kind == "text"]
        if len(texts) < 2:
            return self.changed(document)
        first, second = rng.sample(texts, 2)
        a, b = document[first][0], document[second][0]
        made = (a, a + b, b + a, a + b + a, a + a, a[::-1], a[:-1], a[1:], *[shifted(a, rng)] * 4)
        document = with_role(document, second, [rng.choice(made)])
        for number, text in self._known.lengths:
            document = with_role(document, number, [str(len(document[text][0]))])
        return document

    def _tied(self, document: Document) -> Document:
        """The test with one number of a line that is another number of the input, or next to it."""
        rng = self._rng
        whole = [role for role in self._lines if self._known.domains[role].kind == "whole"]
        free = [role for role in whole if not self._layout.counts(role)]
        if not free or len(whole) < 2:
            return self.changed(document)
        first = rng.choice(free)
        second = rng.choice([role for role in whole if role != first])
        return with_role(document, first, [str(int(document[second][0]) + rng.choice((-1, 0, 0, 1)))])

    def _of_few_values(self, document: Document) -> Document:
        """The test with lines that hold two or three different numbers, bounds among them."""
        rng = self._rng
        for part in self._layout.parts:
            roles = [role for role in part.roles if not self._layout.counts(role)] if isinstance(part, Line) else []
            whole = [role for role in roles if self._known.domains[role].kind == "whole"]
            if len(whole) < 2:
                continue
            low, high = self._known.domains[whole[0]].low, self._known.domains[whole[0]].high
            pool = [rng.choice((low, high, rng.randint(low, high))) for _ in range(rng.choice((1, 2, 2, 3)))]
            for role in whole:
                document = with_role(document, role, [str(rng.choice(pool))])
        return document


def with_role(document: Document, role: int, tokens: list[str]) -> Document:
    """The document with other tokens of one role."""
    return [tokens if place == role else column for place, column in enumerate(document)]


def exchanged(layout: Layout, document: Document, rng: random.Random) -> Document:
    """The document with two lines of the same number of tokens exchanged, or two columns in all of these lines.

    What lines or columns hold stays, and so does much of what makes a grid right. Unchanged without two such lines.
    """
    lines = [part.roles for part in layout.parts if isinstance(part, Line)]
    first = rng.choice(lines) if lines else ()
    alike = [roles for roles in lines if len(roles) == len(first)]
    changed = list(document)
    if len(alike) < 2:
        return changed
    if rng.random() < 0.5 or len(first) < 2:
        pairs = list(zip(*rng.sample(alike, 2), strict=True))
    else:
        one, other = rng.sample(range(len(first)), 2)
        pairs = [(roles[one], roles[other]) for roles in alike]
    for a, b in pairs:
        changed[a], changed[b] = document[b], document[a]
    return changed


def respaced(layout: Layout, document: Document, rng: random.Random) -> Document:
    """The document with one list or line that becomes another one with a blank elsewhere: `1 12` for `11 2`.

    Programs that join the numbers of a line into a text take the two for the same. Unchanged without two such lines.
    """
    parts = [part for part in layout.parts if isinstance(part, Block | Lists | Table)]
    part = rng.choice(parts) if parts else None
    rows = [] if part is None else _rows(part, document)
    known = [place for place, row in enumerate(rows) if len(row) > 1 and all(map(str.isdecimal, row))]
    if part is None or not known or len(rows) < 2:
        return list(document)
    place = rng.choice(known)
    other = rng.choice([row for row in range(len(rows)) if row != place])
    left = rng.randrange(len(rows[place]) - 1)
    a, b = rows[place][left : left + 2]
    if len(b) > 1:
        moved = [a + b[0], b[1:]]
    elif len(a) > 1:
        moved = [a[:-1], a[-1] + b]
    else:
        rows[place] = [*rows[place][: left + 1], b + a, *rows[place][left + 2 :]]
        moved = [a + b, a]
    rows[other] = [*rows[place][:left], *moved, *rows[place][left + 2 :]]
    return _with_rows(part, document, rows)


def _rows(part: Block | Lists | Table, document: Document) -> Lines:
    return part.lists(document) if isinstance(part, Lists) else part.lines(document)


def _with_rows(part: Block | Lists | Table, document: Document, rows: Lines) -> Document:
    if isinstance(part, Block):
        for column, role in enumerate(part.roles):
            document = with_role(document, role, [row[column] for row in rows])
        return document
    document = with_role(document, part.role, [token for row in rows for token in row])
    return with_role(document, part.sizes, [str(len(row)) for row in rows]) if isinstance(part, Lists) else document


def shifted(text: str, rng: random.Random) -> str:
    """The text with every letter moved by one number of places, round its class: `xyz` by 2 is `zab`."""
    places = rng.randint(1, 25)
    for letters in CLASSES:
        moved = places % len(letters)
        text = text.translate(str.maketrans(letters, letters[moved:] + letters[:moved]))
    return text
