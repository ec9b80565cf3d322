"""New inputs of a problem in the shape of its tests: mutated ones, drawn ones, and all where there are few.

Deterministic: the same problem, programs and seed give the same inputs. An input that breaks what the statement says,
as far as it is understood (statement.py), is not made.
"""

from __future__ import annotations

import ast
import itertools
import math
import random
from collections.abc import Iterator, Sequence

from tasks.audit import domains as at
from tasks.audit.exchanges import exchanged, shifted
from tasks.audit.layout import Block, Document, Layout, Line, Row, layout_of, lines_of
from tasks.audit.statement import evaluate, read_statement
from tasks.audit.written_format import written_layout
from tasks.problems.identity import parse
from tasks.problems.problem import Problem

LONGEST_INPUT = 20_000
"""Characters of the longest test that inputs are made from, and of the longest input made."""
EXAMPLES = 40
SMALL, LARGE, HUGE = 8, 60, 3000
"""Tokens of a row: mostly up to the first, sometimes up to the second."""
TRIES = 30
"""Inputs tried in vain, for each one wanted, before there are no more."""
CONSTANTS = 60
FOLDED = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
"""What an expression may hold whose value is a constant of the program: `2**31 - 1`."""


class InputMaker:
    """Makes inputs for one problem in stdin style."""

    def __init__(self, problem: Problem, programs: Sequence[str], seed: int) -> None:
        self._rng = random.Random(f"{seed} {problem.problem_id} {problem.suite_hash}")
        self._statement = read_statement(problem.statement)
        numbers, texts = constants_of(programs)
        self._texts = list(dict.fromkeys([*self._statement.literals, *texts]))[:CONSTANTS]
        self._numbers = list(dict.fromkeys(near for number in numbers for near in (number, number - 1, number + 1)))
        public = [lines_of(test.input) for test in problem.public_tests if len(test.input) < LONGEST_INPUT]
        hidden = sorted((test.input for test in problem.hidden_tests), key=len)
        self._examples = public + [lines_of(text) for text in hidden[:EXAMPLES] if len(text) < LONGEST_INPUT]
        written, names = written_layout(self._statement.format)
        self._layout, self._documents = layout_of(public, self._examples, written, len(self._examples))
        if self._layout is not None:
            unnamed = [f"{at.UNNAMED}{role}" for role in range(self._layout.roles)]
            self._names = names if self._layout is written else unnamed
            self._describe(len(public))

    def _describe(self, public: int) -> None:
        """Find out what every role holds, by the comparisons that the public tests keep."""
        classes = self._statement.classes
        guess = at.domains(self._documents, self._names, (), classes, public)
        values = [at.values_by_name(document, self._names, guess) for document in self._documents]
        stated = at.trusted(self._statement.comparisons, values, public, self._names)
        if not stated:
            stated = self._statement.comparisons  # of names that nobody can tell: numbers alone are of use
        self._domains = at.domains(self._documents, self._names, stated, classes, public)
        learned = at.learned(self._documents, self._names, guess)
        lengths = at.learned_lengths(self._documents, self._names, guess)
        self._comparisons = (*stated, *learned, *lengths)
        self._different = at.trusted(self._statement.different, values, public, self._names)
        self._lengths = at.lengths(self._names, stated)

    def make(self, count: int, avoid: Sequence[str]) -> Iterator[str]:
        """Up to `count` different inputs, none of `avoid`; fewer where there are no more."""
        seen = {" ".join(text.split()) for text in avoid}
        left = TRIES * count
        made = 0
        for text in self._candidates(count):
            left -= 1
            key = " ".join(text.split())
            if text and key not in seen and len(text) <= LONGEST_INPUT:
                seen.add(key)
                made += 1
                yield text
            if made == count or left == 0:
                return

    def _candidates(self, count: int) -> Iterator[str]:
        if not self._examples:
            return
        layout = self._layout
        while layout is None:
            yield self._changed_tokens()
        everything = self._everything(count)
        corners = itertools.islice(self._corners(count), count // 2)  # a grid has more than there are inputs
        drawn = itertools.chain(corners, self._largest(), self._endless(layout))
        documents = everything if everything is not None else drawn
        for document in documents:
            if self.valid(document):
                yield layout.render(document)
            elif everything is None:
                yield ""  # counts as a try

    def valid(self, document: Document) -> bool:
        """Whether a document is within the domains and keeps every comparison that the statement makes."""
        for tokens, domain in zip(document, self._domains, strict=True):
            if not all(at.within(token, domain) for token in tokens) or not at.keeps_order(tokens, domain):
                return False
        if not self._counts_hold(document):
            return False
        values = self._values(document)
        if any(_alike([values.get(name) for name in names]) for names in self._statement.not_alike):
            return False
        return all(comparison.holds(values) for comparison in (*self._comparisons, *self._different))

    def _counts_hold(self, document: Document) -> bool:
        """Whether every number that says how many tokens another role has says so."""
        assert self._layout is not None
        for role, tokens in enumerate(document):
            for other, offset in self._layout.counted(role):
                if len(document[other]) != max(0, int(tokens[0]) + offset):
                    return False
        return True

    # all, corners, drawn, changed

    def _everything(self, count: int) -> Iterator[Document] | None:
        """Every document, in a random order, where the layout is a few small roles; None where there are too many."""
        assert self._layout is not None
        if not all(isinstance(part, Line) for part in self._layout.parts):
            return None
        spans: list[list[str]] = []
        for domain in self._domains:
            span = at.every_value(domain, 4 * count)
            if span is None or math.prod(map(len, [*spans, span])) > 4 * count:
                return None
            spans.append(span)
        all_of_them = [[[token] for token in tokens] for tokens in itertools.product(*spans)]
        self._rng.shuffle(all_of_them)
        return iter(all_of_them)

    def _corners(self, count: int) -> Iterator[Document]:
        """Tests with one number or text of a line replaced by a special one, or all numbers of lines by bounds."""
        assert self._layout is not None
        lines = [role for part in self._layout.parts if isinstance(part, Line) for role in part.roles]
        free = [role for role in lines if not self._layout.counted(role)]
        yield from self._extremes([role for role in free if self._domains[role].kind == "whole"])
        most = max(12, count // (2 * max(1, len(free))))
        for role in free:
            domain = self._domains[role]
            if domain.kind == "whole":
                for number in self._special(domain, most):
                    yield self._with(self._rng.choice(self._documents[:4]), role, [str(number)])
            elif domain.kind == "text":
                for text in self._texts:
                    if len(text.split()) == 1:
                        yield self._with(self._documents[0], role, [text])

    def _largest(self) -> Iterator[Document]:
        """Documents with all counts as large as they may be: at the bounds, in order from either of them, and drawn."""
        assert self._layout is not None
        counts = [role for role in range(self._layout.roles) if self._layout.counted(role)]
        for way in ("low", "high", "up", "down", "drawn") if counts else ():
            document = self._drawn(largest=True)
            for role in {other for count in counts for other, _ in self._layout.counted(count)}:
                domain, length = self._domains[role], len(document[role])
                if domain.kind != "whole" or domain.permutation or way == "drawn":
                    continue
                known = {name: found for name, found in self._values(document[:role]).items() if found}
                low, high = at.bounds_given(self._names[role], domain, self._comparisons, known)
                numbers = {"low": [low] * length, "high": [high] * length, "up": range(low, low + length)}
                chosen = numbers.get(way, range(high, high - length, -1))
                document[role] = [str(min(max(number, low), high)) for number in chosen]
            yield document

    def _values(self, document: Document) -> dict[str, list[int]]:
        return at.values_by_name(document, self._names, self._domains)

    def _special(self, domain: at.Domain, most: int) -> list[int]:
        """Bounds and small numbers, then constants of the programs, then some of the values at which programs part."""
        first = at.whole_values(domain, ())[:10]
        constants = [number for number in self._numbers if domain.low <= number <= domain.high]
        others = at.whole_values(domain, ())[10:]
        rest = self._rng.sample(others, min(len(others), most))
        return list(dict.fromkeys([*first, *constants[:most], *rest]))

    def _extremes(self, roles: Sequence[int]) -> Iterator[Document]:
        """A test with each of these numbers at its lower or upper bound, in all ways where there are few."""
        for ends in itertools.islice(itertools.product((False, True), repeat=min(len(roles), 6)), 32):
            document = self._documents[0]
            for role, upper in zip(roles, ends, strict=False):
                domain = self._domains[role]
                document = self._with(document, role, [str(domain.high if upper else domain.low)])
            yield document

    def _endless(self, layout: Layout) -> Iterator[Document]:
        while True:
            yield self._drawn()
            yield self._changed(self._rng.choice(self._documents))
            yield self._changed(self._changed(self._rng.choice(self._documents)))
            yield self._of_few_values()
            yield self._echo()
            yield self._tied()
            yield exchanged(layout, self._rng.choice(self._documents), self._rng)

    def _echo(self) -> Document:
        """A test in which one text of a line is made from another, and numbers that are their lengths are so still."""
        assert self._layout is not None
        rng, document = self._rng, self._rng.choice(self._documents)
        lines = [role for part in self._layout.parts if isinstance(part, Line) for role in part.roles]
        texts = [role for role in lines if self._domains[role].kind == "text"]
        if len(texts) < 2:
            return self._changed(document)
        first, second = rng.sample(texts, 2)
        a, b = document[first][0], document[second][0]
        made = (a, a + b, b + a, a + b + a, a + a, a[::-1], a[:-1], a[1:], *[shifted(a, rng)] * 4)
        document = self._with(document, second, [rng.choice(made)])
        for number, text in self._lengths:
            document = self._with(document, number, [str(len(document[text][0]))])
        return document

    def _tied(self) -> Document:
        """A test in which one number of a line is another number of the input, or next to it."""
        assert self._layout is not None
        rng, document = self._rng, self._rng.choice(self._documents)
        lines = [role for part in self._layout.parts if isinstance(part, Line) for role in part.roles]
        whole = [role for role in lines if self._domains[role].kind == "whole"]
        free = [role for role in whole if not self._layout.counted(role)]
        if not free or len(whole) < 2:
            return self._changed(document)
        first = rng.choice(free)
        second = rng.choice([role for role in whole if role != first])
        return self._with(document, first, [str(int(document[second][0]) + rng.choice((-1, 0, 0, 1)))])

    def _of_few_values(self) -> Document:
        """A test whose lines hold two or three different numbers, bounds among them."""
        assert self._layout is not None
        rng, document = self._rng, self._rng.choice(self._documents)
        for part in self._layout.parts:
            roles = [role for role in part.roles if not self._layout.counted(role)] if isinstance(part, Line) else []
            whole = [role for role in roles if self._domains[role].kind == "whole"]
            if len(whole) < 2:
                continue
            low, high = self._domains[whole[0]].low, self._domains[whole[0]].high
            pool = [rng.choice((low, high, rng.randint(low, high))) for _ in range(rng.choice((1, 2, 2, 3)))]
            for role in whole:
                document = self._with(document, role, [str(rng.choice(pool))])
        return document

    def _drawn(self, *, largest: bool = False) -> Document:
        """A document of values drawn one after the other, within what those before leave; `largest`: counts too."""
        assert self._layout is not None
        document: Document = [[] for _ in range(self._layout.roles)]
        most = HUGE if largest else self._rng.choice((2, 3, 3, SMALL, SMALL, SMALL, SMALL, LARGE, LARGE, HUGE))
        for part in self._layout.parts:
            roles = (part.role,) if isinstance(part, Row) else part.roles
            length = 1
            if not isinstance(part, Line):
                length = self._rng.randint(0, most) if part.count is None else self._length(document, part)
            for role in roles:
                counts = largest and bool(self._layout.counted(role))
                document[role] = [self._most(role, document)] if counts else self._tokens(role, length, document, most)
        return document

    def _most(self, role: int, document: Document) -> str:
        """The largest number that a count may be and whose document is no longer than `HUGE` tokens a role."""
        known = {name: found for name, found in self._values(document).items() if found}
        low, high = at.bounds_given(self._names[role], self._domains[role], self._comparisons, known)
        return str(max(low, min(high, HUGE)))

    def _length(self, document: Document, part: Row | Block) -> int:
        text = document[part.count or 0][0] if part.count is not None else "0"
        return max(0, int(text) + part.offset) if text.lstrip("-").isdecimal() else 0

    def _tokens(self, role: int, length: int, document: Document, most: int) -> list[str]:
        """Tokens of one role: alike, from few values, sorted or anyhow."""
        domain, rng = self._domains[role], self._rng
        if domain.permutation:
            return [str(number) for number in rng.sample(range(1, length + 1), length)]
        known = self._values(document)
        known = {name: values for name, values in known.items() if values}
        low, high = at.bounds_given(self._names[role], domain, self._comparisons, known)
        assert self._layout is not None
        if self._layout.counted(role):
            low, high = max(low, 0), max(low, min(high, most))
        texts = [self._token(role, low, high, known) for _ in range(length)]
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

    def _token(self, role: int, low: int, high: int, known: at.Bounds) -> str:
        domain, rng = self._domains[role], self._rng
        if domain.kind == "whole":
            return str(at.some_whole(domain, low, high, self._numbers, rng))
        if domain.kind == "real":
            return rng.choice((*domain.observed, f"{rng.uniform(domain.low, domain.high):.{rng.randint(0, 3)}f}"))
        least, most = at.bounds_given(f"|{self._names[role]}|", domain, self._comparisons, known)
        return at.some_text(domain, least if least == most else None, self._texts, rng)

    def _changed(self, document: Document) -> Document:
        """The document with one change: a token, an order, a number of tokens, two roles exchanged."""
        assert self._layout is not None
        rng = self._rng
        role = rng.randrange(self._layout.roles)
        tokens = list(document[role])
        if self._layout.counted(role):
            return self._resized(document, role)
        way = rng.random()
        if len(tokens) > 1 and way < 0.35:
            rng.shuffle(tokens)
            if way < 0.15:
                tokens.sort(key=lambda token: (len(token), token), reverse=way < 0.05)
            return self._with(document, role, tokens)
        other = rng.randrange(self._layout.roles)
        if way < 0.45 and len(document[other]) == len(tokens) and self._domains[other].kind == self._domains[role].kind:
            return self._with(self._with(document, role, document[other]), other, tokens)
        if way < 0.55:
            donor = rng.choice(self._documents)[role]
            return self._with(document, role, donor) if len(donor) == len(tokens) else document
        if not tokens:
            return document
        known = self._values(document)
        low, high = at.bounds_given(self._names[role], self._domains[role], self._comparisons, known)
        place = rng.randrange(len(tokens))
        tokens[place] = self._token(role, low, high, known)
        if self._domains[role].kind == "text" and rng.random() < 0.3:
            others = [token for column in document for token in column]
            tokens[place] = at.text_from(others, self._domains[role], rng) or tokens[place]
        if way > 0.9 and len(tokens) > 1:
            tokens[place] = tokens[place - 1]
        return self._with(document, role, tokens)

    def _resized(self, document: Document, role: int) -> Document:
        """The document with another number in this role, and as many tokens as it then says where it counts."""
        assert self._layout is not None
        domain, rng = self._domains[role], self._rng
        low = max(0, domain.low)
        number = rng.choice(
            (low, low + 1, int(document[role][0]) + 1, rng.randint(low, max(low, min(domain.high, SMALL))))
        )
        changed = self._with(document, role, [str(number)])
        for other, offset in self._layout.counted(role):
            length = max(0, number + offset)
            tokens = changed[other][:length]
            tokens += self._tokens(other, length - len(tokens), changed, SMALL) if len(tokens) < length else []
            changed = self._with(changed, other, tokens)
        return changed

    def _with(self, document: Document, role: int, tokens: list[str]) -> Document:
        return [tokens if place == role else column for place, column in enumerate(document)]

    def _changed_tokens(self) -> str:
        """A test of no known layout with one number changed a little, within what all tests have, or two exchanged."""
        rng = self._rng
        lines = [list(line) for line in rng.choice(self._examples)]
        places = [(row, column) for row, line in enumerate(lines) for column in range(len(line)) if row > 0]
        if not places:
            places = [(0, column) for column in range(len(lines[0]))] if lines else []
        if not places:
            return ""
        row, column = rng.choice(places)
        token = lines[row][column]
        other = rng.choice(lines[row])
        if at.WHOLE.fullmatch(token) and rng.random() < 0.5:
            pool = [int(one) for line in lines for one in line if at.WHOLE.fullmatch(one)]
            near = min(max(int(token) + rng.choice((-1, 1)), min(pool)), max(pool))
            lines[row][column] = str(near)
        else:
            lines[row][column], lines[row][lines[row].index(other)] = other, token
        return "\n".join(" ".join(line) for line in lines) + "\n"


def _alike(columns: Sequence[Sequence[int] | None]) -> bool:
    """Whether all the numbers are known, and the same."""
    return all(columns) and len({number for column in columns for number in column or ()}) == 1


def constants_of(programs: Sequence[str]) -> tuple[list[int], list[str]]:
    """(numbers, texts) that stand in the programs: what they treat as special."""
    numbers: dict[int, None] = {}
    texts: dict[str, None] = {}
    for program in programs:
        tree = parse(program)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 2**64:
                numbers[node.value] = None
                numbers[-node.value] = None
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) <= 40:
                texts[node.value] = None
            elif isinstance(node, ast.BinOp) and all(isinstance(part, FOLDED) for part in ast.walk(node)):
                for number in evaluate(ast.unparse(node), {}) or ():
                    numbers |= dict.fromkeys((number, -number)) if abs(number) < 2**64 else {}
    return list(numbers)[:CONSTANTS], list(texts)[:CONSTANTS]
