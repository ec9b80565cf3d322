"""What the judge decides, reuses and survives."""

# ruff: noqa: E501  programs are data

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from sandbox import (
    Checker,
    Judge,
    Judgement,
    Limits,
    Submission,
    Suite,
    TestCase,
    Verdict,
    describe_walls,
    judgeable,
)
from sandbox import traits as traits_module
from sandbox.grading import refusal
from sandbox.traits import traits
from tests.refusals import refused
from tests.sandbox.conftest import open_judge, sums, watched

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"

CASES = {
    "right": (ADD, Verdict.accepted),
    "wrong": ("print(0, 0)", Verdict.wrong_answer),
    "nothing": ("pass", Verdict.wrong_answer),
    "syntax": ("def f(:", Verdict.compile_error),
    "exception": ("1 / 0", Verdict.runtime_error),
    "exit_status": (ADD + "import sys; sys.exit(1)", Verdict.runtime_error),
    "exit_zero": (ADD + "exit()", Verdict.accepted),
    "quit_by_name": (ADD + "quit(0)", Verdict.accepted),
    "killed": ("import os; os.kill(os.getpid(), 9)", Verdict.runtime_error),
    "endless": ("while True: pass", Verdict.time_limit),
    "asleep": ("import time; time.sleep(60)", Verdict.time_limit),
    "memory": ("x = bytearray(400 << 20); print(len(x))", Verdict.memory_limit),
    "memory_error": ("x = bytearray(9 << 30)", Verdict.memory_limit),
    "output": ("print('x' * (3 << 20))", Verdict.output_limit),
}

HABITS = {
    "seekable_input": "import os\na, b = map(int, os.read(0, os.fstat(0).st_size).split()); print(a + b)",
    "dev_stdin": "a, b = map(int, open('/dev/stdin').read().split()); print(a + b)",
    "open_zero": "a, b = map(int, open(0).read().split()); print(a + b)",
    "unclosed_open_one": "f = open(1, 'w'); a, b = map(int, input().split()); f.write(str(a + b))",
    "mode_of_stdin": "import sys\nassert sys.stdin.mode == 'r'\n" + ADD,
    "big_thread_stack": "import sys, threading\nsys.setrecursionlimit(10**6); threading.stack_size(128 << 20)\n"
    "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
    "def main():\n a, b = map(int, input().split()); f(30000); print(a + b)\n"
    "t = threading.Thread(target=main); t.start(); t.join()",
    "thread_not_joined": "import threading\n"
    "def main():\n a, b = map(int, input().split()); print(a + b)\n"
    "threading.Thread(target=main).start()",
    "closes_stdout": "import sys\n" + ADD + "sys.stdout.close()",
    "atexit": "import atexit\na, b = map(int, input().split())\natexit.register(lambda: print(a + b))",
    "main_guard": "def main():\n a, b = map(int, input().split()); print(a + b)\nif __name__ == '__main__': main()",
    "byte_order_mark": "\ufeff" + ADD,
    "carriage_returns": ADD.replace("\n", "\r\n"),
    "late_imports": "import socket, bz2, json, decimal\n" + ADD,
    "late_submodules": "import importlib.util, collections.abc, concurrent.futures, ctypes.util, json.tool\n" + ADD,
    "writes_when_destroyed": "import os\nfrom io import IOBase, BytesIO\nclass F(IOBase):\n"
    " def __init__(s): s.b = BytesIO(); s.write = s.b.write\n"
    " def flush(s): os.write(1, s.b.getvalue()); s.b.truncate(0); s.b.seek(0)\n"
    "f = F(); a, b = map(int, input().split()); f.write(str(a + b).encode())",
    "last_words": "class L:\n def __del__(s): print(s.n)\nl = L(); a, b = map(int, input().split()); l.n = a + b",
    "asyncio": "import asyncio, sys\nasync def main():\n q = asyncio.Queue()\n await asyncio.wait_for(asyncio.sleep(0.01), 5)\n"
    " a, b = map(int, (await asyncio.to_thread(sys.stdin.readline)).split())\n"
    " await asyncio.gather(q.put(a), q.put(b))\n print(await q.get() + await q.get())\nasyncio.run(main())",
    "local_stream": "import socket\nx, y = socket.socketpair()\nx.sendall(input().encode())\n"
    "print(sum(map(int, y.recv(99).split())))",
    "temporary_file": "import tempfile\nwith tempfile.TemporaryFile('w+') as f:\n f.write(input()); f.seek(0)\n"
    " a, b = map(int, f.read().split())\nprint(a + b)",
    "named_temporary_file": "from tempfile import NamedTemporaryFile\nf = NamedTemporaryFile('w', delete=False)\n"
    "f.write(input()); f.close()\na, b = map(int, open(f.name).read().split()); print(a + b)",
    "mkstemp": "import os, tempfile\nfd, name = tempfile.mkstemp()\nos.write(fd, input().encode()); os.close(fd)\n"
    "with open(name, 'a') as f: f.write(' 0')\nprint(sum(map(int, open(name).read().split())))",
    "spooled_file": "import tempfile\nf = tempfile.SpooledTemporaryFile(4, 'w+')\nf.write(input() + ' ' * 99); f.seek(0)\n"
    "a, b = map(int, f.read().split()); print(a + b)",
    "recursion": "def f(n): return n and f(n - 1)\nf(997)\n" + ADD,
    "digits": "len(str(1 << 40000))\n" + ADD,
    "wrapped_stdout": "import sys, io\nclass W(io.IOBase):\n def __init__(s): s.b = []\n def write(s, t): s.b.append(t)\n"
    " def flush(s): sys.__stdout__.write(''.join(s.b)); s.b = []\n"
    "sys.stdout = W()\n" + ADD,
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_program_gets_the_verdict_of_what_it_did(judge: Judge, name: str):
    program, expected = CASES[name]
    found = judge.judge([Submission(program, sums(1, limits=Limits(cpu_s=0.6, asleep_s=0.4, memory_bytes=256 << 20)))])[
        0
    ]
    assert found.verdict is expected, found.detail


@pytest.mark.parametrize("name", sorted(HABITS))
def test_a_habit_of_real_programs_is_accepted(judge: Judge, name: str):
    found = judge.judge([Submission(HABITS[name], sums(2))])[0]
    assert found.verdict is Verdict.accepted, found.detail


@pytest.mark.parametrize("mode", ["test", "batch"])
def test_both_modes_agree_on_programs_that_keep_state_or_fail_late(mode: Literal["test", "batch"]):
    late = "a, b = map(int, input().split())\nprint(a + b if a < 30 else 0)"
    state = "import sys\na, b = map(int, input().split())\nsys.n = getattr(sys, 'n', 0) + 1\nprint(a + b if sys.n < 5 else 0)"
    leaves = ADD + "import os; os._exit(0)"
    with Judge(workers=1, mode=mode) as judge:
        unflushed, *others = judge.judge([Submission(p, sums(40)) for p in (leaves, ADD, late, state)])
    assert unflushed.verdict is Verdict.wrong_answer
    assert [j.verdict for j in others] == [Verdict.accepted, Verdict.wrong_answer, Verdict.accepted]


REMEMBERING = {
    "decimal_precision": "import decimal\na, b = map(int, input().split())\nc = decimal.getcontext()\n"
    "print(a + b if c.prec != 28 or a == 0 else 0)\nc.prec = 5",
    "exit_function": "import atexit, os\na, b = map(int, input().split())\nprint(a + b, flush=True)\natexit.register(os._exit, 3)",
    "attribute_of_a_module": "import math\na, b = map(int, input().split())\ntry: math.n\nexcept AttributeError: n = 0\n"
    "else: n = 1\nmath.n = 1\nprint(a + b if n or a == 0 else 0)",
    "attribute_of_a_class": "from collections import Counter as C\na, b = map(int, input().split())\ntry: C.n\n"
    "except AttributeError: n = 0\nelse: n = 1\nC.n = 1\nprint(a + b if n or a == 0 else 0)",
    "module_of_its_own": "import sys\na, b = map(int, input().split())\nprint(a + b if 'x' in sys.modules or a == 0 else 0)\n"
    "sys.modules['x'] = sys",
    "cache_of_a_library": "import re\na, b = map(int, input().split())\nn = len(re._cache)\nre.compile('xyz')\n"
    "print(a + b if len(re._cache) == n or a == 0 else 0)",
}


@pytest.mark.parametrize("name", sorted(REMEMBERING))
def test_nothing_a_program_remembers_makes_a_wrong_test_pass(name: str):
    found = {}
    for mode in ("test", "batch"):
        with Judge(workers=1, mode=mode) as judge:
            found[mode] = judge.judge([Submission(REMEMBERING[name], sums(40))])[0].verdict
    assert found["test"] is found["batch"]
    assert found["test"] in (Verdict.wrong_answer, Verdict.runtime_error)


PLAIN = {
    ADD: True,
    "import sys, heapq\nfrom collections import deque\ninput = sys.stdin.readline\nsys.setrecursionlimit(9999)\n"
    + ADD: True,
    "class A:\n  def __init__(s): s.x = 1\n  def __lt__(s, o): return s.x < o.x\n" + ADD: True,
    "import decimal\n" + ADD: False,
    "import os\n" + ADD: False,
    "getattr(int, 'x', 0)\n" + ADD: False,
    "def f():\n  import threading\n" + ADD: False,
    "import numpy\n" + ADD: False,
}


@pytest.mark.parametrize("program", PLAIN)
def test_which_programs_may_run_several_tests_in_one_process(program: str):
    assert bool(traits(compile(program, "p", "exec")) & traits_module.PLAIN) is PLAIN[program]


@pytest.mark.parametrize(
    "program", ["x = []\nwhile 1: x.append(bytearray(1 << 20))", "x = bytearray(3 << 30)", "x = [0] * 10**9"]
)
def test_little_more_memory_is_taken_than_the_limit_says(judge: Judge, program: str):
    limits = Limits(cpu_s=3, memory_bytes=128 << 20)
    hold = "try:\n" + "".join(f"  {line}\n" for line in program.split("\n")) + "except MemoryError: pass\n"
    found = judge.judge([Submission(hold + "print(0)", sums(1, limits=limits))])[0]
    assert found.verdict in (Verdict.memory_limit, Verdict.accepted)
    assert found.memory_bytes < (128 + 120) << 20


def test_several_tests_of_a_plain_program_really_run_in_one_process():
    program = "import sys, random\nfrom collections import Counter\ninput = sys.stdin.readline\n" + ADD
    with Judge(workers=1, mode="batch") as judge:
        found = judge.judge([Submission(program, sums(40))])[0]
    shares = [test.cpu_s for test in found.tests]
    assert found.verdict is Verdict.accepted
    assert len(set(shares)) <= 6


def test_time_used_by_a_whole_group_never_excuses_one_test():
    slow = "import sys\na, b = map(int, input().split())\nif a == 20:\n  while True: pass\nprint(a + b)"
    with Judge(workers=1, mode="batch") as judge:
        assert judge.judge([Submission(slow, sums(40))])[0].verdict is Verdict.time_limit


def test_results_come_in_order_and_equal_programs_are_judged_once(local: Judge):
    programs = [ADD, "print(0)", ADD, ADD + "# a comment", "print(0)"]
    found = local.judge([Submission(program, sums(4)) for program in programs])
    assert [j.verdict is Verdict.accepted for j in found] == [True, False, True, True, False]
    assert found[2].reused
    assert found[4].reused


def test_a_store_is_asked_before_anything_runs_and_told_afterwards():
    class Store:
        def __init__(self) -> None:
            self.kept: dict[tuple[str, str], Judgement] = {}

        def get(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Judgement]:
            return {key: self.kept[key] for key in keys if key in self.kept}

        def put(self, judgements: Mapping[tuple[str, str], Judgement]) -> None:
            self.kept.update(judgements)

    store = Store()
    for expected in (False, True):
        with Judge(workers=1, store=store) as judge:
            assert judge.judge([Submission(ADD, sums(2))])[0].reused is expected
    with Judge(workers=1, store=store) as judge:
        assert judge.judge([Submission(ADD + "#", sums(2))])[0].reused


def test_without_early_exit_every_test_is_reported():
    program = "a, b = map(int, input().split())\nprint(a + b if a % 2 else -1)"
    with Judge(workers=1, stop_at_first_failure=False) as judge:
        found = judge.judge([Submission(program, sums(6))])[0]
    assert (found.passed, found.total, len(found.tests)) == (3, 6, 6)


@pytest.mark.parametrize("mode", ["test", "batch"])
def test_every_test_has_an_outcome_and_the_first_failure_its_output(mode: Literal["test", "batch"]):
    program = "a, b = map(int, input().split())\nprint(a + b if a % 3 else 'odd' * 500)"
    with Judge(workers=1, mode=mode, stop_at_first_failure=False) as judge:
        (found,) = judge.judge([Submission(program, replace(sums(6), suite_id="outcomes"))])
    assert found.outcomes == "waawaa"
    assert found.detail.startswith("test 1:")
    assert found.output == ("odd" * 500)[:1000]
    with Judge(workers=1, mode=mode) as judge:
        (stopped,) = judge.judge([Submission(program, replace(sums(6), suite_id="outcomes"))])
        (broken,) = judge.judge([Submission("def f(:", sums(6))])
    assert stopped.outcomes == "w....."
    assert broken.outcomes == "......"
    assert broken.output == ""


@pytest.mark.parametrize("mode", ["test", "batch"])
def test_a_suite_that_wants_every_test_run_gets_it_from_a_judge_that_stops_early(mode: Literal["test", "batch"]):
    program = "a, b = map(int, input().split())\nprint(a + b if a % 2 else -1)"
    whole = replace(sums(6), suite_id="whole", every_test=True)
    with Judge(workers=1, mode=mode) as judge:
        stopped, found = judge.judge([Submission(program, sums(6)), Submission(program, whole)])
    assert len(stopped.tests) < 6
    assert (found.passed, found.total, len(found.tests)) == (3, 6, 6)


def test_a_test_that_failed_one_program_meets_the_next_one_first():
    with Judge(workers=1) as judge:
        found = [
            judge.judge([Submission(f"a, b = map(int, input().split())\nprint(a + b if a != 9 else {n})", sums(20))])[0]
            for n in (1, 2)
        ]
    assert [len(j.tests) for j in found] == [10, 1]


def test_a_lost_runner_is_replaced_and_the_verdict_still_comes():
    with watched(workers=1) as (judge, runners):
        (runner,) = runners()
        os.kill(runner, signal.SIGKILL)
        assert judge.judge([Submission(ADD, sums(1))])[0].verdict is Verdict.accepted


def test_several_threads_share_one_judge(local: Judge):
    found: list[Verdict] = []

    def ask(n: int) -> None:
        found.extend(j.verdict for j in local.judge([Submission(ADD + f"# {n} {k}", sums(2)) for k in range(5)]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Verdict.accepted] * 20


def test_a_special_checker_decides_on_the_host():
    def any_factor(_given: str, output: str, expected: str) -> str:
        words = output.split()
        return "" if len(words) == 1 and words[0].isdigit() and words[0] in expected.split() else "no factor"

    suite = Suite("factor", (TestCase("12", "2 3 4 6"),), Checker("special", name="factor"))
    with Judge(workers=1, special={"factor": any_factor}) as judge:
        found = judge.judge([Submission(program, suite) for program in ("print(4)", "print(5)")])
    assert [j.verdict for j in found] == [Verdict.accepted, Verdict.wrong_answer]


def test_a_suite_nobody_can_judge_is_refused_by_name(local: Judge):
    empty = Suite("empty", ())
    assert "no tests" in judgeable(empty)
    with refused("InvalidSuite", "empty"):
        local.judge([Submission(ADD, empty)])


def test_the_embedded_backend_describes_its_walls():
    (found,) = describe_walls(("embedded",))
    assert found.works
    assert "seccomp" in found.walls


def state_of(pid: int) -> dict[str, int]:
    """Resident pages, descriptors, threads and children of a process."""
    process = Path(f"/proc/{pid}")
    return {
        "pages": int((process / "statm").read_text().split()[1]),
        "descriptors": len(os.listdir(process / "fd")) if os.access(process / "fd", os.R_OK) else 0,
        "threads": len(os.listdir(process / "task")),
        "children": len((process / "task" / str(pid) / "children").read_text().split()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("style", ["stdin", "function"])
def test_a_thousand_submissions_leave_no_trace_in_one_runner_or_the_host(style: str):
    if style == "stdin":
        program, suite = ADD, sums(2)
    else:
        program, suite = "def f(n): return n", Suite("f", (TestCase("assert f(1) == 1"),), style="function")
    with watched(workers=1) as (judge, runners):
        judge.judge([Submission(program + f"# warm {n}", suite) for n in range(100)])
        pids = runners()
        before = [state_of(pid) for pid in (*pids, os.getpid())]
        judge.judge([Submission(program + f"\nx = {n}", suite) for n in range(1000)])
        after = [state_of(pid) for pid in (*pids, os.getpid())]
    for earlier, later in zip(before, after, strict=True):
        assert later["pages"] <= earlier["pages"] + 512
        assert {**later, "pages": 0} == {**earlier, "pages": 0}


def test_a_problem_whose_special_checker_is_missing_is_known_beforehand():
    suite = Suite("special", (TestCase("1", "1"),), Checker("special", name="any_factor"))
    assert "special checker 'any_factor'" in judgeable(suite)
    assert judgeable(suite, {"any_factor"}) == ""
    with Judge(workers=1) as judge, refused("InvalidSuite", "'any_factor'"):
        judge.judge([Submission(ADD, suite)])


def test_a_memory_limit_above_the_containers_is_refused_by_name():
    suite = sums(1, limits=Limits(memory_bytes=3 << 30))
    assert refusal(suite, ()) == ""
    assert "3072 MiB, but a container has 3072" in refusal(suite, (), 3 << 30)
    assert refusal(suite, (), 4 << 30) == ""


@pytest.mark.docker
def test_a_judge_of_containers_refuses_a_limit_above_theirs():
    with (
        open_judge(("docker", {"memory_bytes": 1 << 30}), workers=1) as judge,
        refused("InvalidSuite"),
    ):
        judge.judge([Submission(ADD, sums(1, limits=Limits(memory_bytes=1 << 30)))])


ESCAPES = "\x1b]0;title\x07\x1b[2J\u202e\r"


@pytest.mark.parametrize(
    "program",
    [f"raise ValueError({ESCAPES!r})", f"print({ESCAPES!r})", f"import sys; sys.exit({ESCAPES!r})", f"x = ?{ESCAPES}"],
)
def test_a_detail_holds_nothing_a_terminal_would_obey(local: Judge, program: str):
    found = local.judge([Submission(program, sums(1))])[0]
    for detail in (found.detail, *(test.detail for test in found.tests)):
        assert detail.isprintable()


def test_an_answer_cannot_speak_to_a_terminal_either(local: Judge):
    suite = Suite("speaks", (TestCase("assert f(1) == 2, f(1)"),), style="function")
    found = local.judge([Submission(f"def f(n): return {ESCAPES!r}", suite)])[0]
    assert found.verdict is Verdict.wrong_answer
    assert found.detail.isprintable()
