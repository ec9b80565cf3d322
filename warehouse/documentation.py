"""docs/warehouse.md: its reference part, written from the schema and the views, and the answers to its questions.

python -m warehouse.documentation docs/warehouse.md                 the reference part
python -m warehouse.documentation docs/warehouse.md .spo/warehouse  and the answers of that warehouse
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from warehouse.lake import view_statements
from warehouse.schema import PROVENANCE, TABLES, VIEW_COLUMNS, Column
from warehouse.store import Warehouse

BEGIN: Final = "<!-- reference: written by `python -m warehouse.documentation docs/warehouse.md` -->"
END: Final = "<!-- end of reference -->"
QUESTIONS: Final = "<!-- questions -->"
END_OF_QUESTIONS: Final = "<!-- end of questions -->"


def reference() -> str:
    """Every table, column, view and macro in Markdown."""
    parts = ["## Tables\n", "Every row also carries:\n", _columns(PROVENANCE)]
    parts.append("\nand every table's view shows:\n")
    parts.append(_columns(VIEW_COLUMNS) + "\n")
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
    for question, statement in view_statements():
        found = re.match(rf"CREATE OR REPLACE {kind} (\w+(?:\([\w, ]*\))?)", statement)
        if found and not question.startswith("(internal)"):
            lines.append(f"| `{found.group(1)}` | {question} |")
    return lines


def with_reference(text: str) -> str:
    """`text` with everything between the two marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n\n{END}{after}"


def with_answers(text: str, store: Warehouse) -> str:
    """`text` with the table under every question's SQL replaced by what `store` answers."""
    before, _, rest = text.partition(QUESTIONS)
    asked, _, after = rest.partition(END_OF_QUESTIONS)
    parts = re.split(r"(```sql\n.*?```\n)", asked, flags=re.DOTALL)
    for number in range(1, len(parts), 2):
        query = parts[number].removeprefix("```sql\n").removesuffix("```\n")
        prose = parts[number + 1].rpartition("|\n")[2]
        parts[number + 1] = f"\n{_answer(store, query)}\n{prose}"
    return f"{before}{QUESTIONS}{''.join(parts)}{END_OF_QUESTIONS}{after}"


def _answer(store: Warehouse, query: str) -> str:
    found = store.arrow(query)
    lines = ["| " + " | ".join(found.column_names) + " |", "|" + "---|" * found.num_columns]
    for row in found.to_pylist():
        cells = ["" if value is None else str(value) for value in row.values()]
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", "⏎ ") for cell in cells) + " |")
    return "\n".join(lines)


def main(path: str, location: str | None) -> None:
    """Write the reference part of the file anew, and the answers when a warehouse is given."""
    text = with_reference(Path(path).read_text(encoding="utf-8"))
    if location is not None:
        with Warehouse.open(location, read_only=True) as store:
            text = with_answers(text, store)
    Path(path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import sys

    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
