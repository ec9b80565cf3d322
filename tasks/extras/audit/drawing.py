"""Tokens and whole inputs that are drawn within what is known of a problem's inputs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tasks.extras.audit import domains as at
from tasks.extras.audit.description import Description
from tasks.extras.audit.layout import Document, Line, Lists, Part, Table, said

SMALL, LARGE, HUGE = 8, 60, 3000
"""Tokens of a row: mostly up to the first, sometimes up to the second."""


class Drawing:
    """Draws for one problem; `numbers` and `texts` are those that its programs and statement treat as special."""

    def __init__(self, known: Description, numbers: Sequence[int], texts: Sequence[str], rng: random.Random) -> None:
        assert known.layout is not None
        self._known, self._layout = known, known.layout
        self._numbers, self._texts, self._rng = numbers, texts, rng

    def document(self, *, largest: bool = False) -> Document:
        """An input of values drawn one after the other, within what those before leave; `largest`: counts too."""
        document: Document = [[] for _ in range(self._layout.roles)]
        most = HUGE if largest else self._rng.choice((2, 3, 3, SMALL, SMALL, SMALL, SMALL, LARGE, LARGE, HUGE))
        for part in self._layout.parts:
            free = self._rng.randint(0, most) if not isinstance(part, Line) and not part.counts() else 0
            for role in part.roles:
                length = self._layout.length(role, document)
                length = free if length is None else length
                if largest and self._layout.counts(role):
                    document[role] = [self._largest_count(role, document)] * length
                else:
                    document[role] = self.tokens(role, length, document, most)
        return document

    def _largest_count(self, role: int, document: Document) -> str:
        """The largest number that a count may be and whose document is no longer than `HUGE` tokens a role."""
        low, high = self._known.bounds(role, document)
        return str(max(low, min(high, self._room(role, document, HUGE))))

    def _room(self, role: int, document: Document, most: int) -> int:
        """How large a count may be, at most `most`, for no more than `HUGE` tokens of what it counts with others."""
        parts = [part for part in self._layout.parts if role in part.counts()]
        return min([most, *(max(1, HUGE // max(1, _times(part, role, document))) for part in parts)])

    def tokens(self, role: int, length: int, document: Document, most: int) -> list[str]:
        """Tokens of one role: alike, from few values, sorted or anyhow."""
        domain, rng = self._known.domains[role], self._rng
        if domain.permutation:
            return [str(number) for number in rng.sample(range(1, length + 1), length)]
        low, high = self._known.bounds(role, document)
        if self._layout.counts(role):
            low, high = max(low, 0), max(low, min(high, self._room(role, document, most)))
        sizes = self._known.length_bounds(role, document) if domain.kind == "text" else (0, 0)
        texts = [self._token(role, low, high, sizes) for _ in range(length)]
        if domain.kind == "text" and rng.random() < 0.3:
            others = [token for other, tokens in enumerate(document) if other != role for token in tokens]
            texts = [at.text_from(others, domain, rng) or text for text in texts]
        way = rng.random()
        if length > 1 and way < 0.15 and not domain.distinct:
            texts = [texts[0]] * length
        elif length > 1 and way < 0.22 and domain.kind == "whole" and low + length - 1 <= high:
            texts = [str(low + place) for place in range(length)]
        elif length > 1 and way < 0.4 and not domain.distinct:
            texts = rng.choices(texts[: rng.randint(1, 3)], k=length)
        if length > 1 and domain.kind == "whole" and (domain.ascending or way > 0.85):
            texts.sort(key=int, reverse=not domain.ascending and way > 0.93)
        return texts

    def token(self, role: int, document: Document) -> str:
        """One token of a role, within what the document leaves."""
        sizes = self._known.length_bounds(role, document) if self._known.domains[role].kind == "text" else (0, 0)
        return self._token(role, *self._known.bounds(role, document), sizes)

    def _token(self, role: int, low: int, high: int, sizes: tuple[int, int]) -> str:
        domain, rng = self._known.domains[role], self._rng
        if domain.kind == "whole":
            return str(at.some_whole(domain, low, high, self._numbers, rng))
        if domain.kind == "real":
            return rng.choice((*domain.observed, f"{rng.uniform(domain.low, domain.high):.{rng.randint(0, 3)}f}"))
        least, most = sizes
        return at.some_text(domain, least if least == most else None, self._texts, rng)

    def fitted(self, document: Document) -> Document:
        """The document with as many tokens of every role as its counts say: the last ones go, new ones are drawn."""
        found = [list(tokens) for tokens in document]
        for role in self._layout.counted():
            length = self._layout.length(role, found) or 0
            found[role] = found[role][:length]
            if len(found[role]) < length:
                found[role] += self.tokens(role, length - len(found[role]), found, SMALL)
        return found


def _times(part: Part, role: int, document: Document) -> int:
    """By what else the numbers of this count are multiplied where the part's tokens are counted."""
    times = 1
    if isinstance(part, Table):
        times = said(document, part.rows if role == part.columns else part.columns)
    elif isinstance(part, Lists) and role == part.sizes:
        times = said(document, part.count)
    return times if times >= 0 else 1
