"""`spo audit`: programs stored as correct for one problem, run against each other on new inputs.

Whatever passed a problem's suite here is taken together with the solutions that its source gives, each different
program once, and examined (`examination.py`). One problem is one batch, named by its suite, programs, inputs and seed,
so that a second run repeats nothing and one that was killed goes on where it was.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sandbox
from sandbox import Judge, Submission, Verdict
from tasks.config import SandboxConfig
from tasks.errors import CodedError
from tasks.extras.audit.calls import compared_as_it_is, known_arguments
from tasks.extras.audit.examination import VERSION, Candidate, Examination, examine
from tasks.problems.problem import Problem
from tasks.programs.extraction import extract_program, normal_hash, program_hash
from tasks.run.identity import digest
from tasks.run.manifests import PrepareManifest
from tasks.run.stage import finished
from tasks.run.stored_judging import Told
from tasks.run.stored_suites import Packages, settings_for, stored_problems
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Row, verdict_row
from warehouse import Warehouse
from warehouse.queries import query

RUN_ID = "audit"
"""What appended what audits found."""
PYTHON = {"python", "python3", "py"}
MOST_PROGRAMS, MOST_SOLUTIONS = 64, 8
"""Programs of one problem that are run, those written most often first, and reference solutions among them."""
INPUTS = 200
"""New inputs for each problem, unless another number is asked for."""


class NothingToAudit(CodedError):
    """No problem was found where one was asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to audit: the problems of these names, of a set or of a run; all without any of them."""

    problems: tuple[str, ...] = ()
    problem_set: str | None = None
    run: str | None = None
    inputs: int = INPUTS
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """A problem with the different programs that passed its suite or may do so."""

    problem: Problem
    programs: tuple[Candidate, ...]
    """Known to pass."""
    solutions: tuple[Candidate, ...]
    """Given by the problem's source; they take part if they pass."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What there is to audit."""

    wanted: Wanted
    groups: tuple[Group, ...]
    settings: dict[Packages, SandboxConfig]
    """By the packages that a suite wants: how programs are run here."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Reason -> problems."""

    @property
    def problems(self) -> list[Problem]:
        """The problems that are audited."""
        return [group.problem for group in self.groups]


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of it."""

    problems: int
    new: int
    """Problems that had not been audited with these programs, inputs and seed before."""
    disagreeing: int
    """Inputs on which programs part, over all the problems."""
    survivors: int
    rows: tuple[Row, ...]
    """The newest audit of each problem."""

    @property
    def summary(self) -> str:
        """One line for people."""
        found = f"{self.disagreeing} inputs on which programs part, {self.survivors} programs likely wrong"
        untested = sum(not row["inputs"] for row in self.rows)
        unknown = f"; nothing is known of {untested}, for which no new input counted" if untested else ""
        return f"{self.problems} problems audited, {self.new} of them now; {found}{unknown}"


def asked_for(store: Warehouse, wanted: Wanted) -> list[Problem]:
    """The problems asked for that can be judged. Raises NothingToAudit and StageInputMissing."""
    batch = finished(store, PrepareManifest, run_id=wanted.run) if wanted.run else None
    if wanted.run and batch is None:
        raise NothingToAudit(
            f"there is no run {wanted.run!r}, or it has no problems yet: `spo runs` lists the runs and their stages"
        )
    asked = {
        "problems": list(wanted.problems) or None,
        "problem_set": wanted.problem_set,
        "batch": None if batch is None else batch.problems_batch,
    }
    chosen = {row["problem_id"]: row["suite_hash"] for row in store.rows(query(__name__, "suites"), asked)}
    if wanted.problem_set and not chosen:
        sets = sorted(row["problem_set"] for row in store.rows("SELECT DISTINCT problem_set FROM problems"))
        raise NothingToAudit(f"no problem is of a set {wanted.problem_set!r}; there are {', '.join(sets) or 'none'}")
    stored = sorted(stored_problems(store, sorted(set(chosen.values()))), key=lambda problem: problem.problem_id)
    problems = [problem for problem in stored if chosen.get(problem.problem_id) == problem.suite_hash]
    missing = sorted(set(wanted.problems) - {problem.problem_id for problem in problems})
    if missing:
        raise NothingToAudit(f"no problem {missing[0]!r} that can be judged is in the warehouse")
    return problems


def look(store: Warehouse, wanted: Wanted) -> Backlog:
    """The problems asked for, each with its programs. Raises NothingToAudit and StageInputMissing."""
    problems = asked_for(store, wanted)
    settings = settings_for(store, [problem.packages for problem in problems])
    programs = _programs(store, sorted({problem.suite_hash for problem in problems}))
    solutions = _solutions(store, [problem.problem_id for problem in problems])
    groups: list[Group] = []
    left_out = Counter[str]()
    for problem in problems:
        passed = programs.get((problem.problem_id, problem.suite_hash), [])
        group = _group(problem, passed, solutions.get(problem.problem_id, []))
        if problem.packages not in settings:
            left_out[f"need {', '.join(problem.packages)}, which no run's sandbox.packages has"] += 1
        elif len(group.programs) + len(group.solutions) < 2:
            left_out["have less than two different programs"] += 1
        elif problem.style == "function" and not compared_as_it_is(problem):
            left_out["have tests that change a value before they compare it, so that different ones may be right"] += 1
        elif problem.style == "function" and not known_arguments(problem):
            left_out["have tests without a call of plain values, so that no new inputs can be made"] += 1
        else:
            groups.append(group)
    return Backlog(wanted, tuple(groups), settings, dict(left_out))


def audit(store: Warehouse, backlog: Backlog, tell: Told = lambda *_: None) -> Audited:
    """Audit what has not been audited so; `tell` hears of the progress. Raises SandboxError without a sandbox."""
    new = 0
    done, total = 0, len(backlog.groups)
    for packages, config in sorted(backlog.settings.items()):
        groups = [group for group in backlog.groups if group.problem.packages == packages]
        if not groups:
            continue
        with Judge(**config.judge_arguments()) as judge:
            for group in groups:
                new += _audit_one(store, group, backlog.wanted, judge)
                done += 1
                tell(done, total, "problems", group.problem.problem_id)
    rows = results(store, backlog.problems)
    survivors = sum(len(row["survivors"]) for row in rows)
    return Audited(total, new, sum(row["disagreeing"] for row in rows), survivors, tuple(rows))


def results(store: Warehouse, problems: Sequence[Problem]) -> list[Row]:
    """The newest audit of each of these problems: programs, behaviours, disagreeing inputs, survivors."""
    asked = {"suites": [one.suite_hash for one in problems], "problems": [one.problem_id for one in problems]}
    return store.rows(query(__name__, "newest"), asked)


def _audit_one(store: Warehouse, group: Group, wanted: Wanted, judge: Judge) -> bool:
    """Whether there was anything to do: whether this audit is new."""
    problem = group.problem
    passing = _passing(store, group, judge)
    candidates = sorted([*group.programs, *passing], key=lambda one: (not one.reference, one.program_hash))
    members = [[one.program_hash, one.reference] for one in candidates]
    name = digest(
        version=VERSION, sandbox=sandbox.VERSION, suite=problem.suite_hash, problem=problem.problem_id,
        programs=members, inputs=wanted.inputs, seed=wanted.seed,
    )  # fmt: skip
    batch = f"{RUN_ID}/{name}"
    if store.committed([batch]):
        return False
    started = time.monotonic()
    found = Examination(0, {}, ())
    if len(candidates) > 1:
        found = examine(problem, candidates, judge, inputs=wanted.inputs, seed=wanted.seed)
    tables = rows_of(name, problem, candidates, found, wanted.seed, time.monotonic() - started)
    store.append(batch, tables, run_id=RUN_ID)
    return True


def rows_of(
    audit_id: str, problem: Problem, candidates: Sequence[Candidate], found: Examination, seed: int, seconds: float
) -> dict[str, list[Row]]:
    """An examination as rows of `audits` and `audit_findings`."""
    place = {"audit_id": audit_id, "problem_id": problem.problem_id, "suite_hash": problem.suite_hash}
    audited: dict[str, Any] = {
        "sandbox_version": sandbox.VERSION,
        "seed": seed,
        "programs": [one.program_hash for one in candidates],
        "solutions": [one.program_hash for one in candidates if one.reference],
        "inputs": found.inputs,
        "discarded": sum(found.discarded.values()),
        "discarded_json": json.dumps(found.discarded, sort_keys=True),
        "behaviours": found.behaviours,
        "disagreeing": len(found.findings),
        "unstable": list(found.unstable),
        "seconds": seconds,
    }
    findings = [
        place
        | {
            "position": position,
            "input": finding.input,
            "expected": finding.expected,
            "basis": finding.basis,
            "groups": len(finding.groups),
            "dissenters": list(finding.dissenters),
            "behaviour_json": json.dumps(finding.behaviour, sort_keys=True),
        }
        for position, finding in enumerate(found.findings)
    ]
    return {"audits": [place | audited], "audit_findings": findings}


def _passing(store: Warehouse, group: Group, judge: Judge) -> list[Candidate]:
    """The solutions that the suite accepts; those without a verdict are judged, and their verdicts kept."""
    suite = group.problem.suite()
    known = KnownVerdicts(store)
    known.read([suite.suite_id])
    unknown = [one for one in group.solutions if known.get((one.program_hash, suite.suite_id)) is None]
    judged = judge.judge([Submission(one.program, suite) for one in unknown])
    rows: list[Row] = []
    for one, judgement in zip(unknown, judged, strict=True):
        known.put((one.program_hash, suite.suite_id), judgement)
        if judgement.verdict != Verdict.infra:
            rows.append(verdict_row(one.program_hash, suite, judgement))
    if rows:
        unit = digest(version=sandbox.VERSION, suite=suite.suite_id, programs=[row["program_hash"] for row in rows])
        store.append(f"{RUN_ID}/solutions/{unit}", {"verdicts": rows}, run_id=RUN_ID)
    verdicts = [(one, known.get((one.program_hash, suite.suite_id))) for one in group.solutions]
    return [one for one, found in verdicts if found is not None and found.verdict == Verdict.accepted]


def _group(problem: Problem, programs: Sequence[Candidate], solutions: Sequence[Candidate]) -> Group:
    """The programs and solutions, each different program once; a solution stands for the programs that equal it."""
    given = {one.normal_hash for one in solutions}
    stored = tuple(one for one in programs if one.normal_hash not in given)
    return Group(problem, stored, tuple(solutions))


def _programs(store: Warehouse, suites: Sequence[str]) -> dict[tuple[str, str], list[Candidate]]:
    """By problem and suite: the programs that passed it."""
    found: dict[tuple[str, str], list[Candidate]] = {}
    for row in store.rows(query(__name__, "programs"), {"suites": list(suites), "most": MOST_PROGRAMS}):
        program = extract_program(row["text"])
        one = Candidate(program_hash(program), row["normal_hash"], program)
        found.setdefault((row["problem_id"], row["suite_hash"]), []).append(one)
    return found


def _solutions(store: Warehouse, problems: Sequence[str]) -> dict[str, list[Candidate]]:
    """By problem: its Python programs, reference solutions first; one that its source calls faulty is none."""
    found: dict[str, dict[str, Candidate]] = {}
    rows = store.rows(query(__name__, "solutions"), {"problems": list(problems)})
    for row in sorted(rows, key=lambda row: row["claimed"] != "accepted"):
        if row["language"] not in PYTHON:
            continue
        ours = found.setdefault(row["problem_id"], {})
        reference = row["claimed"] == "accepted" and sum(one.reference for one in ours.values()) < MOST_SOLUTIONS
        name = normal_hash(row["program"])
        ours.setdefault(name, Candidate(program_hash(row["program"]), name, row["program"], reference))
    return {problem: list(ours.values()) for problem, ours in found.items()}
