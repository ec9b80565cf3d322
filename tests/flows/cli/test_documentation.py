"""docs/reference/commands.md is what the command line says."""

from __future__ import annotations

from pathlib import Path

from flows.cli import documentation

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "commands.md"


def test_the_page_is_what_the_generator_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == documentation.page()
