"""Verdicts and pass@k of real programs, beside what their files claim.

    python -m benchmarks.real_programs solutions problems.jsonl.gz [--ways test batch docker-test subprocess]
        [--every 8] [--only ID ...]
    python -m benchmarks.real_programs samples samples.jsonl.gz [--problems humaneval.jsonl.gz] [--of 10]

`solutions`: the file is in the project's own layout, and the `verified` of each solution is the verdict it got
elsewhere. Printed is how each way agrees with the file and with the first way. `subprocess` is a plain interpreter for
each test, compared by the same rules. `samples`: JSON Lines, a problem a line, with `samples: [{passed: bool}, ...]`.
Printed are the exact pass@k, two estimators in use (1 - (1 - c/n)^k, biased low, and a bootstrap with replacement), and
how often the 95% interval from 20 samples a problem holds the truth. With `--problems` (HumanEval's), the first `--of`
samples are judged, and their flags compared.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import harness
from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict
from sandbox.checker import compare, suite_tolerance
from tasks.estimators import average_pass_at_k, pass_at_k
from tasks.problems.sources import read_file

Flags = list[list[bool]]


def main() -> None:
    """Prints the tables of a part."""
    options = harness.options(
        __doc__, ("solutions", "samples"), "path", ways=["test", "batch"], every=1, only=[""], cpu_s=0.0,
        problems=None, of=100, ks=[1, 10, 100],
    )  # fmt: skip
    if options.part == "solutions":
        solutions(options)
        return
    sampled = records(options.path)
    stored: Flags = [[bool(sample["passed"]) for sample in one["samples"]] for one in sampled]
    if options.problems:
        own = judged(sampled, records(Path(options.problems)), options.of)
        stored = [flags[: options.of] for flags in stored]
        odd = sum(a != b for x, y in zip(own, stored, strict=True) for a, b in zip(x, y, strict=True))
        print(f"judged {sum(map(len, own))} programs, {odd} disagree with the stored flag")
        harness.show(estimates(own, options), "Own judging")
    harness.show(estimates(stored, options), "Stored flags")
    if not options.problems:
        cases = [(problems, k) for problems in (32, 100, 164) for k in (1, 10)]
        harness.show((coverage(stored, k, problems, 1000) for problems, k in cases), "Coverage of the 95% interval")


def solutions(options: argparse.Namespace) -> None:
    """Judges every n-th problem's Python solutions each way."""
    chosen = [p for p in read_file(options.path) if p.tests and any(part in p.problem_id for part in options.only)]
    programs = [
        (f"{problem.problem_id}#{number}", one, Submission(one.program, problem.suite(cpu_s=options.cpu_s or None)))
        for problem in chosen[:: options.every]
        for number, one in enumerate(problem.solutions)
        if one.language == "python3"
    ]
    found = {way: verdicts(way, [submission for _, _, submission in programs]) for way in options.ways}
    first = found[options.ways[0]]
    rows: list[dict[str, Any]] = []
    for way, given in found.items():
        right = [v for v, (_, one, _) in zip(given, programs, strict=True) if one.claimed == one.verified == "accepted"]
        failing = [v for v, (_, one, _) in zip(given, programs, strict=True) if one.verified not in ("accepted", None)]
        row = {"way": way, "claimed right, accepted": f"{right.count('accepted')} of {len(right)}"}
        row |= {"marked failing, accepted": f"{failing.count('accepted')} of {len(failing)}"}
        rows.append(row | {"unlike the first way": sum(a != b for a, b in zip(given, first, strict=True))})
    harness.show(rows)
    for number, (name, one, _) in enumerate(programs):
        each = {way: given[number] for way, given in found.items()}
        against_file = one.verified and (each[options.ways[0]] == "accepted") != (one.verified == "accepted")
        if against_file or len(set(each.values())) > 1:
            print(f"{name}, verified {one.verified}: {each}")


def verdicts(way: str, submissions: Sequence[Submission]) -> list[str]:
    """The verdict of each submission; `way` is a mode, with its backend in front unless embedded."""
    if way == "subprocess":
        return [in_subprocesses(one) for one in submissions]
    backend, _, mode = way.rpartition("-")
    chosen: Any = mode
    with Judge(backend or "embedded", 2, chosen) as judge:
        return [str(one.verdict) for one in judge.judge(submissions)]


def in_subprocesses(submission: Submission) -> str:
    """Verdict by one plain interpreter for each test, up to the first failure."""
    suite = submission.suite
    environment = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONINTMAXSTRDIGITS": "0", "LC_ALL": "C.UTF-8"}
    with tempfile.NamedTemporaryFile(suffix=".py") as program:
        program.write(submission.program.encode("utf-8", "surrogateescape"))
        program.flush()
        for test in suite.tests:
            given, expected = (text.encode("utf-8", "surrogateescape") for text in (test.input, test.expected))
            command, before = ["timeout", str(10 * suite.limits.cpu_s), sys.executable, program.name], harness.cpu_s()
            done = subprocess.run(command, input=given, env=environment, capture_output=True, check=False)
            if harness.cpu_s() - before > suite.limits.cpu_s:
                return str(Verdict.time_limit)
            if done.returncode:
                return str(Verdict.runtime_error)
            if compare(done.stdout, expected, suite.checker, suite_tolerance(suite)):
                return str(Verdict.wrong_answer)
    return str(Verdict.accepted)


def records(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, gzip or not."""
    raw = path.read_bytes()
    return [json.loads(line) for line in (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()]


def judged(sampled: Sequence[dict[str, Any]], problems: Sequence[dict[str, Any]], of: int) -> Flags:
    """Own flags of the first `of` samples of each HumanEval problem."""
    by_id = {problem["problem_id"]: problem for problem in problems}
    flags: Flags = []
    with Judge(workers=2) as judge:
        for one in sampled:
            problem = by_id[one["problem_id"]]
            test = TestCase(f"{problem['test_code']}\n{problem['test_call']}\n", "")
            style: dict[str, Any] = {"style": "function", "entry_point": problem["entry_point"]}
            suite = Suite(one["problem_id"], (test,), limits=Limits(cpu_s=3.0), setup=problem["statement"], **style)
            programs = [problem["statement"] + sample["completion"] for sample in one["samples"][:of]]
            found = judge.judge([Submission(program, suite) for program in programs])
            flags.append([judgement.verdict is Verdict.accepted for judgement in found])
    return flags


def estimates(flags: Flags, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each k: exact, plugged in, and with replacement."""
    draws = random.Random(0)
    for k in (k for k in options.ks if k <= min(map(len, flags))):
        exact = average_pass_at_k({"": [(len(one), sum(one)) for one in flags]}, k)
        plugged = fmean(1 - (1 - sum(one) / len(one)) ** k for one in flags)
        hits = fmean(fmean(any(draws.choices(one, k=k)) for _ in range(100)) for one in flags)
        row = {"k": k, "exact": f"{exact.value:.2%}", "interval": f"{exact.low:.2%} to {exact.high:.2%}"}
        yield row | {"plugged in": f"{plugged:.2%}", "with replacement": f"{hits:.2%}"}


def coverage(flags: Flags, k: int, problems: int, trials: int) -> dict[str, Any]:
    """Share of 95% intervals that hold the whole file's pass@k, and their mean width."""
    draws, hits, width = random.Random(0), 0, 0.0
    truth = fmean(pass_at_k(len(one), sum(one), k) for one in flags)
    for trial in range(trials):
        counts = [(20, sum(draws.sample(one, 20))) for one in draws.choices(flags, k=problems)]
        estimate = average_pass_at_k({"": counts}, k, seed=trial)
        hits += estimate.low <= truth <= estimate.high
        width += estimate.high - estimate.low
    return {"problems": problems, "k": k, "coverage": f"{hits / trials:.1%}", "mean width": f"{width / trials:.2%}"}


if __name__ == "__main__":
    main()
