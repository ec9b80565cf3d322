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

from tasks.extras.audit import domains as at
from tasks.extras.audit.changes import Changes, with_role
from tasks.extras.audit.description import Description
from tasks.extras.audit.drawing import Drawing
from tasks.extras.audit.layout import Document, Layout, Line, lines_of
from tasks.extras.audit.statement import evaluate, read_statement
from tasks.problems.problem import Problem
from tasks.programs.identity import parse

LONGEST_INPUT = 20_000
"""Characters of the longest test that inputs are made from, and of the longest input made."""
EXAMPLES = 40
TRIES = 30
"""Inputs tried in vain, for each one wanted, before there are no more."""
CONSTANTS = 60
FOLDED = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
"""What an expression may hold whose value is a constant of the program: `2**31 - 1`."""


class InputMaker:
    """Makes inputs for one problem in stdin style."""

    def __init__(self, problem: Problem, programs: Sequence[str], seed: int) -> None:
        self._rng = random.Random(f"{seed} {problem.problem_id} {problem.suite_hash}")
        statement = read_statement(problem.statement)
        numbers, texts = constants_of(programs)
        self._texts = list(dict.fromkeys([*statement.literals, *texts]))[:CONSTANTS]
        self._numbers = list(dict.fromkeys(near for number in numbers for near in (number, number - 1, number + 1)))
        public = [lines_of(test.input) for test in problem.public_tests if len(test.input) < LONGEST_INPUT]
        hidden = sorted((test.input for test in problem.hidden_tests), key=len)
        self._examples = public + [lines_of(text) for text in hidden[:EXAMPLES] if len(text) < LONGEST_INPUT]
        self._known = Description(statement, public, self._examples)

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
        layout = self._known.layout
        while layout is None and self._examples:
            yield self._changed_tokens()
        if layout is None:
            return
        drawing = Drawing(self._known, self._numbers, self._texts, self._rng)
        everything = self._everything(layout, count)
        corners = itertools.islice(self._corners(layout, count), count // 2)  # a grid has more than there are inputs
        drawn = itertools.chain(corners, self._largest(layout, drawing), self._endless(drawing))
        for document in everything if everything is not None else drawn:
            if self._known.valid(document):
                yield layout.render(document)
            elif everything is None:
                yield ""  # counts as a try

    # all, corners, drawn, changed

    def _everything(self, layout: Layout, count: int) -> Iterator[Document] | None:
        """Every document, in a random order, where the layout is a few small roles; None where there are too many."""
        if not all(isinstance(part, Line) for part in layout.parts):
            return None
        spans: list[list[str]] = []
        for domain in self._known.domains:
            span = at.every_value(domain, 4 * count)
            if span is None or math.prod(map(len, [*spans, span])) > 4 * count:
                return None
            spans.append(span)
        all_of_them = [[[token] for token in tokens] for tokens in itertools.product(*spans)]
        self._rng.shuffle(all_of_them)
        return iter(all_of_them)

    def _corners(self, layout: Layout, count: int) -> Iterator[Document]:
        """Tests with one number or text of a line replaced by a special one, or all numbers of lines by bounds."""
        free = [role for role in layout.of_lines() if not layout.counts(role)]
        yield from self._extremes([role for role in free if self._known.domains[role].kind == "whole"])
        most = max(12, count // (2 * max(1, len(free))))
        for role in free:
            domain = self._known.domains[role]
            if domain.kind == "whole":
                for number in self._special(domain, most):
                    yield with_role(self._rng.choice(self._known.documents[:4]), role, [str(number)])
            elif domain.kind == "text":
                for text in self._texts:
                    if len(text.split()) == 1:
                        yield with_role(self._known.documents[0], role, [text])
                for document in self._known.documents[:4]:
                    yield from (with_role(document, role, [text]) for text in at.edits(document[role][0]))

    def _largest(self, layout: Layout, drawing: Drawing) -> Iterator[Document]:
        """Documents with all counts as large as they may be: at the bounds, in order from either of them, and drawn."""
        free = {role for role in layout.counted() if not layout.counts(role)}
        for way in ("low", "high", "up", "down", "drawn") if free else ():
            document = drawing.document(largest=True)
            for role in free:
                domain, length = self._known.domains[role], len(document[role])
                if domain.kind != "whole" or domain.permutation or way == "drawn":
                    continue
                low, high = self._known.bounds(role, document[:role])
                numbers = {"low": [low] * length, "high": [high] * length, "up": range(low, low + length)}
                chosen = numbers.get(way, range(high, high - length, -1))
                document[role] = [str(min(max(number, low), high)) for number in chosen]
            yield document

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
            document = self._known.documents[0]
            for role, upper in zip(roles, ends, strict=False):
                domain = self._known.domains[role]
                document = with_role(document, role, [str(domain.high if upper else domain.low)])
            yield document

    def _endless(self, drawing: Drawing) -> Iterator[Document]:
        changes = Changes(self._known, drawing, self._rng)
        while True:
            yield drawing.document()
            yield from changes.any_of()

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
