"""Findings of audits as tests of a new suite, and history judged by it.

Nothing is changed in place: the new suite is a row of `suite_versions` with its own problems and tests, the old one
stays, and so does every verdict by it. What passed the old suite is judged by the new one as rows of `verdicts`, and
the view `rejudged` says what each response's verdict is by the suite that counts now. New runs take the tests in when
they read the problem (`tasks/problems/suite_versions.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandbox import TestCase
from sandbox.checker import suite_tolerance
from tasks.errors import CodedError
from tasks.extras.audit.audits import RUN_ID
from tasks.extras.audit.calls import LONGEST_CALL, as_test, called_name, compared_as_it_is, value_of
from tasks.problems import problem as problems_module
from tasks.problems.problem import Problem
from tasks.problems.suite_versions import tests_hash, version_row
from tasks.programs.extraction import extract_program
from tasks.run.stored_judging import StoredJudging, Told, Unjudged
from tasks.run.stored_suites import problems_of, settings_for, stored_problems
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Row
from warehouse import Warehouse
from warehouse.queries import query

MOST_TESTS = 10
"""Tests that are added to one suite at a time."""
LONGEST_TEST = 20_000
EACH = 2
"""Tests that each survivor fails, where so many were found."""


class NothingToAccept(CodedError):
    """No findings for the problems asked for."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of it."""

    suites: int
    """Suites that were extended now."""
    tests: int
    judged: int
    """Programs judged by the suites that count now."""
    failing: int
    """Those of them that passed the older suite and fail the newer one."""

    @property
    def summary(self) -> str:
        """One line for people."""
        judged = f"{self.judged} programs that had passed judged by the suites that count now, {self.failing} fail"
        return f"{self.tests} tests added to {self.suites} suites; {judged}"


def accept(store: Warehouse, problems: Sequence[str] | None, tell: Told = lambda *_: None) -> Accepted:
    """Make tests of what the newest audits of these problems found, and judge by them what had passed.

    None: of every problem, and then only findings that reference solutions decide. Raises NothingToAccept for a named
    problem without findings; judging that was broken off goes on all the same.
    """
    asked = {"problems": None if problems is None else list(problems), "majority": problems is not None}
    by_problem: dict[str, list[Row]] = {}
    for row in store.rows(query(__name__, "findings"), asked):
        by_problem.setdefault(row["problem_id"], []).append(row)
    suites = tests = 0
    for name, findings in by_problem.items():
        extended, added = _extend(store, name, findings)
        suites, tests = suites + extended, tests + added
    judged, failing = _judge_what_passed(store, tell)
    missing = sorted(set(problems or ()) - by_problem.keys())
    if missing and not (suites or judged):
        raise NothingToAccept(
            f"no finding of an audit waits for {missing[0]!r}: `spo audit {missing[0]}` looks for some, `spo sql "
            f'"FROM suite_versions"` shows what was accepted'
        )
    return Accepted(suites, tests, judged, failing)


def chosen(findings: Sequence[Row]) -> list[Row]:
    """At most `MOST_TESTS` of the findings: each survivor fails `EACH` of them if it can, by as few as will do."""
    missing = Counter({name: EACH for row in findings for name in row["dissenters"]})
    left = [row for row in findings if len(row["input"]) <= LONGEST_TEST]
    found: list[Row] = []
    while left and len(found) < MOST_TESTS:
        best = max(left, key=lambda row: (sum(missing[name] > 0 for name in row["dissenters"]), -len(row["input"])))
        if not any(missing[name] > 0 for name in best["dissenters"]):
            break
        left.remove(best)
        found.append(best)
        missing.subtract(dict.fromkeys(best["dissenters"], 1))
    return found


def _extend(store: Warehouse, name: str, findings: Sequence[Row]) -> tuple[int, int]:
    """Extend the suite of the findings, and the problem's suites with the same tests; (suites, tests)."""
    here = [row["suite_hash"] for row in store.rows(query(__name__, "siblings"), {"problems": [name]})]
    problems = {one.suite_hash: one for one in stored_problems(store, here) if one.problem_id == name}
    suite = findings[-1]["suite_hash"]
    if suite not in problems:
        return 0, 0
    found = [row for row in findings if row["suite_hash"] == suite]
    added = [test for row in chosen(found) if (test := hidden_test(problems[suite], row)) is not None]
    if not added:
        return 0, 0
    audits = sorted({row["audit_id"] for row in found})
    same = [one for one in problems.values() if tests_hash(one) == tests_hash(problems[suite])]
    for old in same:
        new = replace(old, hidden_tests=(*old.hidden_tests, *added), solutions=())
        (version,) = store.rows(query(__name__, "version"), {"problem": name, "suite": old.suite_hash})
        tables = problems_module.rows([new])
        tables["suite_versions"] = [version_row(old, new, version["version"] + 1, audits)]
        store.append(f"suite/{name}/{new.suite_hash}", tables, run_id=RUN_ID)
    return len(same), len(added)


def hidden_test(problem: Problem, finding: Row) -> TestCase | None:
    """The finding as a test of the problem's style.

    None for a value that no assert can ask for, or not so directly, and for one that would loosen how the other tests
    are compared: what failed them has to fail still.
    """
    if problem.style == "stdin":
        test = TestCase(finding["input"], finding["expected"])
        suite = problem.suite()
        grown = replace(suite, tests=(*suite.tests, test))
        return test if suite_tolerance(grown) == suite_tolerance(suite) else None
    text = ""
    if len(finding["expected"]) <= LONGEST_CALL and compared_as_it_is(problem):
        text = as_test(called_name(problem), finding["input"], value_of(finding["expected"]))
    return TestCase(text) if text else None


def _judge_what_passed(store: Warehouse, tell: Told) -> tuple[int, int]:
    """Judge by the suites that count what passed the older ones; (programs judged, those that fail)."""
    rows = store.rows(query(__name__, "passed"))
    problems = problems_of(store, sorted({row["suite_hash"] for row in rows}))
    known = KnownVerdicts(store)
    known.read(problems)
    todo = [
        Unjudged(extract_program(row["text"]), row["program_hash"], row["suite_hash"])
        for row in rows
        if row["suite_hash"] in problems and known.get((row["program_hash"], row["suite_hash"])) is None
    ]
    judging = StoredJudging(store, f"{RUN_ID}/verdicts", RUN_ID, "judged by the suites that count now", tell)
    return judging.judge(todo, problems, settings_for(store, [one.packages for one in problems.values()]))
