"""Rules by which an output is the expected one. Host side; outputs are hostile text of bounded size.

tokens        equal tokens between white space; tokens of letters only are compared without case; in problems whose
              expected outputs hold a non-integer, numbers may differ by 1e-6, absolutely or relatively
codecontests  as CodeContests judges: white space split, lower case, any two numbers within 1e-5
lines         as LiveCodeBench judges: equal lines without the white space around each and around all; of lines that
              differ, all tokens must be numbers of equal value
exact         equal text; only line ends (CRLF or LF) and those at the very end do not matter
caseless      as exact, but for the case of letters (Kattis where only space_change_sensitive is given)
kattis        as Kattis' default validator judges: tokens are equal but for the case of letters; where there are
              tolerances, every number of the expected output by these instead, the absolute or the relative one
special       a function of the caller's decides (judge.py)

No attacker text reaches `float` or `Decimal` unless it looks like a number of bounded length; none ever reaches `int`.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from sandbox.records import Checker, Suite

NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
INTEGER = re.compile(rb"[+-]?\d+")
LONGEST_NUMBER = 20_000
DEFAULT_TOLERANCE = 1e-6
CODECONTESTS_TOLERANCE = 1e-5
SHOWN = 40


def compare(output: bytes, expected: bytes, checker: Checker, tolerance: float | None) -> str:
    """Why `output` is wrong; empty when it is right. `tolerance` is `suite_tolerance` of the problem."""
    if checker.kind == "exact":
        return "" if normal_lines(output) == normal_lines(expected) else first_difference(output, expected)
    if checker.kind == "caseless":
        return compare(output.lower(), expected.lower(), Checker("exact"), None)
    if checker.kind == "lines":
        return compare_lines(output, expected)
    ours, theirs = output.split(), expected.split()
    if ours == theirs:
        return ""
    if len(ours) != len(theirs):
        return f"{len(ours)} tokens instead of {len(theirs)}"
    for position, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our != their and not equal_tokens(our, their, checker, tolerance):
            return f"token {position + 1} is {shown(our)}, expected {shown(their)}"
    return ""


def compare_lines(output: bytes, expected: bytes) -> str:
    """Why `output` is wrong line by line; empty when it is right."""
    ours, theirs = ([line.strip() for line in text.strip().split(b"\n")] for text in (output, expected))
    if len(ours) != len(theirs):
        return f"{len(ours)} lines instead of {len(theirs)}"
    for position, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        if our != their and not equal_numbers(our.split(), their.split()):
            return f"line {position + 1} is {shown(our)}, expected {shown(their)}"
    return ""


def equal_numbers(ours: list[bytes], theirs: list[bytes]) -> bool:
    """Whether both are as many numbers, each of the same value as the other's."""
    if len(ours) != len(theirs) or not all(map(is_number, [*ours, *theirs])):
        return False
    return all(Decimal(a.decode()) == Decimal(b.decode()) for a, b in zip(ours, theirs, strict=True))


def suite_tolerance(suite: Suite) -> float | None:
    """Tolerance of a problem: the checker's own, or the default if any expected output holds a non-integer."""
    if suite.checker.kind == "codecontests":
        return CODECONTESTS_TOLERANCE
    if suite.checker.kind != "tokens":
        return None
    if suite.checker.float_tolerance is not None:
        return suite.checker.float_tolerance or None
    return DEFAULT_TOLERANCE if any(holds_non_integer(test.expected) for test in suite.tests) else None


def holds_non_integer(expected: str) -> bool:
    """Whether a token of the text is a number but not an integer."""
    if "." not in expected and "e" not in expected and "E" not in expected:
        return False
    tokens = expected.encode("utf-8", "surrogateescape").split()
    return any(is_number(token) and not INTEGER.fullmatch(token) for token in tokens)


def equal_tokens(ours: bytes, theirs: bytes, checker: Checker, tolerance: float | None) -> bool:
    """Whether two different tokens mean the same."""
    if checker.kind == "kattis":
        return equal_kattis(ours, theirs, checker)
    if checker.kind == "codecontests":
        return ours.lower() == theirs.lower() or near(ours, theirs, absolute=CODECONTESTS_TOLERANCE)
    if not checker.case_sensitive and ours.isalpha() and theirs.isalpha() and ours.lower() == theirs.lower():
        return True
    if tolerance is None or (INTEGER.fullmatch(ours) and INTEGER.fullmatch(theirs)):
        return False
    return near(ours, theirs, absolute=tolerance, relative=tolerance)


def equal_kattis(ours: bytes, theirs: bytes, checker: Checker) -> bool:
    """Whether two different tokens mean the same to Kattis' default validator."""
    if (checker.float_tolerance is not None or checker.name) and is_number(theirs):
        return near(ours, theirs, absolute=checker.float_tolerance or 0.0, relative=float(checker.name or 0))
    return not checker.case_sensitive and ours.lower() == theirs.lower()


def near(ours: bytes, theirs: bytes, *, absolute: float, relative: float = 0.0) -> bool:
    """Whether both are numbers and within one of the tolerances; the relative one is of the expected number."""
    if not (is_number(ours) and is_number(theirs)):
        return False
    a, b = float(ours), float(theirs)
    if not (math.isfinite(a) and math.isfinite(b)):
        return False  # too large for a float, which cannot tell how near they are
    return abs(a - b) <= max(absolute, relative * abs(b))


def is_number(token: bytes) -> bool:
    """Whether the token is a plain decimal number of bounded length: no hexadecimal, no underscores, no `nan`."""
    return len(token) <= LONGEST_NUMBER and NUMBER.fullmatch(token) is not None


def normal_lines(text: bytes) -> bytes:
    """The text with LF line ends and none at its end."""
    return text.replace(b"\r\n", b"\n").rstrip(b"\n")


def first_difference(output: bytes, expected: bytes) -> str:
    """Where two texts part."""
    ours, theirs = normal_lines(output).split(b"\n"), normal_lines(expected).split(b"\n")
    for line, (our, their) in enumerate(zip(ours, theirs, strict=False), 1):
        if our != their:
            return f"line {line} is {shown(our)}, expected {shown(their)}"
    return f"{len(ours)} lines instead of {len(theirs)}"


def shown(text: bytes) -> str:
    """A short, printable form."""
    return repr(text[:SHOWN].decode("utf-8", "replace")) + ("..." if len(text) > SHOWN else "")
