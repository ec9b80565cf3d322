"""The reference part of docs/warehouse.md, written from the schema and the views."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from warehouse.lake import question_statements
from warehouse.schema import PROVENANCE, TABLES, Column

BEGIN: Final = "<!-- reference: written by `python -m warehouse.documentation docs/warehouse.md` -->"
END: Final = "<!-- end of reference -->"


def reference() -> str:
    """Every table, column, view and macro in Markdown."""
    parts = ["## Tables\n", "Every row also carries:\n", _columns(PROVENANCE)]
    parts.append("| snapshot_id | BIGINT | snapshot that made the row visible (in every table's view) |\n")
    for table in TABLES.values():
        parts += [f"### {table.name}\n", f"One row per {table.row}.\n", _columns(table.columns) + "\n"]
    views, macros = _questions("VIEW"), _questions("MACRO")
    parts += ["## Views\n", "| view | question |\n|---|---|", *views]
    parts += ["\n## Macros\n", "| macro | question |\n|---|---|", *macros]
    return "\n".join(parts)


def _columns(columns: Sequence[Column]) -> str:
    lines = ["| column | type | meaning |", "|---|---|---|"]
    for column in columns:
        choices = f": {', '.join(f'`{choice}`' for choice in column.choices)}" if column.choices else ""
        never_null = "; never null" if column.required else ""
        lines.append(f"| {column.name} | {column.type.replace('|', ' ')} | {column.meaning}{choices}{never_null} |")
    return "\n".join(lines)


def _questions(kind: str) -> list[str]:
    lines: list[str] = []
    for question, statement in question_statements():
        found = re.match(rf"CREATE OR REPLACE {kind} (\w+(?:\([\w, ]*\))?)", statement)
        if found and not question.startswith("(internal)"):
            lines.append(f"| `{found.group(1)}` | {question} |")
    return lines


def with_reference(text: str) -> str:
    """`text` with everything between the two marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def main(path: str) -> None:
    """Write the reference part of the file anew."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    with open(path, "w", encoding="utf-8") as file:
        file.write(with_reference(text))


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
