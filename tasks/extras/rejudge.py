"""Judges again what an older version of the sandbox may have judged wrongly, and lets everybody read the new verdicts.

Nothing is changed in place. A new verdict is a row of `verdicts`. A batch in which some verdict has changed is appended
once more under a name of its own, with the new verdicts and the counts that follow from them, and in the same commit
the old batch is left out: what reads the newest state sees each response once, `spo sql --at` the verdict of then.
Killed at any moment, it goes on where it was: what has been judged is known, what has been replaced is no suspect.
"""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sandbox
from sandbox import Judgement, Verdict
from tasks.config import SandboxConfig
from tasks.problems.problem import Problem
from tasks.programs.extraction import extract_program, normal_hash, program_hash
from tasks.programs.identity import parse
from tasks.run.judged_again import rejudged_batch
from tasks.run.stored_judging import StoredJudging, Told, Unjudged
from tasks.run.stored_suites import problems_of, settings_for
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.reference_counts import reference_counts
from tasks.sampling.sampler import Judged, Row, outcome
from warehouse import TABLES, Warehouse
from warehouse.queries import query
from warehouse.superseding import content, superseded

AFFECTED = (Verdict.compile_error, Verdict.runtime_error, Verdict.infra)
"""Verdicts that versions before 3 gave to right programs."""
OTHERS = (Verdict.wrong_answer, Verdict.time_limit, Verdict.memory_limit, Verdict.output_limit)
"""Those that versions before 5 gave to right programs whose functions asserts call, besides, and that a response may
have got for something else than its program."""
AS_TODAY = ("3", "4")
"""Versions that judge programs which read and print as today's does, but for those with last words."""
BUT_PACKAGES = ("5",)
"""Versions that judge as today's does all but programs that may import packages, and what BUT_MODULES says."""
BUT_MODULES = ("6", "7", "8")
"""Versions that judge as today's does all but programs that may import packages, functions that look up their module
(6), comments about an encoding (6), functions that print much or are asked in many rounds (7), imports from
`__future__` below a prelude (7), and functions of built-in names, with iterators, or whose tests expect exceptions."""
BUT_OBJECTS = ("9",)
"""Versions that judge as today's does all but programs that may import packages, functions that may give their asserts
objects, and those whose tests do what `LOOKS` finds."""
OBJECTS = r"\b(class|async|import|object|slice|memoryview)\b"
"""What a response mentions whose function versions before 10 may have failed: asserts could not use its objects."""
LOOKS = r"stdout|unittest|\basync\b|\b_(record|number|kind|name)\b"
"""What tests mention of which versions before 10 failed right functions, since printed text and coroutines did not get
there, or accepted wrong ones, since failures were counted only, or an attribute was read of the stand-in."""
OWN_MODULE = r"dataclass|\bmodules\b|pickle|type_hints|pydantic|attrs?\b|\binspect\b|import_module|__import__"
"""What a response mentions whose function versions before 7 may have failed, because its module was nowhere."""
FUTURE = r"__future__|\A[^\w]*\ufeff"
"""What a response mentions whose program versions before 8 may have cut with a prelude."""
LIMITS = (Verdict.time_limit, Verdict.output_limit, Verdict.memory_limit)
"""Verdicts that versions before 8 gave to right functions, the last before 9. They gave wrong ones `accepted`, too."""
LAZY = r"\byield\b|__next__|return (\(|map|filter|zip|iter)"
"""What a response has whose function versions before 9 may have failed, since they asked iterators for too much."""
CATCHES = r"\bexcept\b|raises|suppress"
"""What tests mention of which versions before 9 failed right functions, since what these had changed before they raised
an exception, or what that says, was lost."""
OF_BUILT_IN_NAME = rf"(\A|\n)(def|class) ({'|'.join(name for name in dir(builtins) if name.isalpha())})\b"
"""What a response has that versions before 9 failed where its asserts call other built-in functions, too."""
LAST_WORDS = (
    r"__del__|__stdout__|del sys\.stdout|\b(detach|weakref|exec|FileIO|TextIOWrapper|\w*IOBase|Buffered\w+)\b"
    r"|\b(fd)?open\(.*['\"][rbt]*[wax+]|\b(with|try)\b[^\0]*\b(yield|await)\b"
)
"""What a response mentions whose program versions before 5 may have cut short: output at its very end (sandbox.traits).

They called it `wrong_answer`, besides. The expression finds more than it has to.
"""
FENCES = (
    r"(?m)[^`\n]`{3,}[^\s`]*[ \t\r]*$"  # behind something else on their line
    r"|^[ \t]*(~{3}|`{4})|^[ \t]*```[ \t]*\w*[^\w\s`]"  # of other marks, or with more than a language
    r"|^[ \t]*```[ \t]*\w(`{0,2}[^`])*\n[ \t]*```[ \t]*\w"  # of a block that begins before the last one has ended
    r"|```[^\0]*\n# Task:[^\0]*```"
    r"|\A[^`]*[(=][^`]*\n```[ \t\r]*$"  # of a block that the text begins within
    r"|^[ \t]{4,}```|['\"]{3}[^\0]*^[ \t]*```"  # further in than its block, or in a string
    r"|^[ \t]*```[ \t]*\w*[ \t\r]*\n\s*```"  # of a block without anything in it
)
"""What a response mentions in which older rules may have found another program than today's (tasks/programs/fences.py).

It finds more than it has to, too; what has the verdict of today's program is no suspect.
"""
RESPONSES = ("trajectories", "eval_samples")
COPIED = tuple(name for name in TABLES if name != "quarantine")
"""Tables of which a batch that is replaced keeps its rows; what it left out itself stays left out without that."""
RUN_ID = "rejudge"
"""What appended the verdicts."""

Key = tuple[str, str]
"""Program and suite."""
Outcome = tuple[str, str, str, int | None]
"""Text, suite, verdict and, where the reward is the share of tests passed, their number."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Equal responses that were judged by one suite with one verdict."""

    text: str
    suite_hash: str
    verdict: str
    passed: int | None
    """Tests passed where the reward is the share of them; None where only the verdict counts."""
    program: str
    key: Key
    responses: int
    batches: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """What it is known by in a batch."""
        return self.text, self.suite_hash, self.verdict, self.passed

    def change(self, found: Judgement) -> str:
        """How `found` differs from what it was given, empty where it does not."""
        if found.verdict != self.verdict:
            return f"{self.verdict} -> {found.verdict}"
        return f"{self.verdict} with other tests" if self.passed not in (None, found.passed) else ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What there is to be judged again."""

    suspects: tuple[Suspect, ...]
    problems: dict[str, Problem]
    """By suite: what the suspects are judged by."""
    settings: dict[tuple[str, ...], SandboxConfig]
    """By the packages that a suite wants: how it is judged here."""
    unknown: dict[Key, Suspect]
    """One response for each program and suite without a verdict of this version."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Reason -> responses that cannot be judged again now."""

    @property
    def responses(self) -> dict[str, int]:
        """Number of suspect responses by their verdict."""
        found = Counter[str]()
        for suspect in self.suspects:
            found[suspect.verdict] += suspect.responses
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Rejudged:
    """What came of it."""

    judged: int
    """Programs."""
    changed: dict[str, int]
    """`old -> new` -> responses."""
    batches: int
    """Batches that were replaced."""

    @property
    def summary(self) -> str:
        """One line for people."""
        changes = ", ".join(f"{count} {change}" for change, count in self.changed.items()) or "no verdict changed"
        return f"{self.judged} programs judged again, {self.batches} batches replaced; {changes}"


def look(store: Warehouse, verdicts: Iterable[str] = ()) -> Backlog:
    """Every response with one of the affected verdicts, or with one of `verdicts`, that could be judged again.

    What a version that is right about it has judged so is none.
    """
    wanted = sorted({*map(str, AFFECTED), *verdicts})
    asked = {"verdicts": wanted, "others": list(map(str, OTHERS)), "last_words": LAST_WORDS, "fences": FENCES}
    rows = store.rows(query(__name__, "suspects"), asked)
    problems = problems_of(store, sorted({row["suite_hash"] for row in rows}))
    settings = settings_for(store, [problem.packages for problem in problems.values()])
    suspects: list[Suspect] = []
    left_out = Counter[str]()
    for row in rows:
        problem = problems.get(row["suite_hash"])
        if row["waits"]:
            left_out["of a run whose training has begun and not ended"] += row["responses"]
        elif problem is None:
            left_out["without the tests that judged them"] += row["responses"]
        elif problem.packages not in settings:
            left_out[f"need {', '.join(problem.packages)}, which no run's sandbox.packages has"] += row["responses"]
        else:
            suspects.append(_suspect(row, problem))
    known = KnownVerdicts(store)
    known.read(suspect.suite_hash for suspect in suspects)
    suspects = _without_sound(store, suspects, problems, known)
    unknown = {suspect.key: suspect for suspect in suspects if known.get(suspect.key) is None}
    return Backlog(tuple(suspects), problems, settings, unknown, dict(left_out))


def _without_sound(
    store: Warehouse, suspects: list[Suspect], problems: dict[str, Problem], known: KnownVerdicts
) -> list[Suspect]:
    asked = {"versions": list(AS_TODAY), "but_packages": list(BUT_PACKAGES), "but_modules": list(BUT_MODULES)}
    asked |= {"but_objects": list(BUT_OBJECTS)}
    rows = store.rows(query(__name__, "sound"), asked | {"suites": sorted({one.suite_hash for one in suspects})})

    def judged(row: Row) -> tuple[str, str, str, int | None]:
        return row["program_hash"], row["suite_hash"], row["verdict"], _passed(row, problems[row["suite_hash"]])

    sound = {judged(row) for row in rows}
    to_the_end = {judged(row) for row in rows if row["to_the_end"]}
    but_objects = {judged(row) for row in rows if row["but_objects"]}
    functions = {suite for suite, problem in problems.items() if problem.style == "function"}
    catching = {suite for suite in functions if _mention(problems[suite], CATCHES)}
    looking = {suite for suite in functions if _mention(problems[suite], LOOKS)}

    def is_sound(one: Suspect) -> bool:
        if one.suite_hash in looking or (one.suite_hash in functions and re.search(OBJECTS, one.text)):
            return False
        verdict = (*one.key, one.verdict, one.passed)
        if verdict in but_objects:
            return True
        if one.verdict == Verdict.compile_error and parse(one.program):
            return False  # a comment about an encoding may have failed it, also another program's that has its hash
        if problems[one.suite_hash].prelude and re.search(FUTURE, one.text):
            return False
        if one.suite_hash in functions and (
            one.suite_hash in catching
            or one.verdict in (*LIMITS, Verdict.accepted)
            or re.search(f"{OWN_MODULE}|{LAZY}|{OF_BUILT_IN_NAME}", one.text)
        ):
            return False
        return verdict in (to_the_end if re.search(LAST_WORDS, one.text) else sound)

    found = ((suspect, known.get(suspect.key)) for suspect in suspects)
    return [one for one, today in found if not is_sound(one) and (today is None or one.change(today))]


def _mention(problem: Problem, expression: str) -> bool:
    return any(re.search(expression, one.input) for one in problem.tests)


def rejudge(store: Warehouse, backlog: Backlog, tell: Told = lambda *_: None) -> Rejudged:
    """Judge what has no verdict of this version, then replace the batches in which a verdict has changed.

    Raises SandboxError when the sandbox cannot be had; `tell` hears of the progress.
    """
    unjudged = [Unjudged(one.program, *one.key) for one in backlog.unknown.values()]
    judging = StoredJudging(store, RUN_ID, RUN_ID, "judged again", tell)
    judging.judge(unjudged, backlog.problems, backlog.settings)
    known = KnownVerdicts(store)
    known.read(suspect.suite_hash for suspect in backlog.suspects)
    changed: dict[Outcome, Judgement] = {}
    changes, batches = Counter[str](), set[str]()
    for suspect in backlog.suspects:
        found = known.get(suspect.key)
        if found is not None and (change := suspect.change(found)):
            changed[suspect.outcome] = found
            changes[change] += suspect.responses
            batches.update(suspect.batches)
    tables = _tables_of(store, batches)
    for number, batch in enumerate(sorted(batches), start=1):
        _replace(store, batch, tables[batch], changed)
        tell(number, len(batches), "batches", "written with their new verdicts")
    return Rejudged(len(backlog.unknown), dict(sorted(changes.items())), len(batches))


def _passed(row: Row, problem: Problem) -> int | None:
    """The tests passed, where the reward is the share of them."""
    return row["tests_passed"] if problem.every_test else None


def _suspect(row: Row, problem: Problem) -> Suspect:
    program = extract_program(row["text"])
    key = program_hash(program), row["suite_hash"]
    batches = tuple(row["batches"])
    return Suspect(
        row["text"], row["suite_hash"], row["verdict"], _passed(row, problem), program, key, row["responses"], batches
    )


def _tables_of(store: Warehouse, batches: Iterable[str]) -> dict[str, list[str]]:
    """The tables that each batch has rows in: a rollout worker's holds events and figures beside its responses."""
    asked = [sorted(batches)]
    found: dict[str, list[str]] = {batch: [] for batch in asked[0]}
    for table in COPIED if found else ():
        for row in store.rows(query(__name__, "holders", table=table), asked):
            found[row["batch_id"]].append(table)
    return found


def _replace(store: Warehouse, batch: str, held: Iterable[str], changed: dict[Outcome, Judgement]) -> None:
    """Append the batch once more with the changed verdicts, and leave the old one out in the same commit."""
    tables: dict[str, list[Row]] = {name: [] for name in (*RESPONSES, "reference_counts", "token_values")}
    runs: dict[str, list[str]] = {}  # a batch of an imported file may hold rows of several
    times: dict[str, list[datetime]] = {}
    for table in held:
        rows = store.rows(query(__name__, "contents", table=table), [batch])
        runs[table] = [row["run_id"] for row in rows]
        times[table] = [row["created_at"] for row in rows]  # they are no newer for it
        tables[table] = [content(row) for row in rows]
    uncounted = _uncounted(store, batch, tables)
    for table in RESPONSES:
        tables[table] = [_corrected(row, changed) for row in tables[table]]
    tables["reference_counts"] = _counts(tables, uncounted)
    tables["token_values"] = [_values(row, tables["trajectories"]) for row in tables["token_values"]]
    new = rejudged_batch(batch, sandbox.VERSION)
    tables["quarantine"] = [superseded(batch, new)]
    run_id = next(run for own in runs.values() for run in own)
    several = {table: own for table, own in runs.items() if set(own) != {run_id}}
    times.pop("reference_counts", None)  # which are counted anew
    store.append(new, tables, run_id=run_id, runs=several, times=times)


def _corrected(row: Row, changed: dict[Outcome, Judgement]) -> Row:
    given = row["text"], row["suite_hash"], row["verdict"]
    found = changed.get((*given, None)) or changed.get((*given, row.get("tests_passed")))
    if found is None:
        return row
    program = extract_program(row["text"])
    new = outcome(found, tests_total=found.total)
    new |= {"program_hash": program_hash(program), "normal_hash": normal_hash(program)}
    return row | {name: value for name, value in new.items() if name in row}


def _uncounted(store: Warehouse, batch: str, tables: dict[str, list[Row]]) -> set[str]:
    """The responses that another batch counts, where this one counts fewer than it holds (rollout workers' do)."""
    stored, held = (sum(row["n"] for row in rows) for rows in (tables["reference_counts"], _counts(tables)))
    rows = store.rows(query(__name__, "elsewhere"), {"batch": batch}) if stored < held else []
    return {str(row["trajectory_id"]) for row in rows}


def _counts(tables: dict[str, list[Row]], uncounted: Collection[str] = ()) -> list[Row]:
    """The batch's counts of pi_0's samples, counted anew: its own responses, without those `uncounted`."""
    rows: list[Row] = []
    stored = tables["reference_counts"]
    for reference, sampling, template_id in sorted({(r["reference"], r["sampling"], r["template_id"]) for r in stored}):
        own = (row for row in tables["trajectories"] if row["trajectory_id"] not in uncounted)
        drawn = [*own, *(_as_trajectory(row, reference) for row in tables["eval_samples"])]
        limits = {row["max_response_tokens"] for row in drawn if row["policy_start"] == reference}
        judged = [Judged(0, 0, row, None) for row in drawn]
        for limit in sorted(limits, key=str):
            counted = reference_counts(judged, reference=reference, template_id=template_id, max_response_tokens=limit)
            rows += [row | {"sampling": sampling} for row in counted]
    return rows


def _as_trajectory(row: Row, reference: str) -> Row:
    """An evaluation sample as a trajectory: its batch has counts only if it was drawn from pi_0 in Q0's way."""
    way = {"temperature": 1.0, "top_p": 1.0, "max_response_tokens": None, "prefix_tokens": 0}
    return row | way | {"policy_start": row["policy_id"] if row["policy_id"] == reference else None}


def _values(row: Row, trajectories: Sequence[Row]) -> Row:
    """The counts of a prefix whose rollouts are in this batch; what has none here stays."""
    rewards = [
        one["reward"]
        for one in trajectories
        if one["parent_trajectory_id"] == row["trajectory_id"] and one["prefix_tokens"] == row["position"]
    ]
    if not rewards:
        return row
    scored = [reward for reward in rewards if reward is not None]
    return row | {"n": len(scored), "k": sum(reward == 0 for reward in scored)}
