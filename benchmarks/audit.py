"""Does an audit catch programs that are known to be faulty and pass all tests, and does it leave right ones alone?

    python -m benchmarks.audit problems.jsonl.gz --home FOLDER [--inputs 200] [--references half | all | none]
        [--only ID ...] [--faulty] [--seed 0] [--workers 2] [--most-s 240]

The file is in the project's own layout (docs/problems.md), with solutions that its source calls right or faulty. Every
Python solution is judged by all tests of its problem; faulty ones that pass are the known survivors. Half of the right
ones (the first, rounded up) are reference solutions, the others take part like programs of unknown worth: one of these
that is called a survivor is a false alarm. `all` makes every right one a reference, `none` none of them.
What came of each problem is kept in FOLDER, so that the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox import Judge, Submission, Verdict
from tasks.audit.examination import Candidate, examine
from tasks.problems.problem import Problem, Solution
from tasks.problems.programs import normal_hash, program_hash
from tasks.problems.sources import read_file

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
    """What came of one problem: its programs are judged, those that pass are audited."""
    programs = [one for one in problem.solutions if one.language == "python3"]
    judged = judge.judge([Submission(one.program, problem.suite()) for one in programs])
    passing = [one for one, found in zip(programs, judged, strict=True) if found.verdict is Verdict.accepted]
    members = candidates(passing, options.references)
    faulty = {normal_hash(one.program) for one in passing if one.claimed != "accepted"}
    faulty -= {normal_hash(one.program) for one in passing if one.claimed == "accepted"}
    others = {one.normal_hash for one in members if not one.reference} - faulty
    row: Row = {
        "problem": problem.problem_id,
        "faulty programs": sum(one.claimed != "accepted" for one in programs),
        "pass every test": len(faulty),
    }
    if len(members) < 2 or len(members) == len(faulty):
        return row
    started = time.monotonic()
    found = examine(problem, members, judge, inputs=options.inputs, seed=options.seed)
    seconds = time.monotonic() - started
    named = {one.normal_hash for one in members if one.program_hash in found.survivors}
    blamed = {one.program_hash for one in members if one.normal_hash in others & named}
    alarms = [one for one in found.findings if blamed & set(one.dissenters)]
    return row | {
        "with a right program": len(faulty),
        "caught": len(faulty & named),
        "right programs beside the references": len(others),
        "false alarms": len(others & named),
        "inputs": found.inputs,
        "discarded": sum(found.discarded.values()),
        "seconds": seconds,
        "reasons": found.discarded,
        "alarm": f"{alarms[0].input[:80]!r} {sorted(alarms[0].behaviour.values())}" if alarms else "",
    }


def report(rows: Sequence[Row]) -> None:
    """Print a table by source, what was missed, and what was a false alarm."""
    sums = ("faulty programs", "pass every test", "with a right program", "caught",
            "right programs beside the references", "false alarms", "inputs", "discarded", "seconds")  # fmt: skip
    print("| problems | " + " | ".join(sums) + " |\n|" + "---|" * (1 + len(sums)))
    sources: dict[str, list[Row]] = {}
    for row in rows:
        sources.setdefault(row["problem"].partition("/")[0], []).append(row)
    for source, ours in [*sources.items(), ("all", list(rows))]:
        figures = {name: sum(row.get(name, 0) for row in ours) for name in sums}
        print(f"| {source}: {len(ours)} | " + " | ".join(f"{figures[name]:.0f}" for name in sums) + " |")
    for row in rows:
        if missed := row.get("with a right program", 0) - row.get("caught", 0):
            print(f"missed: {missed} of {row['pass every test']} of {row['problem']} on {row['inputs']} inputs")
        if row.get("alarm"):
            print(f"false alarm: {row['problem']}: {row['alarm']}")
    reasons = Counter[str]()
    for row in rows:
        reasons.update(row.get("reasons", {}))
    print("discarded:", dict(reasons))


def main() -> None:
    """Audit a file of problems and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--home", type=Path, required=True, help="folder for what came of each problem")
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--references", choices=["half", "all", "none"], default="half")
    parser.add_argument("--only", nargs="+", default=[""], help="problems whose id contains one of these")
    parser.add_argument("--faulty", action="store_true", help="only problems with a faulty program that passes")
    parser.add_argument(
        "--most-s", type=float, default=float("inf"), help="seconds after which to stop; run again to go on"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = [p for p in read_file(options.path) if p.tests and any(part in p.problem_id for part in options.only)]
    if options.faulty:
        chosen = [p for p in chosen if any(s.claimed != "accepted" and s.verified == "accepted" for s in p.solutions)]
    options.home.mkdir(parents=True, exist_ok=True)
    kept = options.home / f"{options.references}-{options.inputs}-{options.seed}.jsonl"
    rows = [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.exists() else []
    done, started = {row["problem"] for row in rows}, time.monotonic()
    with Judge(workers=options.workers, mode="batch") as judge, kept.open("a", encoding="utf-8") as file:
        for problem in chosen:
            if problem.problem_id in done or time.monotonic() - started > options.most_s:
                continue
            rows.append(audit_one(problem, judge, options))
            print(json.dumps(rows[-1]), file=file, flush=True)
    names = {problem.problem_id for problem in chosen}
    report([row for row in rows if row["problem"] in names])


if __name__ == "__main__":
    main()
