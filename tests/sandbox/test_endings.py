"""What a program prints at its very end, and how it ends, beside plain Python."""

# ruff: noqa: E501  programs are data

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict
from sandbox.traits import LAST_WORDS, traits

LOUD = "class L:\n def __del__(s): print(s.n)\nl = L(); l.n = 3\n"
SUSPENDED = "def g():\n try: yield 1\n finally: print(3)\nx = g(); next(x)\n"

ENDINGS = {
    "wrapper_around_the_detached_stream": "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint(3)",
    "detached": "import sys\nsys.stdout.detach().write(b'3')",
    "detached_and_put_aside": "import sys\nb = sys.stdout.detach()\nsys.stdout = None\nb.write(b'3')",
    "writer_around_the_detached_stream": "import sys, codecs\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())\nprint(3)",
    "second_wrapper": "import sys, io\nout = io.TextIOWrapper(sys.stdout.buffer)\nprint(1); out.write('3')",
    "fdopen": "import os\nf = os.fdopen(1, 'w')\nf.write('3')",
    "fdopen_as_stdout": "import os, sys\nprint(1)\nsys.stdout = os.fdopen(1, 'w')\nprint(3)",
    "open_that_keeps_the_descriptor": "f = open(1, 'w', closefd=False)\nprint(1)\nf.write('3')",
    "file_kept_in_a_module": "import sys\nsys.f = open(1, 'w', closefd=False)\nsys.f.write('3')",
    "opened_by_a_default": "def f(mode='w'): return open(1, mode)\nx = f()\nx.write('3')",
    "stream_closed": "import sys\nprint(3)\nsys.stdout.close()",
    "descriptor_closed": "import os\nprint(3)\nos.close(1)",
    "stream_deleted": "import sys\nprint(3)\ndel sys.stdout",
    "stream_none": "import sys\nprint(3)\nsys.stdout = None",
    "stream_whose_flush_fails": "import sys\nclass W:\n def write(s, t): return len(t)\n def flush(s): 1 / 0\nprint(3)\nsys.stdout = W()",
    "first_stream_broken": "import sys, io\nsys.stdout = io.StringIO()\nsys.__stdout__ = None\nprint(3)",
    "suspended_generator": SUSPENDED,
    "suspended_in_a_list": SUSPENDED + "kept = [x]; del x\nprint(1)",
    "suspended_context": "import contextlib\n@contextlib.contextmanager\ndef g():\n try: yield 1\n finally: print(3)\nx = g(); x.__enter__()",
    "suspended_and_failed": SUSPENDED + "1 / 0",
    "generator_without_try": "def g():\n yield 1\n print(3)\nx = g(); print(next(x))",
    "del_of_a_global": LOUD,
    "del_in_a_module": LOUD + "import builtins\nbuiltins.l = l; del l",
    "del_in_a_cycle": LOUD + "l.me = l",
    "del_in_a_thread_local": LOUD + "import threading\nt = threading.local(); t.l = l; del l",
    "del_of_several": LOUD + "a = L(); a.n = 1; b = L(); b.n = 2; b.a = a",
    "del_that_fails": LOUD + "l.n = None; del l.n",
    "del_before_exit": LOUD + "exit(0)",
    "del_of_a_made_class": "l = type('L', (), {'__del__': lambda s: print(3)})()",
    "del_in_text": f"exec({LOUD!r})",
    "weak_reference": "import weakref\nclass L: pass\nl = L(); weakref.finalize(l, print, 3)",
    "atexit": "import atexit\natexit.register(print, 3)\nprint(1)",
    "atexit_in_del": "import atexit\n" + LOUD + "atexit.register(lambda l=l: print(1)); del l",
    "atexit_that_fails": "import atexit\natexit.register(lambda: 1 / 0)\nprint(3)",
    "atexit_that_exits": "import atexit, sys\natexit.register(lambda: sys.exit(3))\nprint(3)",
    "atexit_after_a_failure": "import atexit\natexit.register(print, 3)\n1 / 0",
    "thread_before_del": LOUD + "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.01), print(1))).start()",
    "pool": "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(2)\n" + LOUD + "p.submit(print, 1)",
    "left_loop": "import asyncio\nasync def f():\n try: await asyncio.sleep(9)\n finally: print(3)\nloop = asyncio.new_event_loop()\nt = loop.create_task(f())\nloop.run_until_complete(asyncio.sleep(0))",
}  # fmt: skip


def plain_python(program: str) -> str | None:
    """What the running interpreter prints; None if it ends with another status than 0."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    return done.stdout if done.returncode == 0 else None


@pytest.mark.parametrize("name", sorted(ENDINGS))
def test_a_program_ends_as_in_plain_python(judge: Judge, name: str):
    suite = Suite(f"ending-{name}", (TestCase("", ""),), keep_outputs=True, limits=Limits(cpu_s=2))
    found = judge.judge([Submission(ENDINGS[name], suite)])[0]
    expected = plain_python(ENDINGS[name])
    assert found.verdict is (Verdict.runtime_error if expected is None else Verdict.accepted), found.detail
    if expected is not None:
        assert found.tests[0].output == expected.encode()


@pytest.mark.parametrize("name", ["open_that_keeps_the_descriptor", "del_in_a_cycle", "suspended_generator"])
def test_a_program_ends_alike_where_several_tests_share_a_process(name: str):
    expected = plain_python(ENDINGS[name])
    assert expected is not None
    suite = Suite(f"endings-{name}", tuple(TestCase(f"{k}", expected) for k in range(40)))
    with Judge(workers=1, mode="batch") as judge:
        assert judge.judge([Submission(ENDINGS[name], suite)])[0].verdict is Verdict.accepted


MANNERS = {
    "print(sum(map(int, open(0).read().split())))": False,
    "def g(n):\n yield n\nprint(*g(1))": False,
    "try: print(1)\nfinally: print(2)": False,
    "f = open('/dev/stdout', mode='w')": True,
    "def g():\n with f: yield": True,
}


@pytest.mark.parametrize("program", MANNERS)
def test_only_programs_that_may_write_when_destroyed_pay_for_the_end_of_an_interpreter(program: str):
    assert bool(traits(compile(program, "p", "exec")) & LAST_WORDS) is MANNERS[program]
