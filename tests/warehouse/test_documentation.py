from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.warehouse.conftest import trajectories
from warehouse import TABLES, Warehouse, documentation, encoding, lake
from warehouse.schema import PROVENANCE

README = Path(__file__).parents[2] / "README.md"
PAGE = README.parent / "docs" / "warehouse.md"


def test_the_page_documents_every_table_column_view_and_macro() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == documentation.with_reference(text), "run: python -m warehouse.documentation docs/warehouse.md"
    assert all(f"### {name}\n" in text for name in TABLES)


def test_the_page_asks_ten_questions_that_the_warehouse_understands(folder: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    asked = text.split(documentation.QUESTIONS)[1].split(documentation.END_OF_QUESTIONS)[0]
    found = re.findall(r"```sql\n(.*?)```\n\n\| (.*?) \|\n", asked, re.DOTALL)
    assert len(found) == 10
    with Warehouse.open(folder) as store:
        for question, header in found:
            assert store.arrow(question).column_names == header.split(" | ")


def test_answers_are_written_under_their_questions(folder: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    with Warehouse.open(folder) as store:
        counts = {"problem_id": "p|1", "reference": "r", "sampling": "s", "template_id": "t", "suite_hash": "x"}
        store.append("b", {"reference_counts": [counts | {"n": 10, "k": 0}]}, run_id="run")
        answered = documentation.with_answers(text, store)
        assert documentation.with_answers(answered, store) == answered
    assert "| p\\|1 | 10 | 0 | 0.0 | 0.0 |" in answered
    assert answered.partition(documentation.QUESTIONS)[0] == text.partition(documentation.QUESTIONS)[0]
    assert answered.partition(documentation.END_OF_QUESTIONS)[2] == text.partition(documentation.END_OF_QUESTIONS)[2]
    assert [line for line in answered.splitlines() if line.endswith("?")] == [
        line for line in text.splitlines() if line.endswith("?")
    ]


def test_the_attach_line_of_the_page_is_the_one_the_warehouse_writes(folder: str) -> None:
    with Warehouse.open(folder):
        pass
    written = (Path(folder) / "warehouse.sql").read_text().replace(folder, ".spo/warehouse")
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    for line in written.splitlines():
        if not line.startswith("--"):
            assert " ".join(line.split()) in page


def test_the_stock_duckdb_package_attaches_with_the_lines_that_people_are_shown(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / ".spo" / "warehouse") as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
    pages = PAGE.read_text(encoding="utf-8") + README.read_text(encoding="utf-8")
    blocks = re.findall(r"```sql\n([^`]*ATTACH[^`]*)```", pages)
    assert blocks
    for shown in blocks:
        for name in ("ducklake", "sqlite_scanner"):  # what INSTALL would download is here already
            shown = shown.replace(f"INSTALL {name}; LOAD {name};", f"LOAD '{lake.extension_file(name)}';")
        program = (
            f"import duckdb; c = duckdb.connect(); c.execute({shown!r}); "
            "print(c.sql('SELECT n, k FROM pass_rate_by_problem').fetchall(), c.sql('FROM q0').fetchall())"
        )
        command = [sys.executable, "-I", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (done.stdout.strip(), done.stderr) == ("[(3, 3)] []", "")


def test_the_catalog_explains_every_column_to_any_client(folder: str) -> None:
    with Warehouse.open(folder) as store:
        rows = store.rows(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE schema_name = 'stored'"
        )
    found = {(row["table_name"], row["column_name"]): (row["data_type"], row["comment"]) for row in rows}
    for table in TABLES.values():
        for column in (*table.columns, *PROVENANCE):
            kind, comment = found.pop((table.name, column.name))
            assert comment == column.meaning
            assert kind.replace(" WITH TIME ZONE", "TZ").replace('"', "") == column.type.replace('"', "")
    assert found == {}


def test_arrow_fields_carry_their_meaning_and_nullability() -> None:
    for table in TABLES.values():
        schema = encoding.arrow_schema(table.name)
        for column in (*table.columns, *PROVENANCE):
            field = schema.field(column.name)
            assert field.metadata == {b"doc": column.meaning.encode()}
            assert field.nullable is not column.required
