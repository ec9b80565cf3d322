"""What is known along a response: texts, success between estimates, pivotal tokens, values as success."""

from __future__ import annotations

import math

import pytest

from tasks.estimators import soft_value_of_share
from tasks.explorer.token_values import Along, pivotal_tokens, success_of_value, token_texts, tokens

TEXTS = ["n", " =", " int", "(input", "())", "\n", "print", "(n", " <", " 3)", "\n", ""]


def along(*counts: tuple[int, int, int, bool]) -> Along:
    rows = [{"position": p, "n": n, "k": k, "pivotal": pivotal} for p, n, k, pivotal in counts]
    return Along(TEXTS, [], [], [], [], rows)


SEARCHED = along((0, 800, 40, False), (3, 10, 1, False), (6, 10, 2, False), (7, 10, 8, True), (12, 1, 1, False))


def test_success_is_interpolated_between_estimates() -> None:
    found = along((0, 10, 0, False), (10, 10, 5, False))
    assert [found.success(position) for position in (0, 5, 10, 12)] == [0.0, 0.25, 0.5, 0.5]


def test_a_pivotal_token_is_listed_with_its_change_and_counts() -> None:
    (found,) = pivotal_tokens(SEARCHED)
    assert (found.number, str(found.text)) == (7, "&#39;print&#39;")
    assert (found.before, found.after, found.change) == ("0.20 (2/10)", "0.80 (8/10)", "+0.60")
    framed = [one for one in tokens(SEARCHED, "success") if one.pivotal]
    assert [str(one.text) for one in framed] == ["print"]


def test_nothing_is_pivotal_where_nothing_was_searched() -> None:
    assert pivotal_tokens(along()) == []


def test_characters_of_several_tokens_appear_once_with_the_last() -> None:
    class Bytes:
        def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
            assert skip_special_tokens
            return bytes(ids).decode("utf-8", errors="replace")

    assert token_texts(Bytes(), list("aé€".encode())) == ["a", "", "é", "", "", "€"]


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.3, 1.0])
def test_a_value_is_drawn_as_the_success_that_it_means(share: float) -> None:
    beta = 1 / math.log(1000)
    assert success_of_value(soft_value_of_share(share, beta), beta) == pytest.approx(share, abs=1e-12)
    assert success_of_value(-1 / beta - 5, beta) == 0.0
    assert success_of_value(2.0, beta) == 1.0
