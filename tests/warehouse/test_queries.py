from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.refusals import refused
from warehouse import queries
from warehouse.queries import Query, queries_of, query

PROJECT = Path(__file__).parents[2]
ASKED = re.compile(r"\bquery\(\s*(__name__|\"[\w.]+\"),\s*\"(\w+)\"")
PACKAGES = ("warehouse", "tasks", "flows")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module beside which the test may write `asking.sql`."""
    package = tmp_path / "package_with_queries"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, package.name, raising=False)  # an earlier test's
    queries_of.cache_clear()
    return "package_with_queries.asking"


def write(module: str, tmp_path: Path, text: str) -> None:
    (tmp_path / (module.replace(".", "/") + ".sql")).write_text(text)


TWO = """\
-- name: one
-- Which one?
-- The first.
SELECT 1 -- not two
WHERE '{' <> '}';

-- name: two
-- Which rows are in a schema?
SELECT * FROM {schema}.rows WHERE id = $id
"""


def test_a_query_is_found_by_its_name_with_its_question(module: str, tmp_path: Path) -> None:
    write(module, tmp_path, TWO)
    assert dict(queries_of(module)) == {
        "one": Query("Which one? The first.", "SELECT 1 -- not two\nWHERE '{' <> '}'"),
        "two": Query("Which rows are in a schema?", "SELECT * FROM {schema}.rows WHERE id = $id"),
    }
    assert query(module, "one") == "SELECT 1 -- not two\nWHERE '{' <> '}'"
    assert query(module, "two", schema="main") == "SELECT * FROM main.rows WHERE id = $id"


@pytest.mark.parametrize(
    "text, code",
    [
        (TWO, "UnknownQuery"),
        ("SELECT 1;\n" + TWO, "TextWithoutQuery"),
        ("-- name: three\nSELECT 3;\n", "TextWithoutQuery"),
        (TWO + TWO, "RepeatedQuery"),
        (None, "NoQueryFile"),
    ],
)
def test_what_cannot_be_found_is_named_with_its_file(module: str, tmp_path: Path, text: str | None, code: str) -> None:
    if text is not None:
        write(module, tmp_path, text)
    with refused(code, "asking.sql"):
        query(module, "three")


def test_only_what_a_query_leaves_open_is_filled_in(module: str, tmp_path: Path) -> None:
    write(module, tmp_path, TWO)
    with refused("NothingToFillIn", "'two'", "{table}"):
        query(module, "two", table="x")


def _modules_with_queries() -> list[str]:
    found: list[str] = []
    for package in PACKAGES:
        for path in sorted((PROJECT / package).rglob("*.sql")):
            if re.search(r"^-- name:", path.read_text(encoding="utf-8"), re.MULTILINE):
                found.append(".".join(path.relative_to(PROJECT).with_suffix("").parts))
    return found


def _asked() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for package in PACKAGES:
        for path in (PROJECT / package).rglob("*.py"):
            if path == Path(queries.__file__):
                continue
            own = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
            for module, name in ASKED.findall(path.read_text(encoding="utf-8")):
                found.add((own if module == "__name__" else module.strip('"'), name))
    return found


def test_every_query_of_the_project_is_asked_and_every_one_asked_is_there() -> None:
    there = {(module, name) for module in _modules_with_queries() for name in queries_of(module)}
    assert there == _asked()


@pytest.mark.parametrize("module", _modules_with_queries())
def test_every_query_says_its_question(module: str) -> None:
    for name, found in queries_of(module).items():
        if found.text.startswith(("SELECT", "WITH")):
            assert "?" in found.question, name
        assert found.text, name
