"""A limit of time counts only if it was passed again when nothing could be to blame but the program."""

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import pytest

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict
from sandbox.children import ENDED_ASLEEP, ENDED_CPU, ENDED_ITSELF, ENDED_WALL
from sandbox.timeouts import RunGate, confirm
from sandbox.worker import RunReport
from tests.sandbox.conftest import sums, watched

COMPUTE = "import time\nwhile time.process_time() < {seconds}: pass\na, b = map(int, input().split()); print(a + b)"
UNTIL = "import time\nwhile time.time() < {moment}: pass\na, b = map(int, input().split()); print(a + b)"


@contextlib.contextmanager
def first_long_test_stopped(runner: int) -> Generator[list[int]]:
    """Stop the first process beneath the runner that lives for 0.2 s, as a starved machine would; yields whom."""
    stopped: list[int] = []
    over = threading.Event()

    def watch() -> None:
        seen: dict[int, float] = {}
        while not over.is_set() and not stopped:
            for pid in map(int, Path(f"/proc/{runner}/task/{runner}/children").read_text().split()):
                if time.monotonic() - seen.setdefault(pid, time.monotonic()) > 0.2:
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield stopped
    finally:
        over.set()
        thread.join()


def test_a_program_that_gets_no_processor_for_a_while_is_not_called_asleep():
    with watched(workers=1) as (judge, runners):
        judge.judge([Submission("pass", sums(1))])
        with first_long_test_stopped(*runners()) as stopped:
            found = judge.judge([Submission(COMPUTE.format(seconds=0.5), sums(1, limits=Limits(cpu_s=5)))])[0]
    assert stopped
    assert found.verdict is Verdict.accepted, found.detail
    assert found.cpu_s >= 0.4


def test_a_starved_compiler_is_no_verdict_about_the_program():
    long_to_compile = "x = [" + "1 + 2 * 3 ** 4, " * 120_000 + "]\na, b = map(int, input().split()); print(a + b)"
    with watched(workers=1) as (judge, runners):
        judge.judge([Submission("pass", sums(1))])
        suite = sums(1, limits=Limits(cpu_s=5, compile_cpu_s=10))
        with first_long_test_stopped(*runners()) as stopped:
            found = judge.judge([Submission(long_to_compile, suite)])[0]
    assert stopped
    assert found.verdict is Verdict.accepted, found.detail


@pytest.mark.parametrize("workers", [1, 2])
def test_a_program_that_needs_too_much_once_is_not_over_time(workers: int):
    with Judge(workers=workers) as judge:
        judge.judge([Submission("pass", sums(1))])
        program = UNTIL.format(moment=time.time() + 0.7)
        found = judge.judge([Submission(program, sums(1, limits=Limits(cpu_s=0.4)))])[0]
    assert found.verdict is Verdict.accepted, found.detail


def test_a_program_that_stirs_in_its_sleep_meets_the_cap_on_real_time():
    program = "import time\nwhile True: time.sleep(0.05)"
    with Judge(workers=1) as judge:
        found = judge.judge([Submission(program, sums(1, limits=Limits(cpu_s=1, wall_s=0.6)))])[0]
    assert found.verdict is Verdict.time_limit
    assert "real time" in found.detail


def test_verdicts_are_the_same_beside_busy_processes():
    programs = {
        COMPUTE.format(seconds=0.3): Verdict.accepted,
        COMPUTE.format(seconds=5): Verdict.time_limit,
        "import time; time.sleep(0.5); a, b = map(int, input().split()); print(a + b)": Verdict.accepted,
        "import time; time.sleep(60)": Verdict.time_limit,
        "print('-')": Verdict.wrong_answer,
        "1 / 0": Verdict.runtime_error,
    }
    busy = [os.posix_spawn("/bin/sh", ["sh", "-c", "while :; do :; done"], {}) for _ in range(4)]
    try:
        with Judge(workers=2) as judge:
            found = judge.judge([Submission(program, sums(1, limits=Limits(cpu_s=0.8))) for program in programs])
    finally:
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert [judgement.verdict for judgement in found] == list(programs.values())


# the rule alone --------------------------------------------------------------------------------------------------

LIMITS = Limits(cpu_s=2.0)


def report(cpu_s: float, ended: int = ENDED_ITSELF, wall_s: float | None = None) -> RunReport:
    return RunReport(0, 0 if ended == ENDED_ITSELF else 9, ended, cpu_s, wall_s or cpu_s, 0, 0, 0, b"", b"")


@pytest.mark.parametrize(
    "workers, reports, runs",
    [
        (2, [report(1.0)], []),
        (2, [report(2.0, ENDED_CPU), report(0.4)], [4.0]),
        (2, [report(2.0, ENDED_CPU), report(4.0, ENDED_CPU)], [4.0]),
        (2, [report(2.0, ENDED_CPU), report(3.0), report(1.5)], [4.0, 2.0]),
        (2, [report(0.1, ENDED_ASLEEP), report(0.2)], [2.0]),
        (2, [report(0.1, ENDED_WALL, 10.0), report(0.2)], [2.0]),
        (1, [report(2.0, ENDED_CPU), report(2.0, ENDED_CPU)], [2.0]),
    ],
)
def test_how_often_and_under_which_limits_a_test_is_run_again(
    workers: int, reports: list[RunReport], runs: list[float]
):
    first, *further = reports
    asked: list[float] = []

    def run(limits: Limits) -> RunReport:
        asked.append(limits.cpu_s)
        return further[len(asked) - 1]

    assert confirm(RunGate(workers), run, first, LIMITS) == reports[-1]
    assert asked == runs


@pytest.mark.parametrize("ended", [ENDED_WALL, ENDED_ASLEEP])
def test_only_a_program_that_was_not_waiting_itself_stops_the_others(ended: int):
    gate, asked = RunGate(2), []

    def run(limits: Limits) -> RunReport:
        asked.append((limits.wall_cap_s, limits.asleep_s, gate._held_until > 0))  # pyright: ignore
        return report(0.1)

    for waits in (9, 0):
        confirm(gate, run, report(0.3, ended, 10.0)._replace(waits=waits), LIMITS)
    asleep, starved = LIMITS.asleep_s * 4, LIMITS.wall_cap_s * 4
    assert asked == [(LIMITS.wall_cap_s, asleep, False), (starved, asleep, True)]


def test_nobody_holds_the_others_up_for_longer_than_he_may():
    gate, entered = RunGate(2), threading.Event()
    started = time.monotonic()

    def enter() -> None:
        with gate.shared():
            entered.set()

    with gate.shared(), gate.exclusive(0.3):  # in vain: the first never ends meanwhile
        held = time.monotonic()
        thread = threading.Thread(target=enter)
        thread.start()
        assert entered.wait(5)
        waited = time.monotonic() - held
    thread.join()
    assert held - started >= 0.3
    assert 0.2 <= waited < 3


def test_a_program_that_is_almost_asleep_stops_nobody():
    drowsy = "import time\nwhile True:\n t = time.process_time() + .003\n"
    drowsy += " while time.process_time() < t: pass\n time.sleep(.1)"
    limits = Limits(cpu_s=1, wall_s=3)
    ends: list[float] = []
    with Judge(workers=2) as judge:
        judge.judge([Submission("pass", sums(1))])
        found: list[Verdict] = []
        slow = [Submission(drowsy, sums(1, limits=limits))]
        thread = threading.Thread(target=lambda: found.append(judge.judge(slow)[0].verdict))
        thread.start()
        while thread.is_alive():
            judge.judge([Submission(f"print({len(ends)})", sums(1))])
            ends.append(time.monotonic())
    assert found == [Verdict.time_limit]
    assert max(b - a for a, b in itertools.pairwise(ends)) < 3


def test_alone_means_that_nobody_runs_beside():
    gate, inside, most, intrusions = RunGate(4), [0], [0], [0]
    lock = threading.Lock()

    def work(number: int) -> None:
        for turn in range(30):
            alone = (number + turn) % 5 == 0
            with gate.exclusive(60) if alone else gate.shared():
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    intrusions[0] += alone and inside[0] != 1
                time.sleep(0.001)
                with lock:
                    intrusions[0] += alone and inside[0] != 1
                    inside[0] -= 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside[0], intrusions[0]) == (0, 0)
    assert most[0] > 1


@pytest.mark.parametrize("style", ["stdin", "function"])
def test_every_run_waits_while_another_is_alone(style: Literal["stdin", "function"]):
    tests = {"stdin": TestCase("", "1"), "function": TestCase("assert f() == 1")}
    submission = Submission("print(1)\ndef f(): return 1", Suite(style, (tests[style],), style=style))
    with Judge(workers=2) as judge:
        found: list[Verdict] = []
        thread = threading.Thread(target=lambda: found.append(judge.judge([submission])[0].verdict))
        with judge._grader._gate.exclusive(60):  # pyright: ignore[reportPrivateUsage]
            thread.start()
            thread.join(0.5)
            assert not found
        thread.join()
    assert found == [Verdict.accepted]
