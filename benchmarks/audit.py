"""Share of known faulty programs that an audit catches, and of right programs that it blames.

    python -m benchmarks.audit problems.jsonl.gz --home FOLDER [--inputs 200] [--references half] [--only ID ...]

The file is in the project's own layout, with solutions that its source calls right or faulty. Every Python solution is
judged by all tests of its problem. Faulty ones that pass are the known survivors. The first half of the right ones are
reference solutions (`all`, `none`: every one, no one). A right program that is called a survivor is a false alarm.
FOLDER keeps the result of each problem, so that the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from sandbox import Judge, Submission, Verdict
from tasks.extras.audit.examination import Candidate, examine
from tasks.problems.problem import Problem, Solution
from tasks.problems.sources import read_file
from tasks.programs.extraction import normal_hash, program_hash

COUNTED = ("faulty programs", "pass every test", "caught", "right programs", "false alarms", "inputs", "seconds")
Row = dict[str, Any]


def candidates(passing: Sequence[Solution], references: str) -> list[Candidate]:
    """The different programs among those that pass, reference solutions marked."""
    right = [one for one in passing if one.claimed == "accepted"]
    count = {"half": (len(right) + 1) // 2, "all": len(right), "none": 0}[references]
    chosen = {normal_hash(one.program) for one in right[:count]}
    found: dict[str, Candidate] = {}
    for one in passing:
        name = normal_hash(one.program)
        found.setdefault(name, Candidate(program_hash(one.program), name, one.program, name in chosen))
    return list(found.values())


def audit_one(problem: Problem, judge: Judge, options: argparse.Namespace) -> Row:
    """Judges a problem's programs and audits those that pass."""
    programs = [one for one in problem.solutions if one.language == "python3"]
    judged = judge.judge([Submission(one.program, problem.suite()) for one in programs])
    passing = [one for one, found in zip(programs, judged, strict=True) if found.verdict is Verdict.accepted]
    members = candidates(passing, options.references)
    right = {normal_hash(one.program) for one in passing if one.claimed == "accepted"}
    faulty = {normal_hash(one.program) for one in passing} - right
    others = {one.normal_hash for one in members if not one.reference} - faulty
    row: Row = {"problem": problem.problem_id, "pass every test": len(faulty)}
    row["faulty programs"] = sum(one.claimed != "accepted" for one in programs)
    if len(members) < 2 or len(members) == len(faulty):
        return row
    began = harness.clock(wall=True)
    found = examine(problem, members, judge, inputs=options.inputs, seed=options.seed)
    named = {one.normal_hash for one in members if one.program_hash in found.survivors}
    row |= {"caught": len(faulty & named), "right programs": len(others), "false alarms": len(others & named)}
    return row | {"inputs": found.inputs, "seconds": harness.clock(wall=True) - began}


def report(rows: Sequence[Row]) -> Iterator[Row]:
    """A row for each source and one for all."""
    sources: dict[str, list[Row]] = {}
    for row in rows:
        sources.setdefault(row["problem"].partition("/")[0], []).append(row)
    for source, ours in [*sources.items(), ("all", list(rows))]:
        sums = {name: round(sum(row.get(name, 0) for row in ours)) for name in COUNTED}
        yield {"source": source, "problems": len(ours)} | sums


def main() -> None:
    """Audits a file of problems and counts."""
    options = harness.options(
        __doc__, "path", home=Path, inputs=200, references=("half", "all", "none"), only=[""], seed=0, workers=2
    )  # fmt: skip
    chosen = [p for p in read_file(options.path) if p.tests and any(part in p.problem_id for part in options.only)]
    options.home.mkdir(parents=True, exist_ok=True)
    kept = options.home / f"{options.references}-{options.inputs}-{options.seed}.jsonl"
    rows = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.exists() else []
    done = {row["problem"] for row in rows}
    with Judge(workers=options.workers, mode="batch") as judge, kept.open("a", encoding="utf-8") as file:
        for problem in chosen:
            if problem.problem_id not in done:
                rows.append(audit_one(problem, judge, options))
                print(json.dumps(rows[-1]), file=file, flush=True)
    rows = [row for row in rows if row["problem"] in {problem.problem_id for problem in chosen}]
    harness.show(report(rows))
    missed = [row for row in rows if row.get("caught", 0) < row["pass every test"] or row.get("false alarms")]
    harness.show({"missed or blamed": row["problem"]} | {n: row.get(n, "") for n in COUNTED} for row in missed)


if __name__ == "__main__":
    main()
