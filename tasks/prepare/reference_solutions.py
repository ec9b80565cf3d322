"""Whether problems can be judged at all: a problem whose own solutions fail its tests teaches nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sandbox import Judge, Judgement, Submission, Suite, Verdict
from tasks.problems.problem import Problem
from tasks.programs.extraction import program_hash
from tasks.run.identity import digest
from tasks.run.stage import Context
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Row, verdict_row

PYTHON = {"python", "python3", "py"}
UNFIT = "its own solution is judged"
"""How the reason begins why such a problem cannot be judged."""
NO_PROGRAM = "pass"
"""Judged where tests are code and there is no own solution: `infra` says that they fail whatever a program answers."""
UNTESTABLE = "its test code fails for every program"
TOO_WEAK = "its tests accept a program that does nothing"
TRIED = 3
"""Solutions of a problem that are judged before it counts as one that cannot be judged."""
JUDGED_AT_ONCE = 256
"""Problems whose own solutions are judged between two commits."""


class Judging(Protocol):
    """What judges programs: a `sandbox.Judge`."""

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judgements in the order of the submissions."""
        ...


def programs(problem: Problem) -> list[str]:
    """The first Python programs that the problem's source calls right."""
    right = [s.program for s in problem.solutions if s.language in PYTHON and s.claimed == "accepted"]
    return list(dict.fromkeys(right))[:TRIED]


def tried(problem: Problem) -> list[str]:
    """What shows whether a problem's tests can be trusted: its own solutions, or a program that does nothing."""
    return programs(problem) or ([NO_PROGRAM] if problem.style == "function" else [])


def suite_of(problem: Problem) -> Suite:
    """What its programs are judged by: without a solution every test, since a broken one may come after others."""
    return (problem if programs(problem) else replace(problem, every_test=True)).suite()


def refused_of(context: Context, problems: Sequence[Problem]) -> dict[str, str]:
    """What `refused` says of a run's problems, some hundred at a time.

    Verdicts are stored, so that nobody judges these programs again.
    """
    found: dict[str, str] = {}
    if not any(tried(problem) for problem in problems):
        return found
    known = KnownVerdicts(context.warehouse)
    with Judge(**context.config.sandbox.judge_arguments()) as judge:
        for start in range(0, len(problems), JUDGED_AT_ONCE):
            rows: list[Row] = []
            some = problems[start : start + JUDGED_AT_ONCE]
            found |= refused(some, judge, known, rows)
            if rows:
                keys = [[row["program_hash"], row["suite_hash"], row["sandbox_version"]] for row in rows]
                batch = f"solutions/{digest(verdicts=keys)}"
                context.warehouse.append(batch, {"verdicts": rows}, run_id=context.run_id)
            context.progress(start + len(some), len(problems), "problems", "their own solutions judged")
    return found


def refused(
    problems: Sequence[Problem], judge: Judging, known: KnownVerdicts | None = None, rows: list[Row] | None = None
) -> dict[str, str]:
    """Problem id -> why its tests cannot be trusted: they accept none of its own solutions, or fail for any program,
    or accept one that does nothing.

    A solution that is accepted ends the search for its problem. Verdicts in `known` are used; rows of `verdicts` for
    new ones are added to `rows`.
    """
    known, rows = known or KnownVerdicts(), [] if rows is None else rows
    open_problems = [problem for problem in problems if tried(problem)]
    known.read(suite_of(problem).suite_id for problem in open_problems)
    first: dict[str, Judgement] = {}
    for attempt in range(TRIED):
        asked = [(p, suite_of(p), tried(p)[attempt]) for p in open_problems if len(tried(p)) > attempt]
        if not asked:
            break
        found = _judgements(asked, judge, known, rows)
        passed: set[str] = set()
        for (problem, _, _), judgement in zip(asked, found, strict=True):
            if judgement.verdict == Verdict.accepted and programs(problem):
                passed.add(problem.problem_id)
            first.setdefault(problem.problem_id, judgement)
        open_problems = [problem for problem in open_problems if problem.problem_id not in passed]
    return {p.problem_id: _reason(p, first[p.problem_id]) for p in open_problems if _blames(p, first[p.problem_id])}


def _blames(problem: Problem, judgement: Judgement) -> bool:
    """Whether the problem is to blame: where only outputs are compared, `infra` is the sandbox's own failure."""
    infra = judgement.verdict == Verdict.infra
    if not programs(problem):
        return infra or judgement.verdict == Verdict.accepted
    return not infra or problem.style == "function"


def _reason(problem: Problem, judgement: Judgement) -> str:
    detail = f" ({judgement.detail})" if judgement.detail else ""
    if programs(problem):
        return f"{UNFIT} {judgement.verdict}{detail}"
    return f"{UNTESTABLE}{detail}" if judgement.verdict == Verdict.infra else TOO_WEAK


def _judgements(
    asked: Sequence[tuple[Problem, Suite, str]], judge: Judging, known: KnownVerdicts, rows: list[Row]
) -> list[Judgement]:
    keys = [(program_hash(program), suite.suite_id) for _, suite, program in asked]
    new = [number for number, key in enumerate(keys) if known.get(key) is None]
    fresh = judge.judge([Submission(asked[number][2], asked[number][1]) for number in new])
    judged = dict(zip(new, fresh, strict=True))
    for number, judgement in judged.items():
        known.put(keys[number], judgement)
        if judgement.verdict != Verdict.infra:
            rows.append(verdict_row(keys[number][0], asked[number][1], judgement))
    return [judged[number] if number in judged else known.get(key) for number, key in enumerate(keys)]  # type: ignore[misc]
