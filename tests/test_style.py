"""Documents and docstrings keep the project's style; scripts/style.py measures it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "style.py"
BAD_DOCSTRINGS = 712
"""Docstrings that begin with What, Whether, Which, Where, How or Who. The number only falls."""


@pytest.fixture(scope="module")
def style() -> ModuleType:
    spec = importlib.util.spec_from_file_location("style", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["style"] = module
    spec.loader.exec_module(module)
    return module


def test_readme_fits_one_screen_and_names_a_command_early(style: ModuleType) -> None:
    found = style.measured()
    assert found.readme_lines <= 120
    assert found.readme_tables == 1
    assert found.words_before_command <= 60


def test_documents_are_short(style: ModuleType) -> None:
    found = style.measured()
    assert found.markdown_words <= 55_000
    assert found.markdown_lines <= 4_000


def test_sentences_and_lines_are_short(style: ModuleType) -> None:
    found = style.measured()
    assert found.median_words <= 15
    assert found.share_short >= 0.9
    assert found.long_lines == 0


def test_bad_starts_of_docstrings_only_fall(style: ModuleType) -> None:
    assert style.measured().bad_docstrings <= BAD_DOCSTRINGS


def test_sentences_are_counted_in_paragraphs_and_lists(style: ModuleType) -> None:
    text = "# Title\n\nOne two. Three `four five`\nsix.\n\n* Seven [eight](nine.md) ten\n\n```\ncode\n```\n| a | b |\n"
    assert [len(one.split()) for one in style.sentences(text)] == [2, 3, 3]
