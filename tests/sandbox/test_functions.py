"""Function-style problems: a program passes by returning the right values and in no other way."""

# ruff: noqa: E501  programs are data

import textwrap
from dataclasses import replace

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
    "null_answers": "import os\nfor fd in range(3, 300):\n  try: os.write(fd, b'[null, null, null]')\n  except OSError: pass\nos._exit(0)",
    "deep_json": "import os\nfor fd in range(3, 300):\n  try: os.write(fd, b'[' * 200000)\n  except OSError: pass\nos._exit(0)",
    "unhashable_keys": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"result": ["d", [[["l", []], 1]]], "args": []}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "unknown_label": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"result": ["=", 0], "args": []}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "label_inside_itself": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"result": ["&", 0, ["l", [["=", 0]]]], "args": []}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "label_that_is_a_list": 'import os\nfor fd in range(3, 300):\n  try: os.write(fd, b\'[{"result": ["&", [], 3], "args": []}]\')\n'
    "  except OSError: pass\nos._exit(0)",
    "list_of_itself_many_times": "def add(a, b):\n  x = [0]\n  for _ in range(60): x = [x] * 10\n  return x",
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


OWN_MODULE = {
    "dataclass": """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class P:
            x: int
        def add(a, b): return P(a).x + b
        """,
    "quoted": """
        from dataclasses import dataclass
        @dataclass
        class Node:
            value: int
            next: "Node | None" = None
        def add(a, b): return a + Node(a, Node(b)).next.value
        """,
    "itself": """
        import sys
        me = sys.modules[__name__]
        def add(a, b): return me.plus(a, b)
        def plus(a, b): return a + b
        """,
    "pickle": """
        import pickle
        class P:
            def __init__(self, x): self.x = x
        def add(a, b): return pickle.loads(pickle.dumps(P(a))).x + b
        """,
    "type_hints": """
        import typing
        class Node:
            next: "Node"
        def add(a, b): return a + b if typing.get_type_hints(Node)["next"] is Node else 0
        """,
}


@pytest.mark.parametrize("name", sorted(OWN_MODULE))
def test_a_program_finds_its_own_module(local: Judge, name: str):
    assert verdict(local, textwrap.dedent(OWN_MODULE[name])) is Verdict.accepted


def test_calls_may_depend_on_earlier_answers(local: Judge):
    suite = Suite("chain", (TestCase("x = f(1)\nassert f(x) == 3\nassert f(f(x)) == 4"),), style="function")
    assert verdict(local, "def f(n): return n + 1", suite) is Verdict.accepted


def test_what_a_function_prints_is_not_counted(local: Judge):
    suite = Suite("loud", (TestCase("for n in range(500):\n  assert f(n) == n"),), style="function")
    assert verdict(local, "def f(n):\n  print('x' * 9000)\n  return n", suite) is Verdict.accepted


PRELUDE = "from typing import *"
FUTURES = {
    "byte order mark": "\ufeffdef f(n: List): return n",
    "two spaces": "from  __future__ import annotations\ndef f(n: List): return n",
    "continued": "from __future__ import \\\n  annotations\ndef f(n: List): return n",
    "in brackets": "from __future__ import (\n  annotations,\n)\ndef f(n: List): return n",
    "in a docstring": '"""\nfrom __future__ import annotations\n"""\ndef f(n: List): return n',
    "none": "def f(n: List): return n",
}


@pytest.mark.parametrize("name", sorted(FUTURES))
def test_a_prelude_stands_behind_the_imports_from_the_future(local: Judge, name: str):
    suite = Suite("typed", (TestCase("assert f([1]) == [1]"),), style="function", prelude=PRELUDE)
    assert verdict(local, FUTURES[name], suite) is Verdict.accepted


def test_exceptions_of_builtin_types_reach_the_test(local: Judge):
    code = "try:\n    f(0)\nexcept ZeroDivisionError:\n    pass\nelse:\n    assert False"
    suite = Suite("raises", (TestCase(code),), style="function")
    assert verdict(local, "def f(n): return 1 // n", suite) is Verdict.accepted
    assert verdict(local, "def f(n): return 1", suite) is Verdict.wrong_answer


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


BROUGHT_ABOUT = {
    "unbound loop variable": ("for x in f(1): pass\nassert x == 1", "def f(n): return []"),
    "unbound name": ("if f(1) == 1:\n    y = 1\nassert y == 1", "def f(n): return 2"),
    "imports an answer": ("import importlib\nassert importlib.import_module(f(1))", "def f(n): return 'no_such'"),
    "attribute of an answer": ("assert f(1).real == 1", "def f(n): return 'x'"),
    "no such class": ("assert Solution().f(1) == 1", "def f(n): return 1"),
}


@pytest.mark.parametrize("name", sorted(BROUGHT_ABOUT))
def test_what_the_answers_bring_about_is_the_programs(local: Judge, name: str):
    test, program = BROUGHT_ABOUT[name]
    suite = Suite(name, (TestCase(test),), style="function", entry_point="f", limits=Limits(cpu_s=1))
    assert verdict(local, program, suite) not in (Verdict.accepted, Verdict.infra)


UNJUDGEABLE = {
    "eval of an answer": ("assert eval(f(1)) == 1", "eval"),
    "import of nothing": ("import no_such_module\nassert f(1) == 1", "no_such_module"),
    "import of nothing later": ("x = f(1)\nimport no_such_module\nassert x == 1", "no_such_module"),
    "own object": ("class A: pass\nassert f(A()) == 1", "'A'"),
    "callback that remembers": ("seen = []\nassert f(lambda x: seen.append(x)) == 1", "list"),
    "recursive function": ("def g(n): return n and g(n - 1)\nassert f(g) == 1", "g"),
    "undefined helper": ("assert helper(f(1)) == 1", "helper"),
    "fails by itself": ("assert 1 == 2", "assertion"),
}


@pytest.mark.parametrize("name", sorted(UNJUDGEABLE))
def test_a_test_that_nobody_can_judge_by_says_why_and_is_no_verdict(local: Judge, name: str):
    test, word = UNJUDGEABLE[name]
    suite = Suite(name, (TestCase(test),), style="function", entry_point="f")
    found = local.judge([Submission("def f(n): return 1", suite)])[0]
    assert found.verdict is Verdict.infra
    assert "cannot be judged" in found.detail
    assert word in found.detail


def test_a_share_of_tests_of_which_one_cannot_be_judged_is_no_share(local: Judge):
    wrong, nobodys = TestCase("assert f(1) == 2"), TestCase(UNJUDGEABLE["own object"][0])
    suite = Suite("a share", (wrong, nobodys), style="function", entry_point="f", every_test=True)
    assert verdict(local, "def f(n): return 1", suite) is Verdict.infra
    assert (
        verdict(local, "def f(n): return 1", replace(suite, suite_id="no share", every_test=False))
        is Verdict.wrong_answer
    )


CARRIED = {
    "decimal": ("from decimal import Decimal as D\nassert f(D('0.1')) == D('0.3')", "def f(d): return d * 3"),
    "fraction": ("from fractions import Fraction as Q\nassert f(Q(1, 3)) == Q(2, 3)", "def f(q): return 2 * q"),
    "date": (
        "import datetime as d\nassert f(d.date(2024, 2, 28)) == d.date(2024, 2, 29)",
        "import datetime\ndef f(x): return x + datetime.timedelta(1)",
    ),
    "datetime": (
        "from datetime import *\nx = datetime(2024, 1, 1, tzinfo=timezone.utc)\nassert f(x, x) == timedelta(0)",
        "def f(a, b): return a - b",
    ),
    "zone": (
        "from datetime import *\nassert f() == datetime(2024, 1, 1, 12, tzinfo=timezone.utc)",
        "from datetime import *\ndef f(): return datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))",
    ),
    "lambda": ("assert f(lambda x: x + 1, 3) == 4", "def f(g, x): return g(x)"),
    "lambda of a lambda": ("k = 2\nassert f(lambda x: (lambda y: y + k)(x), 3) == 5", "def f(g, x): return g(x)"),
    "def": (
        "import math\ndef g(x, *, up=1): return math.floor(x) + up\nassert f(g, 3.5) == 4",
        "def f(g, x): return g(x)",
    ),
    "builtin": ("assert f(max, [1, 3]) == 3 and f(str.upper, 'a') == 'A'", "def f(g, x): return g(x)"),
    "own function": ("assert f(square, 3) == 9", "def square(n): return n * n\ndef f(g, x): return g(x)"),
    "defaultdict": (
        "from collections import defaultdict\nassert f(defaultdict(list, a=[1])) == {'a': [1], 'b': []}",
        "def f(d): d['b']; return d",
    ),
    "defaultdict with a function": (
        "from collections import defaultdict\nassert f(defaultdict(lambda: 7))['x'] == 7",
        "def f(d): d['x']; return d",
    ),
    "counter": (
        "from collections import Counter\nassert f('aab').most_common(1) == [('a', 2)]",
        "from collections import Counter\ndef f(s): return Counter(s)",
    ),
    "ordered dictionary": (
        "from collections import OrderedDict as O\nassert f(O(a=1, b=2)) != O(b=2, a=1)",
        "def f(d): return d",
    ),
    "named tuple": (
        "assert f(1).x == 1 and f(1)[1] == 2",
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(n): return P(n, 2)",
    ),
    "named tuple of the test": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\nassert f(P(1, 2)) == 3",
        "def f(p): return p.x + p.y",
    ),
    "array": (
        "from array import array\na = array('i', [1])\nf(a)\nassert a == array('i', [1, 2])",
        "def f(a): a.append(2)",
    ),
    "closure": ("g = f(3)\nassert g(4) == 7 and g(5) == 8", "def f(n): return lambda m: n + m"),
    "closures in a list": (
        "assert [g(1) for g in f(3)] == [1, 2, 3]",
        "def f(n): return [lambda m, k=k: m + k for k in range(n)]",
    ),
    "closure with memory": (
        "g = f()\nassert g() == 1\nassert g() == 2",
        "def f():\n  n = 0\n  def g():\n    nonlocal n; n += 1; return n\n  return g",
    ),
    "object": (
        "s = Stack()\ns.push(3)\ns.push(4)\nassert s.pop() == 4 and s.items == [3]",
        "class Stack:\n  def __init__(s): s.items = []\n"
        "  def push(s, x): s.items.append(x)\n  def pop(s): return s.items.pop()",
    ),
    "attributes set by the test": (
        "a = Node(1)\na.next = Node(2)\na.next.next = None\na.value += 5\nassert f(a) == 8",
        "class Node:\n  def __init__(s, v): s.value, s.next = v, 0\n"
        "def f(n): return n.value + (f(n.next) if n.next else 0)",
    ),
    "method": ("assert Solution().f([1, 2]) == 3", "class Solution:\n  def f(self, x): return sum(x)"),
    "objects as arguments": (
        "assert f([Pair(1, 2), Pair(3, 4)]) == 10",
        "class Pair:\n  def __init__(s, a, b): s.a, s.b = a, b\ndef f(ps): return sum(p.a + p.b for p in ps)",
    ),
    "custom exception": (
        "try:\n  f(1)\nexcept ValueError as e:\n  assert str(e) == 'no'\nelse:\n  assert False",
        "class Bad(ValueError): pass\ndef f(n): raise Bad('no')",
    ),
    "custom exception by name": (
        "try:\n  f(1)\nexcept Bad as e:\n  assert e.args == (1, 'x')\nelse:\n  assert False",
        "class Bad(Exception): pass\ndef f(n): raise Bad(n, 'x')",
    ),
    "stop iteration": (
        "try:\n  f(1)\nexcept StopIteration:\n  pass\nelse:\n  assert False",
        "def f(n): raise StopIteration",
    ),
    "is": ("x = [2, 1]\nassert f(x) is x and x == [1, 2]", "def f(x): x.sort(); return x"),
    "is none": ("assert f(1) is None and f(0) is not None", "def f(n): return None if n else 0"),
    "much": ("x = list(range(200_000))\nassert f(x) == x[::-1]", "def f(x): return x[::-1]"),
    "much text": ("assert f('ab' * 700_000) == 'ba' * 700_000", "def f(s): return s[::-1]"),
}


@pytest.mark.parametrize("name", sorted(CARRIED))
def test_values_are_carried_over(local: Judge, name: str):
    test, program = CARRIED[name]
    entry_point = "f" if "f(" in test and "Solution" not in test and "square" not in test else ""
    found = local.judge(
        [Submission(program, Suite(name, (TestCase(test),), style="function", entry_point=entry_point))]
    )[0]
    assert found.verdict is Verdict.accepted, found.detail


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
    suite = replace(SUITE, suite_id="endless", limits=Limits(cpu_s=0.3))
    assert verdict(local, "def add(a, b):\n  while True: pass", suite) is Verdict.time_limit
