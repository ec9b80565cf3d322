"""Brings stored identities of programs to today's rules.

Rows of `trajectories` and `eval_samples` carry `program_hash` and `normal_hash` of the program in their `text`. Until
version 0.1 both were hashes of `ast.dump`, which differs between versions of Python: equal programs of different times
looked different. The new ones follow from the text alone, so they are computed anew from it, for all rows in one way.

Rows of `verdicts` keep the hash they were stored under: they are of an older sandbox, whose verdicts nobody asks for.
"""

from __future__ import annotations

from typing import Any, Protocol

from tasks.programs.extraction import extract_program, normal_hash, program_hash
from warehouse.queries import query

TABLES = ("trajectories", "eval_samples")
TEXTS_AT_ONCE = 5_000


class Connection(Protocol):
    """What a database connection must be able to do."""

    def execute(self, query: str, parameters: Any = ...) -> Any:
        """Run one statement."""
        ...

    def executemany(self, query: str, parameters: Any = ...) -> Any:
        """Run one statement for each of several parameters."""
        ...


def rehash(connection: Connection, schema: str) -> int:
    """Recompute the hashes of all rows from their texts, within the caller's transaction; how many texts there were.

    `schema` holds the tables `trajectories` and `eval_samples`.

    Harmless when run twice.
    """
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE rehashed (text VARCHAR, program_hash VARCHAR, normal_hash VARCHAR)"
    )
    count = 0
    for table in (f"{schema}.{name}" for name in TABLES):
        texts = [text for (text,) in connection.execute(query(__name__, "texts", table=table)).fetchall()]
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            rows = [hashes(text) for text in texts[start : start + TEXTS_AT_ONCE]]
            connection.execute("DELETE FROM rehashed")
            connection.executemany("INSERT INTO rehashed VALUES (?, ?, ?)", rows)
            connection.execute(query(__name__, "update", table=table))
        count += len(texts)
    connection.execute("DROP TABLE rehashed")
    return count


def hashes(text: str) -> tuple[str, str, str]:
    """The text of a response and both hashes of the program in it."""
    program = extract_program(text)
    return text, program_hash(program), normal_hash(program)
