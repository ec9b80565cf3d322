from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.warehouse.conftest import trajectories
from warehouse import TABLES, Warehouse, documentation, encoding, lake
from warehouse.schema import PROVENANCE

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "guides" / "warehouse.md").read_text(encoding="utf-8")


def test_the_reference_is_what_the_generator_writes() -> None:
    assert (DOCS / "reference" / "warehouse.md").read_text(encoding="utf-8") == documentation.page()


def test_the_guide_asks_ten_questions_that_the_warehouse_understands(folder: str) -> None:
    asked = GUIDE.split("## Ten questions\n")[1].split("\n## ")[0]
    questions = re.findall(r"^-- .*\?\n([^;]*;)", asked, re.MULTILINE)
    assert len(questions) == 10
    with Warehouse.open(folder) as store:
        for question in questions:
            assert store.arrow(question).num_columns > 1


def test_the_attach_line_of_the_page_is_the_one_the_warehouse_writes(folder: str) -> None:
    with Warehouse.open(folder):
        pass
    written = (Path(folder) / "warehouse.sql").read_text().replace(folder, ".spo/warehouse")
    page = " ".join(GUIDE.split())
    for line in written.splitlines():
        if not line.startswith("--"):
            assert " ".join(line.split()) in page


def test_the_stock_duckdb_package_attaches_with_the_lines_that_people_are_shown(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / ".spo" / "warehouse") as store:
        store.append("b", {"trajectories": trajectories(3)}, run_id="run")
    blocks = re.findall(r"```sql\n([^`]*ATTACH[^`]*)```", GUIDE)
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
