"""Writes programs for compositions, as people would: in four styles and several spellings, with systematic mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tasks.problems.miniature.composition import Composition, all_compositions
from tasks.problems.miniature.operations import FILTER_OF, MAP_OF, REDUCTION_OF, SOURCE_OF, SOURCES

STYLES = ("loop", "comprehension", "steps", "functional")

_SOURCE_WEIGHTS = {"line": 6, "range": 3, "digits": 3, "words": 5, "letters": 3}


def write(composition: Composition, style: str, spelling: int = 0) -> str:
    """A correct program for `composition` in `style`; `spelling` chooses among the ways to write its operations."""
    source = SOURCE_OF[composition.source].code
    condition = _spelled(FILTER_OF[composition.filter].spellings, spelling) if composition.filter != "-" else None
    value = _spelled(MAP_OF[composition.map].spellings, spelling) if composition.map != "-" else "x"
    if style == "loop":
        lines = _loop(source, condition, value, composition.reduction)
    else:
        gather = {"comprehension": _comprehension, "steps": _steps, "functional": _functional}[style]
        lines = [*gather(source, condition, value), *REDUCTION_OF[composition.reduction].lines]
    return "\n".join(lines)


def solutions(composition: Composition) -> list[str]:
    """The distinct correct programs for `composition`, two spellings of each style where they differ."""
    programs = [write(composition, style, spelling) for spelling in (0, 1) for style in STYLES]
    return list(dict.fromkeys(programs))


def corpus(random: Random, mistake_rate: float) -> Iterator[tuple[str, str]]:
    """Endless (statement, program) pairs for pretraining; no composition kept for evaluation is among the statements.

    An operation that has one it is confused with is replaced by that one with probability `mistake_rate`.
    """
    allowed = [composition for composition in all_compositions() if not composition.for_evaluation]
    by_source = {source.name: [c for c in allowed if c.source == source.name] for source in SOURCES}
    names, weights = list(_SOURCE_WEIGHTS), list(_SOURCE_WEIGHTS.values())
    while True:
        composition = random.choice(by_source[random.choices(names, weights)[0]])
        mistakes = tuple(random.random() < mistake_rate for _ in range(3))
        written = composition.confused((mistakes[0], mistakes[1], mistakes[2]))
        yield composition.statement, write(written, random.choice(STYLES), random.randrange(2))


def _loop(source: str, condition: str | None, value: str, reduction: str) -> list[str]:
    fold = REDUCTION_OF[reduction].fold
    start, step, end = fold or ("a = []", "a.append({v})", "\n".join(REDUCTION_OF[reduction].lines))
    lines = [start, f"for x in {source}:"]
    indent = "    "
    if condition is not None:
        lines.append(f"{indent}if {condition}:")
        indent += "    "
    return [*lines, indent + step.format(v=value), end]


def _comprehension(source: str, condition: str | None, value: str) -> list[str]:
    return [f"a = [{value} for x in {source}{'' if condition is None else f' if {condition}'}]"]


def _steps(source: str, condition: str | None, value: str) -> list[str]:
    lines = [f"a = list({source})"]
    if condition is not None:
        lines.append(f"a = [x for x in a if {condition}]")
    if value != "x":
        lines.append(f"a = [{value} for x in a]")
    return lines


def _functional(source: str, condition: str | None, value: str) -> list[str]:
    lines = [f"a = {source}"]
    if condition is not None:
        lines.append(f"a = filter(lambda x: {condition}, a)")
    if value != "x":
        lines.append(f"a = map(lambda x: {value}, a)")
    return [*lines, "a = list(a)"]


def _spelled(spellings: tuple[str, ...], choice: int) -> str:
    return spellings[choice % len(spellings)]
