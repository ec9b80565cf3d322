"""Suites that grew: which tests audits added to a problem's own, and problems with them.

A problem comes with its tests from its source each time it is read. What was accepted is found by the identity of these
tests, without the limits that a recipe may set, so that it holds for every run of the problem.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sandbox import TestCase
from tasks.problems.problem import Problem, Row

Added = Mapping[tuple[str, str], tuple[TestCase, ...]]
"""By problem and identity of its tests: those that were accepted besides."""


def tests_hash(problem: Problem) -> str:
    """Identity of a problem's tests and checker, whatever the limits (32 hexadecimal digits)."""
    tests = [[test.input, test.expected] for test in problem.tests]
    text = json.dumps([tests, asdict(problem.checker), problem.style, problem.entry_point], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def version_row(old: Problem, new: Problem, version: int, audit_ids: Sequence[str]) -> Row:
    """A row of `suite_versions`: `new` is `old` with further hidden tests."""
    added = new.tests[len(old.tests) :]
    return {
        "problem_id": new.problem_id,
        "suite_hash": new.suite_hash,
        "parent_suite_hash": old.suite_hash,
        "parent_tests_hash": tests_hash(old),
        "version": version,
        "added": [{"input": test.input, "output": test.expected} for test in added],
        "audit_ids": list(audit_ids),
    }


def added_tests(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], tuple[TestCase, ...]]:
    """What rows of `suite_versions` add to which tests; of several, the first is what counts."""
    found: dict[tuple[str, str], tuple[TestCase, ...]] = {}
    for row in rows:
        tests = tuple(TestCase(test["input"], test["output"]) for test in row["added"])
        found.setdefault((row["problem_id"], row["parent_tests_hash"]), tests)
    return found


def extended(problem: Problem, added: Added) -> list[Problem]:
    """The problem, and each version of it that accepted tests make, the one that counts last."""
    found = [problem]
    while tests := added.get((problem.problem_id, tests_hash(found[-1]))):
        found.append(replace(found[-1], hidden_tests=(*found[-1].hidden_tests, *tests)))
    return found
