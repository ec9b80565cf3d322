"""Programs as coloured lines, alone and two side by side. Escaped character by character (see `visible`)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from tasks.explorer.visible import cut, visible

_CLASSES = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (String, "string"),
    (Number, "figure"),
    (Name.Builtin, "builtin"),
    (Name.Function, "defined"),
)
MOST_HIGHLIGHTED = 40_000
"""Characters of a program that are coloured; a longer one is shown plain."""


@dataclass(frozen=True, slots=True)
class DiffRow:
    """A line of each side; None where a side has none. `same` when both are equal."""

    left_number: int | None
    left: Markup
    right_number: int | None
    right: Markup
    same: bool


@dataclass(frozen=True, slots=True)
class Source:
    """A program to show: its lines, and how many characters are not shown."""

    lines: Sequence[Markup]
    left_out: int


def source(text: str, *, whole: bool = False) -> Source:
    """The program's lines with their syntax in classes of the style sheet."""
    shown, left_out = cut(text, whole=whole)
    return Source(highlighted(shown), left_out)


def highlighted(text: str) -> list[Markup]:
    """Lines of `text`, each complete on its own."""
    if len(text) > MOST_HIGHLIGHTED:
        return [visible(line) for line in text.split("\n")]
    lines: list[list[Markup]] = [[]]
    for _, kind, value in PythonLexer().get_tokens_unprocessed(text):
        name = next((name for parent, name in _CLASSES if kind in parent), "")
        if kind in String.Doc:
            name = "comment"
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if piece:
                lines[-1].append(_coloured(piece, name))
    return [Markup("").join(line) for line in lines]


def _coloured(piece: str, name: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(name, visible(piece)) if name else visible(piece)


def side_by_side(left: str, right: str, *, whole: bool = False) -> list[DiffRow]:
    """Both programs line by line, equal lines beside each other."""
    left, right = cut(left, whole=whole)[0], cut(right, whole=whole)[0]
    texts = left.split("\n"), right.split("\n")
    shown = highlighted(left), highlighted(right)
    rows: list[DiffRow] = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        for offset in range(max(b - a, d - c)):
            i, j = a + offset, c + offset
            rows.append(
                DiffRow(
                    i + 1 if i < b else None,
                    shown[0][i] if i < b else Markup(""),
                    j + 1 if j < d else None,
                    shown[1][j] if j < d else Markup(""),
                    tag == "equal",
                )
            )
    return rows
