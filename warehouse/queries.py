"""SQL that is longer than a line: it stands in a `.sql` file beside the module that asks, and is asked for by name.

`tasks/q0/stage.py` asks `query(__name__, "counts")` and finds it in `tasks/q0/stage.sql`:

    -- name: counts
    -- How many samples of each problem were drawn so far, and how many of them were correct?
    SELECT problem_id, sum(n) AS n, sum(k) AS k FROM reference_counts WHERE reference = $reference GROUP BY problem_id;
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from warehouse.errors import UnknownQuery

_HEADER = re.compile(r"^-- name: *(\w+) *\n((?:--.*\n)+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a `.sql` file: the comment that says its question, and its text without comment and semicolon."""

    question: str
    text: str


def query(module: str, name: str, /, **identifiers: str) -> str:
    """The text of the query `name` from the `.sql` file of `module` (a dotted name, usually `__name__`).

    Values are given to the query as parameters when it runs. What cannot be a parameter, such as the name of a schema,
    stands in it as `{schema}` and is filled in by `schema=...`. Raises UnknownQuery.
    """
    known = queries_of(module)
    if name not in known:
        raise UnknownQuery(f"{_file_name(module)} has no query {name!r}; it has {', '.join(known) or 'none'}")
    text = known[name].text
    for identifier, value in identifiers.items():
        marked = f"{{{identifier}}}"
        if marked not in text:
            raise UnknownQuery(
                f"the query {name!r} of {_file_name(module)} has no {marked} to fill in", code="NothingToFillIn"
            )
        text = text.replace(marked, value)
    return text


@cache
def queries_of(module: str) -> Mapping[str, Query]:
    """Every query of the module's `.sql` file by its name, in the order of the file; raises UnknownQuery."""
    package, _, stem = module.rpartition(".")
    path = files(package) / f"{stem}.sql"
    if not path.is_file():
        raise UnknownQuery(f"there is no file {_file_name(module)}", code="NoQueryFile")
    pieces = _HEADER.split(path.read_text(encoding="utf-8"))
    if pieces[0].strip():
        raise UnknownQuery(
            f"{_file_name(module)} begins with text that belongs to no query: write `-- name: ...` first",
            code="TextWithoutQuery",
        )
    found: dict[str, Query] = {}
    for name, comment, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        if name in found:
            raise UnknownQuery(f"{_file_name(module)} has two queries called {name!r}", code="RepeatedQuery")
        question = " ".join(line.removeprefix("--").strip() for line in comment.splitlines())
        found[name] = Query(question, text.strip().removesuffix(";"))
    return MappingProxyType(found)


def _file_name(module: str) -> str:
    return module.replace(".", "/") + ".sql"
