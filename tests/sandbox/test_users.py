"""Runners started by root: each has a user of its own, so that nobody's threads count as another's."""

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict
from sandbox.backends.users import UserReserve
from tests.refusals import refused

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a runner a user of its own")
ROOT = Path(__file__).parents[2]
BARE = {"outer": "none"}


def users() -> list[int]:
    """Users of the runners of this process."""
    return [child.uids().effective for child in psutil.Process().children() if child.uids().effective]


def test_fifty_judges_of_four_runners_find_their_users():
    reserves = [UserReserve() for _ in range(50)]
    leases = [reserve.take() for reserve in reserves for _ in range(4)]
    assert len({lease.uid for lease in leases}) == 200
    for lease in leases:
        lease.release()


@pytest.mark.parametrize(("processes", "count"), [(2, 3), pytest.param(2, 25, marks=pytest.mark.slow)])
def test_judges_of_several_processes_have_different_users(processes: int, count: int):
    script = (
        "import sys; from sandbox import Judge; from tests.sandbox.test_users import BARE, users\n"
        f"judges = [Judge(workers=1, backend_options=BARE) for _ in range({count})]\n"
        "print(*users(), flush=True); sys.stdin.read()\n"
        "for judge in judges: judge.close()"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(processes)
    ]
    found = [user for process in started for user in (process.stdout.readline().split() if process.stdout else [])]
    for process in started:
        process.communicate()
    assert len(found) == len(set(found)) == processes * count


def test_threads_of_one_judge_are_not_counted_against_another():
    program = (
        "import threading, time\nthreading.stack_size(1 << 16)\n"
        "for _ in range({}): threading.Thread(target=time.sleep, args=(0.6,)).start()\nprint('A')"
    )
    suite = Suite("threads", (TestCase("", "A"),), limits=Limits(cpu_s=2))
    with ExitStack() as stack:
        judges = [stack.enter_context(Judge(workers=1, backend_options=BARE)) for _ in range(4)]
        found: list[Verdict] = []

        def ask(judge: Judge) -> None:
            found.append(judge.judge([Submission(program.format(60), suite)])[0].verdict)

        threads = [threading.Thread(target=ask, args=(judge,)) for judge in judges]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [Verdict.accepted] * 4


def test_a_user_is_free_again_when_its_runner_has_ended(tmp_path: Path):
    reserve = UserReserve(first=70000, count=2, folder=tmp_path)
    one, two = reserve.take(), reserve.take()
    assert {one.uid, two.uid} == {70000, 70001}
    with refused("UsersExhausted"):
        reserve.take()
    one.release()
    assert reserve.take().uid == one.uid


def test_a_folder_that_others_may_write_is_not_trusted(tmp_path: Path):
    theirs = tmp_path / "locks"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    with refused("UsersExhausted"):
        UserReserve(folder=theirs).take()
