"""The verdict of each test as it is stored with a verdict: a letter per test, shown as a row of marks and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sandbox import Verdict

NOT_RUN = "not run"
MOST_MARKS = 60
"""Tests that get a mark each; of more, the words alone say which failed."""
_NAMES = {verdict.value[0]: verdict.value.replace("_", " ") for verdict in Verdict} | {".": NOT_RUN}
_SIGNS = {Verdict.accepted.value[0]: "✓", ".": "·"}


@dataclass(frozen=True, slots=True)
class Mark:
    """One test: its number from 1, a sign for it, and what came of it."""

    number: int
    sign: str
    name: str
    kind: str
    """Class of the style sheet: `pass`, `fail` or `open`."""


def with_outcomes(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `verdicts` with `marks` and `words` of its `outcomes`."""
    return {**verdict, "marks": marks(verdict["outcomes"]), "words": in_words(verdict["outcomes"])}


def marks(outcomes: str | None) -> list[Mark]:
    """A mark for each test; none where it is not recorded, and for very many tests."""
    if not outcomes or len(outcomes) > MOST_MARKS:
        return []
    return [_mark(number, letter) for number, letter in enumerate(outcomes, 1)]


def _mark(number: int, letter: str) -> Mark:
    kind = {"✓": "pass", "·": "open"}.get(_SIGNS.get(letter, ""), "fail")
    return Mark(number, _SIGNS.get(letter, letter.upper()), _NAMES.get(letter, letter), kind)


def in_words(outcomes: str | None) -> str:
    """`tests 1 to 4 accepted, 5 wrong answer, 6 to 9 not run`; empty where it is not recorded."""
    parts: list[str] = []
    number = 1
    for letter, run in groupby(outcomes or ""):
        last = number + len(list(run)) - 1
        span = str(number) if last == number else f"{number} to {last}"
        parts.append(f"{span} {_NAMES.get(letter, letter)}")
        number = last + 1
    return f"test{'s' if number > 2 else ''} {', '.join(parts)}" if parts else ""
