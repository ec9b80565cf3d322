"""Which outputs count as the expected one."""

from typing import Any

import pytest

from sandbox import Checker, Suite, TestCase
from sandbox.checker import compare, suite_tolerance


def right(output: str, expected: str, **checker: object) -> bool:
    suite = Suite("s", (TestCase("", expected),), Checker(**checker))  # pyright: ignore
    return compare(output.encode(), expected.encode(), suite.checker, suite_tolerance(suite)) == ""


@pytest.mark.parametrize(
    "output, expected, verdict",
    [
        ("1 2\n", "1\n2", True),
        ("YES", "yes", True),
        ("Ab1", "ab1", False),
        ("1 2", "1 2 3", False),
        ("", "1", False),
        ("", "", True),
        ("0 1", "1 0 1 0 1 1", False),
        ("0.3333333", "0.33333333", True),
        ("0.34", "0.33", False),
        ("1.0", "1", False),
        ("3", "3.0", True),
        ("1000000.5", "1000000.6", True),
        ("9007199254740993", "9007199254740992", False),
        ("nan", "0.5", False),
        ("inf", "1e400", False),
        ("1_0.5", "10.5", False),
        ("0x1p3", "8.0", False),
        ("1" * 5000 + ".5", "2.5", False),
        ("1e99999999999", "1.5", False),
        ("1e401", "1e400", False),
        ("0." + "3" * 200, "0." + "3" * 150, True),
        ("0." + "3" * 200, "0.4" + "3" * 150, False),
        ("7" * 90 + ".5", "7" * 90 + ".25", True),
        ("1" * 30_000 + ".5", "1" * 30_000 + ".25", False),
    ],
)
def test_tokens(output: str, expected: str, verdict: bool):
    assert right(output, expected) is verdict


@pytest.mark.parametrize(
    "output, expected, verdict",
    [("YES a1", "yes A1", True), ("1.000001", "1", True), ("1.1", "1", False), ("1", "1 2", False)],
)
def test_codecontests(output: str, expected: str, verdict: bool):
    assert right(output, expected, kind="codecontests") is verdict


@pytest.mark.parametrize(
    "output, expected, verdict", [("a b\r\n", "a b\n", True), ("a  b", "a b", False), ("a", "A", False)]
)
def test_exact(output: str, expected: str, verdict: bool):
    assert right(output, expected, kind="exact") is verdict


@pytest.mark.parametrize(
    "output, expected, flags, verdict",
    [
        ("a1 NO.", "A1 no.", {}, True),
        ("a1", "A1", {"case_sensitive": True}, False),
        ("0.5", "0.50", {}, False),
        ("0.50", "0.50", {}, True),
        ("1000000001", "1000000000", {"name": "1e-06"}, True),
        ("1000000001", "1000000000", {"float_tolerance": 1e-6}, False),
        ("0.1000001", "0.1", {"float_tolerance": 1e-6}, True),
        ("0.1000001", "0.1", {"name": "1e-07"}, False),
        ("1e400", "1e400 ", {"float_tolerance": 1e-6}, True),
        ("x", "1.0", {"float_tolerance": 1.0}, False),
        ("X", "x", {"float_tolerance": 1.0}, True),
    ],
)
def test_kattis(output: str, expected: str, flags: dict[str, Any], verdict: bool):
    assert right(output, expected, kind="kattis", **flags) is verdict


@pytest.mark.parametrize(
    "output, expected, verdict",
    [("A b\r\n", "a B\n", True), ("a  b", "A b", False), ("1.0", "1", False), ("a\n", "a\nb", False)],
)
def test_caseless(output: str, expected: str, verdict: bool):
    assert right(output, expected, kind="caseless") is verdict


@pytest.mark.parametrize(
    "output, expected, verdict",
    [
        ("\n1 2 \r\n3\n\n", "1 2\n3", True),
        ("1 2 3", "1 2\n3", False),
        ("1  2", "1 2", True),
        ("a  b", "a b", False),
        ("YES", "Yes", False),
        ("1.50 2", "1.5 2.0", True),
        ("0.5000001", "0.5", False),
        ("1e2", "100", True),
        ("x 1.0", "x 1", False),
        ("nan", "NaN", False),
        ("", "\n", True),
    ],
)
def test_lines(output: str, expected: str, verdict: bool):
    assert right(output, expected, kind="lines") is verdict


def test_case_can_be_made_to_matter():
    assert not right("YES", "yes", case_sensitive=True)


def test_a_tolerance_can_be_given():
    assert right("0.34", "0.33", float_tolerance=0.1)
