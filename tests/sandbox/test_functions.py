"""Function-style problems: a program passes by returning the right values and in no other way."""

# ruff: noqa: E501  programs are data

import pytest

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict

ASSERTS = (
    TestCase("assert add(1, 2) == 3"),
    TestCase("assert add([1], [2]) == [1, 2]\nassert add('a', 'b') == 'ab'\nassert abs(add(0.1, 0.2) - 0.3) < 1e-9"),
)
SUITE = Suite("add", ASSERTS, style="function", limits=Limits(cpu_s=1))
CHECK = Suite(
    "check",
    (
        TestCase(
            "def check(candidate):\n    for n in range(20):\n        x = [n]\n        candidate(x)\n        assert x == [n, n]\n"
        ),
    ),
    style="function",
    entry_point="double",
)

FORGERIES = {
    "always_equal": "class E:\n  __eq__ = lambda s, o: True\ndef add(a, b): return E()",
    "always_equal_int": "class I(int):\n  __eq__ = lambda s, o: True\n  __hash__ = int.__hash__\ndef add(a, b): return I(0)",
    "always_equal_list": "class L(list):\n  __eq__ = lambda s, o: True\ndef add(a, b): return L()",
    "exit_zero": "import os; os._exit(0)",
    "system_exit": "raise SystemExit(0)",
    "exit_when_called": "def add(a, b): import os; os._exit(0)",
    "no_assertions": "import builtins\nbuiltins.AssertionError = ValueError\ndef add(a, b): return 0",
    "patch_json": "import json\njson.dumps = lambda *a, **k: 'A'\ndef add(a, b): return 0",
    "write_everywhere": "import os\nfor fd in range(1, 300):\n  try: os.write(fd, b'A')\n  except OSError: pass\nos._exit(0)",
    "forged_answers": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"result": true, "args": []}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "raise_assertion": "def add(a, b): raise AssertionError",
    "frames": "import sys\ndef add(a, b):\n  f = sys._getframe()\n  while f:\n    f.f_globals['passed'] = True; f = f.f_back\n  return 0",
    "no_answers": "import os\nfor fd in range(3, 300):\n  try: os.write(fd, b'[]')\n  except OSError: pass\nos._exit(0)",
    "deep_json": "import os\nfor fd in range(3, 300):\n  try: os.write(fd, b'[' * 200000)\n  except OSError: pass\nos._exit(0)",
    "unhashable_keys": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"result": ["d", [[["l", []], 1]]], "args": []}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "made_up_exception": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"raised": "Unanswered", "text": ""}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "name_error": "def add(a, b): raise NameError('add')",
    "not_a_number": "def add(a, b): return float('nan')",
    "huge_integer": "def add(a, b): return 1 << 3_500_000",
    "endless_generator": "def add(a, b):\n  while True: yield 0",
    "patch_abs": "import builtins\nbuiltins.abs = builtins.len = lambda x: 0\ndef add(a, b): return 3",
    "trace": "import sys\ndef add(a, b):\n  sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None); return 3",
    "lying_class": "class E:\n  __class__ = int\n  __eq__ = lambda s, o: True\n  __index__ = lambda s: 3\ndef add(a, b): return E()",
    "system_exit_when_called": "def add(a, b): raise SystemExit(0)",
    "exit_at_the_end": "import atexit, os\natexit.register(os._exit, 0)\ndef add(a, b): return 0",
    "deep": "def add(a, b):\n  x = []\n  for _ in range(100000): x = [x]\n  return x",
}


def verdict(judge: Judge, program: str, suite: Suite = SUITE) -> Verdict:
    return judge.judge([Submission(program, suite)])[0].verdict


def test_a_right_function_is_accepted_and_a_wrong_one_is_not(judge: Judge):
    assert verdict(judge, "def add(a, b): return a + b") is Verdict.accepted
    assert verdict(judge, "def add(a, b): return 3") is Verdict.wrong_answer


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_no_forgery_passes(local: Judge, name: str):
    assert verdict(local, FORGERIES[name]) not in (Verdict.accepted, Verdict.infra)


def test_a_check_function_sees_changed_arguments(local: Judge):
    assert verdict(local, "def double(x): x.append(x[0])", CHECK) is Verdict.accepted
    assert verdict(local, "def double(x): x.append(0)", CHECK) is Verdict.wrong_answer


def test_calls_may_depend_on_earlier_answers(local: Judge):
    suite = Suite("chain", (TestCase("x = f(1)\nassert f(x) == 3\nassert f(f(x)) == 4"),), style="function")
    assert verdict(local, "def f(n): return n + 1", suite) is Verdict.accepted


def test_exceptions_of_builtin_types_reach_the_test(local: Judge):
    code = "try:\n    f(0)\nexcept ZeroDivisionError:\n    pass\nelse:\n    assert False"
    suite = Suite("raises", (TestCase(code),), style="function")
    assert verdict(local, "def f(n): return 1 // n", suite) is Verdict.accepted
    assert verdict(local, "def f(n): return 1", suite) is Verdict.wrong_answer


def test_broken_test_code_is_no_verdict_about_the_program(local: Judge):
    suite = Suite("broken", (TestCase("assert helper(f(1)) == 1"),), style="function", entry_point="f")
    assert verdict(local, "def f(n): return n", suite) is Verdict.infra


@pytest.mark.parametrize(
    "test, program",
    [
        ("assert all(map(lambda n: f(n) == n, [1, 2]))", "def f(n): raise StopIteration"),
        ("print(f(1))\nassert f(1) == 1", "def f(n): return 'A'"),
        ("assert f(1) != 2 and f(2) == 2", "class E:\n  __ne__ = __eq__ = lambda s, o: True\ndef f(n): return E()"),
        (
            "import math\nassert math.isclose(f(1), 1)",
            "class F(float):\n  __sub__ = lambda s, o: 0.0\ndef f(n): return F(7)",
        ),
        ("assert sorted(f(1)) == [1]", "class L(list):\n  __iter__ = lambda s: iter([])\ndef f(n): return L([2])"),
    ],
)
def test_no_forgery_passes_where_the_test_code_invites_it(local: Judge, test: str, program: str):
    suite = Suite(test, (TestCase(test),), style="function", entry_point="f")
    assert verdict(local, program, suite) in (Verdict.wrong_answer, Verdict.runtime_error)


def test_asserts_that_never_come_to_an_end_are_no_verdict_about_the_program(local: Judge):
    suite = Suite("endless", (TestCase("n = 1\nwhile n:\n    n = f(n)"),), style="function", limits=Limits(cpu_s=1))
    found = local.judge([Submission("def f(n): return n + 1", suite)])[0]
    assert found.verdict is Verdict.infra
    assert "further calls" in found.detail


@pytest.mark.parametrize(
    "test, program",
    [
        ("for k in range(100):\n    x = f(k)\n    assert x == k", "def f(n): return n"),
        ("assert f(3) == range(3)", "def f(n): return range(n)"),
        ("assert f({1: 2}) == {1}", "def f(d): return d.keys()"),
        ("assert list(f({1: 2})) == [(1, 2)]", "def f(d): return d.items()"),
        ("assert sum(f({1: 2})) == 2", "def f(d): return d.values()"),
        ("assert sum(10, 15) == 6", "def sum(a, b): return 6"),
        ("assert f((1, 2)) == sys.getsizeof((1, 2))", "import sys\ndef f(t): return sys.getsizeof(t)"),
        ("assert f((1, 'a'), int) == ['a']", "def f(t, kind): return [x for x in t if not isinstance(x, kind)]"),
    ],
)
def test_what_tests_in_use_need_crosses_over(local: Judge, test: str, program: str):
    found = local.judge([Submission(program, Suite(test, (TestCase(test),), style="function"))])[0]
    assert found.verdict is Verdict.accepted, found.detail


def test_an_endless_function_hits_its_time_limit(local: Judge):
    assert verdict(local, "def add(a, b):\n  while True: pass") is Verdict.time_limit
