"""Hostile text, differences of programs, charts and addresses."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.explorer.address import Address, BadAddress
from tasks.explorer.drawing import Dot, Line, Plot, plot, short, ticks
from tasks.explorer.rendering import literal
from tasks.explorer.source_text import highlighted, side_by_side, source
from tasks.explorer.visible import LONGEST_LINE, hidden, plain, visible
from tests.tasks.explorer.conftest import structure

HOSTILE = "\u202e\u2066</pre><script>alert(1)</script>\x1b[31m\u200b\ufeff\x00'\"&"


def text_of(markup: str) -> str:
    """The text of markup, names of hidden characters turned back into them."""
    back = re.sub(r'<span class="hidden"[^>]*>U\+([0-9A-F]+)</span>', lambda m: f"&#x{m[1]};", markup)
    bare = re.sub(r"<[^>]*>", "", back)
    parts = re.split(r"&#x([0-9A-F]+);", bare)
    return "".join(chr(int(part, 16)) if i % 2 else html.unescape(part) for i, part in enumerate(parts))


@given(st.text())
def test_visible_text_is_the_text_and_holds_nothing_that_acts(text: str) -> None:
    shown = str(visible(text))
    assert not [letter for letter in shown if hidden(letter)]
    assert set(structure(shown).tags) <= {"span"}
    assert text_of(shown) == text


def test_what_turns_or_hides_text_is_named() -> None:
    shown = str(visible(HOSTILE))
    for code in ("U+202E", "U+2066", "U+001B", "U+200B", "U+FEFF", "U+0000"):
        assert f">{code}</span>" in shown
    assert "right-to-left override" in shown
    assert "<script" not in shown
    assert "\u202e" not in plain(HOSTILE)


@given(st.text(alphabet=st.sampled_from("ab=\n\t\"'#(\\\r\u202e<&{}"), max_size=80))
def test_coloured_lines_are_the_lines_of_the_program(text: str) -> None:
    lines = highlighted(text)
    assert [text_of(str(line)) for line in lines] == text.split("\n")
    for line in lines:
        structure(str(line))


def test_a_megabyte_in_a_line_is_cut_and_told() -> None:
    found = source("x = 1\n" + "a" * 1_000_000)
    assert len(str(found.lines[1])) <= LONGEST_LINE + 100
    assert found.left_out == 1_000_000 - LONGEST_LINE
    assert source("x = 1\n" + "a" * 1_000_000, whole=True).left_out == 0
    assert source("\n" * 100_000).left_out > 90_000


@given(st.lists(st.sampled_from(["a", "b", "c"])), st.lists(st.sampled_from(["a", "b", "c"])))
def test_side_by_side_holds_both_programs_in_order(left: list[str], right: list[str]) -> None:
    rows = side_by_side("\n".join(left), "\n".join(right))
    assert [row.left_number for row in rows if row.left_number] == list(range(1, max(1, len(left)) + 1))
    assert [row.right_number for row in rows if row.right_number] == list(range(1, max(1, len(right)) + 1))
    assert all(row.left == row.right for row in rows if row.same)


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e9))
def test_ticks_are_round_and_inside(lowest: float, span: float) -> None:
    found = ticks(lowest, lowest + span, 5)
    assert len(found) <= 7
    assert all(lowest - span * 1e-3 <= tick <= lowest + span * 1.001 for tick in found)


@pytest.mark.parametrize("value, text", [(1200.0, "1,200"), (0.0125, "0.0125"), (4e6, "4M"), (float("nan"), "unknown")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_a_chart_links_its_points_and_escapes_its_labels() -> None:
    drawn = str(plot(Plot("T", [Line("<b>", [Dot(0, 0.1, 0.0, 0.2, href="/x?a=1&b=2"), Dot(1, 0.5, 0.4, 0.6)])] * 2)))
    assert structure(drawn).links == ["/x?a=1&b=2"] * 2
    assert "<b>" not in drawn
    assert plot(Plot("empty", [Line("a", []), Line("b", [Dot(0, float("nan"))])])) == ""


def test_links_keep_the_snapshot_and_changes_keep_the_other_filters() -> None:
    address = Address.parse("/problems", "order=hard&q=a%26b&at=7&page=3")
    assert address.link("/run", id="x y") == "/run?id=x+y&at=7"
    assert address.changed(page=None, order="easy") == "/problems?q=a%26b&at=7&order=easy"
    assert address.changed(at=None) == "/problems?order=hard&q=a%26b&page=3"
    with pytest.raises(BadAddress):
        address.choice("order", ("a", "b"))


@pytest.mark.parametrize(
    "value, text",
    [("it's", "'it''s'"), (None, "NULL"), (True, "TRUE"), (3, "3"), (0.5, "0.5"), (["a", 1], "['a', 1]"), ([], "[]")],
)
def test_values_are_written_as_duckdb_reads_them(value: object, text: str) -> None:
    assert literal(value) == text
