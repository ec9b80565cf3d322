"""The layout of inputs as a statement's format writes it down: `N M`, `A_1 ... A_N`, `X_1 Y_1` to `X_M Y_M`."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.extras.audit.layout import Block, Layout, Line, Lists, Part, Row, Table
from tasks.extras.audit.statement import indexed

MOST_IN_LINE = 200


def written_layout(lines: Sequence[str]) -> tuple[Layout | None, list[str]]:
    """The layout that a statement's format says, and the name of each role; (None, []) where it cannot be read."""
    parts: list[Part] = []
    names: list[str] = []
    below: set[str] = set()
    """Names whose further lines belong to the part before."""
    for place, line in enumerate(lines):
        found = indexed(line)
        first = found[0] if found else ("", "")
        if not found or (parts and first[0] in below):
            continue
        below, listed = set(), _listed(lines[place : place + 2])
        if listed:
            more, below = _lists(first[0], listed, lines, names, apart=len(found) == 1), {first[0], listed}
        elif "..." in line and first[1] == "1,1":
            more, below = _table(found, lines, names), {first[0]}
        elif "..." in line:
            more = _row(found, names)
        elif first[1] == "1":
            more, below = _block(found, lines, names), {first[0]}
        else:
            more = _line(found, names)
        if not more:
            return None, []
        parts += more
    return (Layout(tuple(parts), len(names)), names) if parts else (None, [])


def _next_roles(names: Sequence[str], count: int) -> tuple[int, ...]:
    return tuple(range(len(names), len(names) + count))


def _line(found: Sequence[tuple[str, str]], names: list[str]) -> list[Part]:
    """`N M` as a line; nothing for anything in a table. Adds the names."""
    if any("," in index for _, index in found):
        return []
    roles = _next_roles(names, len(found))
    names += [name for name, _ in found]
    return [Line(roles)]


def _table(found: Sequence[tuple[str, str]], lines: Sequence[str], names: list[str]) -> list[Part]:
    """`A_{1,1} ... A_{1,9}` to `A_{9,1} ... A_{9,9}` as lines, to `A_{H,W}` as a table. Adds the names."""
    name = found[0][0]
    rows, _, columns = _last_index(name, lines).partition(",")
    if rows in names and columns in names:
        names.append(name)
        return [Table(len(names) - 1, names.index(rows), names.index(columns))]
    if not (rows.isdecimal() and columns.isdecimal()) or int(rows) * int(columns) > MOST_IN_LINE:
        return []
    parts: list[Part] = []
    for _ in range(int(rows)):
        parts.append(Line(_next_roles(names, int(columns))))
        names += [name] * int(columns)
    return parts


def _listed(lines: Sequence[str]) -> str:
    """The name of what a list holds, where these lines begin with one (`L_1 a_{1,1} ... a_{1,L_1}`); else ''."""
    first = indexed(lines[0])
    tokens = indexed(lines[1]) if len(first) == 1 and len(lines) > 1 else first[1:]
    counted = bool(tokens) and first[0][1] == "1" and tokens[-1][1] == f"1,{first[0][0]}_1"
    return tokens[-1][0] if counted else ""


def _lists(sizes: str, listed: str, lines: Sequence[str], names: list[str], *, apart: bool) -> list[Part]:
    """Lists and the numbers of their tokens; nothing where no name says how many there are. Adds the names."""
    count = _last_index(sizes, lines)
    if count not in names:
        return []
    first, second = _next_roles(names, 2)
    names += [sizes, listed]
    return [Lists(first, second, names.index(count), apart)]


def _last_index(name: str, lines: Sequence[str]) -> str:
    return [index for line in lines for one, index in indexed(line) if one == name][-1]


def _row(found: Sequence[tuple[str, str]], names: list[str]) -> list[Part]:
    """`A_1 A_2 ... A_N` as a row, `S_1 ... S_8` as a line; nothing for anything else. Adds the names."""
    (name, last), start = found[-1], len(names)
    if {one for one, _ in found} != {name} or "," in last:
        return []
    if last.isdecimal():
        roles = _next_roles(names, min(int(last), MOST_IN_LINE))
        names += [name] * len(roles)
        return [Line(roles)]
    count = _count(last, names)
    names.append(name)
    return [] if count is None else [Row(start, *count)]


def _block(found: Sequence[tuple[str, str]], lines: Sequence[str], names: list[str]) -> list[Part]:
    """The lines from `X_1 Y_1` to `X_M Y_M`; nothing where they end otherwise. Adds the names."""
    last = _last_index(found[0][0], lines)
    if any(index != "1" for _, index in found) or last == "1":
        return []
    roles, count = _next_roles(names, len(found)), _count(last, names)
    if last.isdecimal() or count is None:
        return []
    names += [name for name, _ in found]
    return [Block(roles, *count)]


def _count(formula: str, names: Sequence[str]) -> tuple[int, int] | None:
    """(role, offset) of `N` or `N-1`; None for other formulas."""
    name, _, less = formula.partition("-")
    return (names.index(name), -len(less)) if name in names and less in ("", "1") else None
