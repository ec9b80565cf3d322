"""A process that was ended from outside is no verdict about the program in it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox import Judge, Submission, Suite, TestCase, Verdict
from sandbox.children import ENDED_ITSELF
from sandbox.records import Limits
from sandbox.timeouts import RunGate, confirm
from sandbox.worker import RunReport
from tests.refusals import refused
from tests.sandbox.conftest import sums, watched

WAITS = "import time; time.sleep(0.03)\na, b = map(int, input().split()); print(a + b)  # {}"
FUNCTION = Suite("add", (TestCase("assert add(1, 2) == 3"),), style="function")


def children(pid: int) -> list[int]:
    """Processes directly beneath a process."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextmanager
def killer(runners: Callable[[], list[int]], every: int, *, also_runners: bool = False) -> Generator[list[int]]:
    """Kill each `every`-th process seen beneath the judge's runners, and now and then a runner; yields whom."""
    killed: list[int] = []
    over = threading.Event()

    def hunt() -> None:
        seen: set[int] = set()
        while not over.is_set():
            for runner in runners():
                for pid in children(runner):
                    if pid not in seen and (seen.add(pid) or len(seen) % every == 0):
                        target = runner if also_runners and len(killed) % 10 == 9 else pid
                        with_no_error(lambda t=target: os.kill(t, signal.SIGKILL))
                        killed.append(target)
            time.sleep(0.002)

    thread = threading.Thread(target=hunt)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def with_no_error(act: object) -> None:
    try:
        act()  # pyright: ignore
    except ProcessLookupError:
        return


def judged(submissions: list[Submission], every: int, *, runners: bool = False) -> tuple[int, list[Verdict]]:
    with watched(workers=2) as (judge, running):
        judge.judge([Submission("pass", sums(1))])
        with killer(running, every, also_runners=runners) as killed:
            found = judge.judge(submissions)
    return len(killed), [judgement.verdict for judgement in found]


def require_right(programs: Callable[[int], list[Submission]]) -> None:
    """Judge rounds of right programs until ten of their processes were killed; how many a round has time for varies."""
    killed, found = 0, list[Verdict]()
    while killed < 10:
        more, verdicts = judged(programs(len(found)), every=4)
        killed, found = killed + more, found + verdicts
    assert set(found) <= {Verdict.accepted, Verdict.infra}
    assert found.count(Verdict.accepted) >= 0.9 * len(found)


def test_right_programs_whose_processes_are_killed_are_still_right():
    require_right(lambda round_number: [Submission(WAITS.format((round_number, n)), sums(2)) for n in range(40)])


def test_right_functions_whose_processes_are_killed_are_still_right():
    program = "import time\ndef add(a, b): time.sleep(0.03); return a + b  # {}"
    require_right(lambda round_number: [Submission(program.format((round_number, n)), FUNCTION) for n in range(40)])


@pytest.mark.slow
def test_no_verdict_is_wrong_after_a_thousand_kills():
    killed, wrong, lost, round_number = 0, 0, 0, 0
    while killed < 1000:
        round_number += 1
        programs = [Submission(WAITS.format((round_number, n)), sums(3)) for n in range(200)]
        more, found = judged(programs, every=3, runners=True)
        killed += more
        wrong += len(set(found) - {Verdict.accepted, Verdict.infra})
        lost += found.count(Verdict.infra)
    assert wrong == 0
    assert lost < round_number * 10


@pytest.mark.parametrize(
    "how",
    [
        "os.kill(os.getpid(), 9)",
        "import _thread, ctypes; ctypes.CDLL(None).tgkill(os.getpid(), os.getpid(), 9); exit(1)",
        "os.kill(os.getpid(), 15)",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
    ],
)
def test_a_program_that_ends_itself_by_a_signal_has_failed(judge: Judge, how: str):
    found = judge.judge([Submission("import os\n" + how, sums(1, limits=Limits(cpu_s=3)))])[0]
    assert found.verdict is Verdict.runtime_error, found.detail


def report(status: int, memory: int = 0) -> RunReport:
    return RunReport(0, status, ENDED_ITSELF, 0.1, 0.1, memory, 0, 0, b"", b"")


def test_what_is_killed_every_time_is_no_verdict():
    with refused("RunnerLost"):
        confirm(RunGate(1), lambda _: report(signal.SIGKILL), report(signal.SIGKILL), Limits())


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE])
def test_faults_of_the_program_are_not_run_again(number: int):
    assert confirm(RunGate(1), lambda _: pytest.fail("run again"), report(number), Limits()) == report(number)


def test_what_was_killed_above_its_memory_limit_is_not_run_again():
    dead = report(signal.SIGKILL, 600 << 20)
    assert confirm(RunGate(1), lambda _: pytest.fail("run again"), dead, Limits()) == dead
