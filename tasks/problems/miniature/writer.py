"""Writes programs for compositions, as people would: in four styles and several spellings, with systematic mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tasks.problems.miniature import small, wide
from tasks.problems.miniature.composition import FILTER_OF, REDUCTION_OF, SOURCE_OF, STEP_OF, Composition

STYLES = ("loop", "comprehension", "steps", "functional")

Step = tuple[bool, str]
"""Whether a step is a filter, and its text."""


def write(composition: Composition, style: str, spelling: int = 0) -> str:
    """A correct program for `composition` in `style`; `spelling` chooses among the ways to write its operations."""
    source = SOURCE_OF[composition.source].code
    steps = [(name in FILTER_OF, _spelled(STEP_OF[name].spellings, spelling)) for name in composition.present]
    if style == "loop":
        lines = _loop(source, steps, composition.reduction)
    else:
        gather = {"comprehension": _comprehension, "steps": _steps, "functional": _functional}[style]
        lines = [*gather(source, steps), *REDUCTION_OF[composition.reduction].lines]
    return "\n".join(lines)


def solutions(composition: Composition) -> list[str]:
    """The distinct correct programs for `composition`, two spellings of each style where they differ."""
    programs = [write(composition, style, spelling) for spelling in (0, 1) for style in STYLES]
    return list(dict.fromkeys(programs))


def corpus(random: Random, mistake_rate: float, depth: int | None = None) -> Iterator[tuple[str, str]]:
    """Endless (statement, program) pairs for pretraining; no composition kept for evaluation is among the statements.

    An operation that has one it is confused with is replaced by that one with probability `mistake_rate`. `depth`:
    the wide vocabulary's compositions of up to so many steps; None: the small vocabulary.
    """
    for composition in small.shown(random) if depth is None else wide.shown(random, depth):
        mistakes = [random.random() < mistake_rate for _ in (*composition.steps, composition.reduction)]
        written = composition.confused(mistakes)
        yield composition.statement, write(written, random.choice(STYLES), random.randrange(2))


def _loop(source: str, steps: list[Step], reduction: str) -> list[str]:
    """Every step in the loop's body; the last map stands where its value is used."""
    fold = REDUCTION_OF[reduction].fold
    start, step, end = fold or ("a = []", "a.append({v})", "\n".join(REDUCTION_OF[reduction].lines))
    lines = [start, f"for x in {source}:"]
    indent, value = "    ", "x"
    for number, (filters, text) in enumerate(steps, 1):
        if filters:
            lines.append(f"{indent}if {text}:")
            indent += "    "
        elif number == len(steps):
            value = text
        else:
            lines.append(f"{indent}x = {text}")
    return [*lines, indent + step.format(v=value), end]


def _comprehension(source: str, steps: list[Step]) -> list[str]:
    """One comprehension within another for every map that something follows."""
    gathered, conditions = source, ""
    for number, (filters, text) in enumerate(steps, 1):
        if filters:
            conditions += f" if {text}"
        elif number < len(steps):
            gathered, conditions = f"[{text} for x in {gathered}{conditions}]", ""
    value = "x" if not steps or steps[-1][0] else steps[-1][1]
    return [f"a = [{value} for x in {gathered}{conditions}]"]


def _steps(source: str, steps: list[Step]) -> list[str]:
    written = [f"a = [x for x in a if {text}]" if filters else f"a = [{text} for x in a]" for filters, text in steps]
    return [f"a = list({source})", *written]


def _functional(source: str, steps: list[Step]) -> list[str]:
    written = [f"a = {'filter' if filters else 'map'}(lambda x: {text}, a)" for filters, text in steps]
    return [f"a = {source}", *written, "a = list(a)"]


def _spelled(spellings: tuple[str, ...], choice: int) -> str:
    return spellings[choice % len(spellings)]
