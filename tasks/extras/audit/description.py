"""What is known of a problem's inputs: their layout, what every role holds, and what the statement says of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tasks.extras.audit import domains as at
from tasks.extras.audit.inferred_layout import layout_of
from tasks.extras.audit.layout import Document, Lines
from tasks.extras.audit.statement import Statement
from tasks.extras.audit.written_format import written_layout


class Description:
    """What an input of a problem must be like; where no `layout` is found (None), nothing else is known."""

    def __init__(self, statement: Statement, public: Sequence[Lines], examples: Sequence[Lines]) -> None:
        written, names = written_layout(statement.format)
        self._statement = statement
        self.layout, self.documents = layout_of(public, examples, written, len(examples))
        """The tests of the layout, the public ones first."""
        self._public = len(public)
        if self.layout is not None:
            unnamed = [f"{at.UNNAMED}{role}" for role in range(self.layout.roles)]
            self._names = names if self.layout is written else unnamed
            self._describe(len(public))

    def _describe(self, public: int) -> None:
        """Find out what every role holds, by the comparisons that the public tests keep."""
        classes = self._statement.classes
        guess = at.domains(self.documents, self._names, (), classes, public)
        values = [at.values_by_name(document, self._names, guess) for document in self.documents]
        stated = at.trusted(self._statement.comparisons, values, public, self._names)
        if not stated:
            stated = self._statement.comparisons  # of names that nobody can tell: numbers alone are of use
        self.domains = at.domains(self.documents, self._names, stated, classes, public)
        learned = at.learned(self.documents, self._names, guess)
        lengths = at.learned_lengths(self.documents, self._names, guess)
        self._comparisons = (*stated, *learned, *lengths)
        self._different = at.trusted(self._statement.different, values, public, self._names)
        self.lengths = at.lengths(self._names, stated)
        """(role of a number, role of the text whose length it is)."""

    def some_test(self, rng: random.Random) -> Document:
        """A test to start from: each other time a public one, which show what matters."""
        public = self.documents[: self._public]
        return rng.choice(public if public and rng.random() < 0.5 else self.documents)

    def valid(self, document: Document) -> bool:
        """Whether a document is within the domains and keeps every comparison that the statement makes."""
        for tokens, domain in zip(document, self.domains, strict=True):
            if not all(at.within(token, domain) for token in tokens) or not at.keeps_order(tokens, domain):
                return False
        if not self._counts_hold(document):
            return False
        values = self.values(document)
        if any(_alike([values.get(name) for name in names]) for names in self._statement.not_alike):
            return False
        return all(comparison.holds(values) for comparison in (*self._comparisons, *self._different))

    def _counts_hold(self, document: Document) -> bool:
        """Whether every number that says how many tokens another role has says so."""
        assert self.layout is not None
        layout = self.layout
        return all(len(document[role]) == layout.length(role, document) for role in layout.counted())

    def values(self, document: Document) -> dict[str, list[int]]:
        """The numbers of a document, or of its first roles, by name, and the lengths of its texts."""
        return at.values_by_name(document, self._names, self.domains)

    def bounds(self, role: int, document: Document) -> tuple[int, int]:
        """Of a role's numbers, as the other roles of the document narrow them."""
        return self._bounds(self._names[role], role, document)

    def length_bounds(self, role: int, document: Document) -> tuple[int, int]:
        """Of the lengths of a role's texts."""
        return self._bounds(f"|{self._names[role]}|", role, document)

    def _bounds(self, name: str, role: int, document: Document) -> tuple[int, int]:
        known = {name: found for name, found in self.values(document).items() if found}
        return at.bounds_given(name, self.domains[role], self._comparisons, known)


def _alike(columns: Sequence[Sequence[int] | None]) -> bool:
    """Whether all the numbers are known, and the same."""
    return all(columns) and len({number for column in columns for number in column or ()}) == 1
