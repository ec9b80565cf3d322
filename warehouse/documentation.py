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
    rows = [f"| every table | {_columns((*PROVENANCE, *VIEW_COLUMNS))} |"]
    rows += [f"| **{one.name}** | *One row per {one.row}.*<br>{_columns(one.columns)} |" for one in TABLES.values()]
    parts = [INTRODUCTION, "| table | columns |\n|---|---|", *rows]
    for title, kind in (("Views", "VIEW"), ("Macros", "MACRO")):
        parts += [f"\n## {title}\n\n| {kind.lower()} | question |\n|---|---|", *_questions(kind)]
    return "\n".join(parts) + "\n"


def _columns(columns: Sequence[Column]) -> str:
    lines: list[str] = []
    for column in columns:
        choices = f": {', '.join(f'`{choice}`' for choice in column.choices)}" if column.choices else ""
        name = f"`{column.name}`" + (" \\*" if column.required else "")
        lines.append(f"{name} {column.type}: {column.meaning}{choices}")
    return "<br>".join(lines)


def _questions(kind: str) -> list[str]:
    lines: list[str] = []
    for question, statement in view_statements():
        found = re.match(rf"CREATE OR REPLACE {kind} (\w+(?:\([\w, ]*\))?)", statement)
        if found and not question.startswith("(internal)"):
            lines.append(f"| `{found.group(1)}` | {question} |")
    return lines


if __name__ == "__main__":
    print(page(), end="")
