"""Tables, views and macros as a page: docs/reference/warehouse.md.

python -m warehouse.documentation > docs/reference/warehouse.md
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from warehouse.lake import view_statements
from warehouse.schema import PROVENANCE, TABLES, VIEW_COLUMNS, Column

INTRODUCTION: Final = """\
# Warehouse tables

Every table, column, view and macro. `python -m warehouse.documentation > docs/reference/warehouse.md` writes this page.
[The guide](../guides/warehouse.md) shows queries. A column with \\* is never null.

## Tables
"""


def page() -> str:
    """The text of docs/reference/warehouse.md."""
    rows = ["| **every table** | | columns of every table |", *_columns((*PROVENANCE, *VIEW_COLUMNS))]
    for table in TABLES.values():
        rows += [f"| **{table.name}** | | **one row per {table.row}** |", *_columns(table.columns)]
    parts = [INTRODUCTION, "| column | type | meaning |\n|---|---|---|", *rows]
    for title, kind in (("Views", "VIEW"), ("Macros", "MACRO")):
        parts += [f"\n## {title}\n\n| {kind.lower()} | question |\n|---|---|", *_questions(kind)]
    return "\n".join(parts) + "\n"


def _columns(columns: Sequence[Column]) -> list[str]:
    lines: list[str] = []
    for column in columns:
        choices = f": {', '.join(f'`{choice}`' for choice in column.choices)}" if column.choices else ""
        name = f"{column.name} \\*" if column.required else column.name
        lines.append(f"| {name} | {column.type} | {column.meaning}{choices} |")
    return lines


def _questions(kind: str) -> list[str]:
    lines: list[str] = []
    for question, statement in view_statements():
        found = re.match(rf"CREATE OR REPLACE {kind} (\w+(?:\([\w, ]*\))?)", statement)
        if found and not question.startswith("(internal)"):
            lines.append(f"| `{found.group(1)}` | {question} |")
    return lines


if __name__ == "__main__":
    print(page(), end="")
