"""The verdict of each test, stored as a letter each, as marks and in words."""

from __future__ import annotations

import pytest

from sandbox import Judgement, TestResult, Verdict
from tasks.explorer.outcomes import in_words, marks


@pytest.mark.parametrize(
    "outcomes, words",
    [
        ("aaaa", "tests 1 to 4 accepted"),
        ("aaw..", "tests 1 to 2 accepted, 3 wrong answer, 4 to 5 not run"),
        ("t", "test 1 time limit"),
        ("", ""),
        (None, ""),
    ],
)
def test_equal_neighbours_are_told_together(outcomes: str | None, words: str) -> None:
    assert in_words(outcomes) == words


def test_every_test_has_a_mark_and_failures_their_letter() -> None:
    found = marks("awr.")
    assert [(one.number, one.sign, one.kind) for one in found] == [
        (1, "✓", "pass"),
        (2, "W", "fail"),
        (3, "R", "fail"),
        (4, "·", "open"),
    ]
    assert marks("a" * 500) == []


def test_letters_are_those_of_the_verdicts_and_differ() -> None:
    results = tuple(TestResult(n, verdict) for n, verdict in enumerate(Verdict))
    found = Judgement(Verdict.accepted, 1, len(results), tests=results).outcomes
    assert found == "".join(verdict.value[0] for verdict in Verdict)
    assert len(set(found)) == len(Verdict)
    assert in_words(found).count(",") == len(Verdict) - 1
