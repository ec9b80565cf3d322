"""Do real programs get the verdicts they deserve, and the same ones from every way of judging?

    python -m benchmarks.judge_real_problems problems.jsonl.gz --way test --home FOLDER
        [--every 8] [--only ID ...] [--cpu-s 10] [--busy 4]
    python -m benchmarks.judge_real_problems problems.jsonl.gz --home FOLDER

The file is in the project's own layout (docs/problems.md) with solutions whose `verified` says what they did elsewhere.
The first form judges every n-th problem's solutions one way and keeps the verdicts in FOLDER; the second prints how all
ways kept there agree with the file and with one another, and every disagreement. Ways: `test` and `batch` (embedded),
`docker-test` and `docker-batch`, and `subprocess`: a plain interpreter per test, whose output is compared by the same
rules. `--busy` adds processes that compute all the while.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sandbox import Judge, Judgement, Submission, Suite, TestCase, Verdict
from sandbox.checker import compare, suite_tolerance
from tasks.problems.problem import Problem
from tasks.problems.sources import read_file

STACK = 1 << 30


class Case(NamedTuple):
    """A program, and what the file says of it."""

    name: str
    claimed: str
    verified: str
    submission: Submission


def cases(problems: list[Problem], cpu_s: float | None) -> list[Case]:
    """All Python solutions of the problems that have tests; `cpu_s` replaces the problems' own limits."""
    found: list[Case] = []
    for problem in problems:
        if problem.tests:
            suite = problem.suite(cpu_s=cpu_s)
            for number, solution in enumerate(problem.solutions):
                if solution.language == "python3":
                    name = f"{problem.problem_id}#{number}"
                    submission = Submission(solution.program, suite)
                    found.append(Case(name, solution.claimed, solution.verified or "unknown", submission))
    return found


# ways ------------------------------------------------------------------------------------------------------------


def judge_all(way: str, todo: list[Case]) -> Iterator[tuple[int, str, str]]:
    """(position, verdict, detail) of each case."""
    if way == "subprocess":
        for position, case in enumerate(todo):
            yield position, *oracle(case.submission)
        return
    backend, _, mode = way.rpartition("-")
    chosen: Literal["test", "batch"] = "batch" if mode == "batch" else "test"
    with Judge(backend or "embedded", 2, chosen) as judge:
        for position, judgement in judge.judge_stream(case.submission for case in todo):
            yield position, str(judgement.verdict), described(judgement)


def described(judgement: Judgement) -> str:
    """Why, and what it cost."""
    dearest = max((test.cpu_s for test in judgement.tests), default=0.0)
    return f"{judgement.detail[:160]} (dearest test {dearest:.2f} s, {judgement.memory_bytes >> 20} MiB)"


def oracle(submission: Submission) -> tuple[str, str]:
    """(verdict, detail) by one plain interpreter per test, up to the first failure."""
    suite = submission.suite
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "main.py")
        program.write_text(submission.program, "utf-8", "surrogateescape")
        for index, test in enumerate(suite.tests):
            verdict, detail = one_process(program, suite, test)
            if verdict is not Verdict.accepted:
                return str(verdict), f"test {index + 1}: {detail}"
    return str(Verdict.accepted), ""


def one_process(program: Path, suite: Suite, test: TestCase) -> tuple[Verdict, str]:
    """Run the program on one test in an interpreter of its own."""
    limits = suite.limits

    def limit() -> None:
        cpu_s = int(limits.cpu_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))

    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        stdin.write(test.input.encode("utf-8", "surrogateescape"))
        stdin.seek(0)
        environment = {"PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONINTMAXSTRDIGITS": "0", "LC_ALL": "C.UTF-8"}
        process = subprocess.Popen(
            [sys.executable, program], stdin=stdin, stdout=stdout, stderr=stderr, env=environment, preexec_fn=limit,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        output, complaint = stdout.read(), stderr.read().decode("utf-8", "replace")
    if usage.ru_utime + usage.ru_stime > limits.cpu_s:
        return Verdict.time_limit, f"more than {limits.cpu_s:g} s"
    if usage.ru_maxrss << 10 > limits.memory_bytes:
        return Verdict.memory_limit, f"{usage.ru_maxrss >> 10} MiB"
    if status:
        return Verdict.runtime_error, complaint.strip().rsplit("\n", 1)[-1][:200]
    why = compare(output, test.expected.encode("utf-8", "surrogateescape"), suite.checker, suite_tolerance(suite))
    return (Verdict.wrong_answer if why else Verdict.accepted), why


@contextlib.contextmanager
def neighbours(count: int) -> Generator[None]:
    """Processes that compute without pause."""
    busy = [multiprocessing.Process(target=compute, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def compute() -> None:
    """Use a processor."""
    while True:
        sum(range(10_000))


# tables ----------------------------------------------------------------------------------------------------------


def report(todo: list[Case], ways: dict[str, dict[str, Any]]) -> None:
    """Print how each way agrees with the file, then with the first way."""
    print("| way | programs | claimed right, AC: accepted | marked failing: accepted | infra | wall s |")
    print("|---|---|---|---|---|---|")
    for way, kept in ways.items():
        verdicts = kept["verdicts"]
        judged = [(case, verdicts[case.name][0]) for case in todo if case.name in verdicts]
        right = [verdict for case, verdict in judged if (case.claimed, case.verified) == ("accepted", "accepted")]
        failing = [verdict for case, verdict in judged if case.verified not in ("accepted", "unknown")]
        accepted = f"{right.count('accepted')} of {len(right)} | {failing.count('accepted')} of {len(failing)}"
        infra = sum(verdict == "infra" for _, verdict in judged)
        print(f"| {way} | {len(judged)} | {accepted} | {infra} | {kept['wall_s']:.0f} |")
    print("\nfile says -> judged, over all ways:")
    for way, kept in ways.items():
        pairs = Counter(
            (c.claimed, c.verified, kept["verdicts"][c.name][0]) for c in todo if c.name in kept["verdicts"]
        )
        for (claimed, verified, verdict), count in sorted(pairs.items()):
            print(f"  {way}: claimed {claimed}, verified {verified} -> {verdict}: {count}")
    disagreements_with_file(todo, ways)
    disagreements_between(todo, ways)


def disagreements_with_file(todo: list[Case], ways: dict[str, dict[str, Any]]) -> None:
    """Print each program that some way accepted or refused against the file's word."""
    print("\nagainst the file:")
    for case in todo:
        found = {way: kept["verdicts"][case.name] for way, kept in ways.items() if case.name in kept["verdicts"]}
        odd = {way: v for way, v in found.items() if (v[0] == "accepted") != (case.verified == "accepted")}
        if odd and case.verified != "unknown":
            print(f"  {case.name} (claimed {case.claimed}, verified {case.verified}):")
            for way, (verdict, detail) in odd.items():
                print(f"    {way}: {verdict}: {detail}")


def disagreements_between(todo: list[Case], ways: dict[str, dict[str, Any]]) -> None:
    """Print each program that some way judged differently from the first way."""
    first, *others = ways
    for way in others:
        ours, theirs = ways[first]["verdicts"], ways[way]["verdicts"]
        both = [case.name for case in todo if case.name in ours and case.name in theirs]
        odd = [name for name in both if ours[name][0] != theirs[name][0]]
        worse = sum("accepted" in (ours[name][0], theirs[name][0]) for name in odd)
        print(
            f"\n{way} beside {first}: {len(both)} programs, {len(odd)} other verdicts, {worse} of them about acceptance"
        )
        for name in odd:
            print(f"  {name}: {first} {' '.join(ours[name])}; {way} {' '.join(theirs[name])}")


def main() -> None:
    """Judge one way, or report on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--home", type=Path, required=True, help="folder for the verdicts")
    parser.add_argument("--way", choices=["test", "batch", "docker-test", "docker-batch", "subprocess"])
    parser.add_argument("--every", type=int, default=1, help="every n-th problem only")
    parser.add_argument("--only", nargs="+", default=[""], help="problems whose id contains one of these")
    parser.add_argument("--cpu-s", type=float, help="seconds of CPU time in place of the problems' own limits")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    arguments = parser.parse_args()
    chosen = [p for p in read_file(arguments.path) if any(part in p.problem_id for part in arguments.only)]
    todo = cases(chosen[:: arguments.every], arguments.cpu_s)
    if arguments.way is None:
        kept = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(arguments.home.glob("*.json"))}
        report(todo, dict(sorted(kept.items(), key=lambda item: item[0] != "test")))
        return
    started = time.monotonic()
    with neighbours(arguments.busy):
        found = {todo[position].name: (verdict, why) for position, verdict, why in judge_all(arguments.way, todo)}
    label = arguments.way + (f"+{arguments.busy}-busy" if arguments.busy else "")
    label += f"+{arguments.cpu_s:g}-s" if arguments.cpu_s else ""
    result = {"verdicts": found, "wall_s": time.monotonic() - started}
    arguments.home.mkdir(parents=True, exist_ok=True)
    (arguments.home / f"{label}.json").write_text(json.dumps(result, indent=1), "utf-8")
    print(f"{label}: {len(found)} programs in {result['wall_s']:.0f} s")


if __name__ == "__main__":
    main()
