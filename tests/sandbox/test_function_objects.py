"""Function-style problems whose asserts use objects, coroutines and printed text of the program."""

# ruff: noqa: E501  programs are data

import pytest

from sandbox import Judge, Suite, TestCase, Verdict
from tests.sandbox.functions import assert_decides_as_plain_python, judged

POINT = "class P:\n  def __init__(s, x): s.x = x\n"
STACK = "class S:\n  def __init__(s): s.i = []\n"
CASES = {
    "equal": ("assert P(1) == P(1)\nassert P(1) != P(2)", POINT + "  def __eq__(s, o): return s.x == o.x", POINT),
    "equal inside containers": (
        "assert [P(1), (P(2),)] == [P(1), (P(2),)]\nassert P(3) in [P(1), P(3)]",
        POINT + "  def __eq__(s, o): return s.x == o.x",
        POINT + "  def __eq__(s, o): return s.x == o.x == 1",
    ),
    "dataclass": (
        "assert move(P(1, 2), 3) == P(4, 5)\nassert repr(P(1, 2)) == 'P(x=1, y=2)'",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\n  y: int\ndef move(p, d): return P(p.x + d, p.y + d)",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\n  y: int\ndef move(p, d): return P(p.x + d, p.y)",
    ),
    "order": (
        "assert P(1) < P(2)\nassert not P(2) < P(1)\nassert [p.x for p in sorted([P(2), P(3), P(1)])] == [1, 2, 3]",
        POINT + "  def __lt__(s, o): return s.x < o.x",
        POINT + "  def __lt__(s, o): return s.x < o.x + 2",
    ),
    "order from the right": (
        "assert max(P(1), P(2)).x == 2\nassert P(2) >= P(2)",
        "from functools import total_ordering\n@total_ordering\n"
        + POINT
        + "  def __eq__(s, o): return s.x == o.x\n  def __lt__(s, o): return s.x < o.x",
        POINT + "  def __lt__(s, o): return s.x > o.x\n  def __le__(s, o): return s.x <= o.x",
    ),
    "sum and product": (
        "a = P(1) + P(2)\na += P(4)\nassert a.x == 7\nassert (a - P(2)).x == 5\nassert (P(3) @ P(4)) == 12\nassert -P(2) == P(-2)",
        POINT
        + "  def __add__(s, o): return P(s.x + o.x)\n  def __sub__(s, o): return P(s.x - o.x)\n  def __matmul__(s, o): return s.x * o.x\n  def __neg__(s): return P(-s.x)\n  def __eq__(s, o): return s.x == o.x",
        POINT
        + "  def __add__(s, o): return P(s.x + o.x)\n  def __sub__(s, o): return P(s.x)\n  def __matmul__(s, o): return s.x * o.x\n  def __neg__(s): return P(-s.x)\n  def __eq__(s, o): return s.x == o.x",
    ),
    "from the right": (
        "assert (P(1) + Q(2)).x == 3",
        POINT + "class Q(P):\n  def __radd__(s, o): return Q(s.x + o.x)",
        POINT + "class Q(P):\n  def __radd__(s, o): return Q(s.x)",
    ),
    "hash": (
        "assert len({P(1), P(1), P(2)}) == 2\nassert {P(1): 'a'}[P(1)] == 'a'",
        POINT + "  def __eq__(s, o): return s.x == o.x\n  def __hash__(s): return s.x",
        POINT + "  def __eq__(s, o): return s is o\n  def __hash__(s): return s.x",
    ),
    "unhashable": (
        "try:\n  {P(1)}\n  assert False, 'hashed'\nexcept TypeError:\n  pass",
        POINT + "  def __eq__(s, o): return s.x == o.x",
        POINT,
    ),
    "length and truth": (
        "s = S()\nassert len(s) == 0 and not s\ns.add(1)\nassert len(s) == 1 and s",
        STACK + "  def add(s, x): s.i.append(x)\n  def __len__(s): return len(s.i)",
        STACK + "  def add(s, x): pass\n  def __len__(s): return len(s.i)",
    ),
    "truth": (
        "s = S()\nassert not s\ns.add(1)\nassert s",
        STACK + "  def add(s, x): s.i.append(x)\n  def __bool__(s): return bool(s.i)",
        STACK + "  def add(s, x): s.i.append(x)",
    ),
    "iteration": (
        "assert list(C(3)) == [0, 1, 2]\nassert [x for x in C(2)] == [0, 1]\nassert 1 in C(2)\nassert list(reversed(C(2))) == [1, 0]",
        "class C:\n  def __init__(s, n): s.n = n\n  def __iter__(s): return iter(range(s.n))\n  def __reversed__(s): return reversed(range(s.n))",
        "class C:\n  def __init__(s, n): s.n = n\n  def __iter__(s): return iter(range(s.n + 1))\n  def __reversed__(s): return reversed(range(s.n))",
    ),
    "indexing": (
        "m = M()\nm['a'] = 1\nassert m['a'] == 1\ndel m['a']\nassert m.size() == 0",
        "class M:\n  def __init__(s): s.d = {}\n  def __setitem__(s, k, v): s.d[k] = v\n  def __getitem__(s, k): return s.d[k]\n  def __delitem__(s, k): del s.d[k]\n  def size(s): return len(s.d)",
        "class M:\n  def __init__(s): s.d = {}\n  def __setitem__(s, k, v): s.d[k] = v\n  def __getitem__(s, k): return s.d[k]\n  def __delitem__(s, k): pass\n  def size(s): return len(s.d)",
    ),
    "slices": (
        "assert V([1, 2, 3])[1:] == [2, 3]\nassert V([1, 2])[-1] == 2",
        "class V:\n  def __init__(s, i): s.i = i\n  def __getitem__(s, k): return s.i[k]",
        "class V:\n  def __init__(s, i): s.i = i\n  def __getitem__(s, k): return s.i[0]",
    ),
    "context manager": (
        "r = R()\nwith r as x:\n  assert x.open\nassert not r.open",
        "class R:\n  open = False\n  def __enter__(s): s.open = True; return s\n  def __exit__(s, *a): s.open = False",
        "class R:\n  open = False\n  def __enter__(s): s.open = True; return s\n  def __exit__(s, *a): pass",
    ),
    "context manager that swallows": (
        "with quiet(ValueError):\n  f(-1)\nassert f(1) == 1\ntry:\n  with quiet(KeyError):\n    f(-1)\n  assert False, 'swallowed'\nexcept ValueError:\n  pass",
        "class quiet:\n  def __init__(s, k): s.k = k\n  def __enter__(s): pass\n  def __exit__(s, t, e, tb): return t is not None and issubclass(t, s.k)\ndef f(n):\n  if n < 0: raise ValueError\n  return n",
        "class quiet:\n  def __init__(s, k): s.k = k\n  def __enter__(s): pass\n  def __exit__(s, t, e, tb): return True\ndef f(n):\n  if n < 0: raise ValueError\n  return n",
    ),
    "text": (
        "assert str(P(1)) == 'P1'\nassert repr(P(2)) == 'P2'\nassert f'{P(3)}' == 'P3'",
        POINT + "  def __repr__(s): return f'P{s.x}'",
        POINT,
    ),
    "numbers": (
        "import math\nassert int(P(3)) == 3 and float(P(3)) == 3.0 and [5, 6][P(1)] == 6 and abs(P(-2)) == 2\nassert math.isclose(P(2), 2.0)",
        POINT
        + "  def __int__(s): return s.x\n  def __float__(s): return float(s.x)\n  def __index__(s): return s.x\n  def __abs__(s): return abs(s.x)",
        POINT
        + "  def __int__(s): return s.x\n  def __float__(s): return float(s.x)\n  def __index__(s): return s.x\n  def __abs__(s): return s.x",
    ),
    "what can be called": (
        "assert callable(f(1)) and not callable(g())\nassert f(1)(2) == 3",
        "def f(n): return lambda m: n + m\nclass G: pass\ndef g(): return G()",
        "def f(n): return lambda m: n + m\nclass G:\n  def __call__(s): pass\ndef g(): return G()",
    ),
    "type name": (
        "assert type(f(1)).__name__ == 'P'",
        "class P: pass\ndef f(n): return P()",
        "class P: pass\ndef f(n): return n",
    ),
    "enumeration": (
        "assert [c.name for c in Color] == ['RED', 'BLUE']\nassert Color['RED'] == Color.RED != Color.BLUE\nassert Color(2) is Color.BLUE\nassert Color and len(Color) == 2 and Color.RED in Color",
        "from enum import Enum\nclass Color(Enum):\n  RED = 1\n  BLUE = 2",
        "from enum import Enum\nclass Color(Enum):\n  RED = 1\n  GREEN = 2",
    ),
    "attributes of any name": (
        "p = P(5)\nassert p._number == 5 and p._record == 5 and p._kind == 5 and p._name == 5\np._number = 6\nassert p.x == 6",
        "class P:\n  def __init__(s, x): s._number = s._record = s._kind = s._name = x\n  @property\n  def x(s): return s._number",
        "class P:\n  def __init__(s, x): s._record = s._kind = s._name = x; s._number = 0\n  @property\n  def x(s): return s._number",
    ),
    "attributes of a class of any name": (
        "assert P._name == 'p' and P._record == 1",
        "class P:\n  _name, _record = 'p', 1",
        "class P:\n  _name, _record = 'P', 1",
    ),
    "linked list": (
        "node, seen = build([1, 2, 3]), []\nwhile node:\n  seen.append(node.val)\n  node = node.next\nassert seen == [1, 2, 3]",
        "class N:\n  def __init__(s, val, next=None): s.val, s.next = val, next\ndef build(xs): return N(xs[0], build(xs[1:])) if xs else None",
        "class N:\n  def __init__(s, val, next=None): s.val, s.next = val, next\ndef build(xs): return N(xs[0], build(xs[2:])) if xs else None",
    ),
    "coroutine": (
        "import asyncio\nassert asyncio.run(f(1)) == 2\nasync def both(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(both()) == [2, 3]",
        "import asyncio\nasync def f(n):\n  await asyncio.sleep(0)\n  return n + 1",
        "async def f(n): return 2",
    ),
    "coroutine that has to fail": (
        "import asyncio\ntry:\n  asyncio.run(f(-1))\n  assert False, 'no error'\nexcept ValueError as e:\n  assert str(e) == 'neg'\nassert asyncio.run(f(1)) == 1",
        "async def f(n):\n  if n < 0: raise ValueError('neg')\n  return n",
        "async def f(n): return n",
    ),
    "asynchronous iteration": (
        "import asyncio\nasync def main():\n  assert [x async for x in f(3)] == [0, 1, 2]\n  async with R() as r:\n    assert r.open\n  assert not r.open\nasyncio.run(main())",
        "async def f(n):\n  for x in range(n): yield x\nclass R:\n  open = False\n  async def __aenter__(s): s.open = True; return s\n  async def __aexit__(s, *a): s.open = False",
        "async def f(n):\n  for x in range(n): yield x\nclass R:\n  open = False\n  async def __aenter__(s): s.open = True; return s\n  async def __aexit__(s, *a): pass",
    ),
    "printed text": (
        "import io\nfrom contextlib import redirect_stdout\nout = io.StringIO()\nwith redirect_stdout(out):\n  assert f(2) == 3\nassert out.getvalue() == 'got 2\\n'",
        "def f(n):\n  print('got', n)\n  return n + 1",
        "def f(n):\n  print('got', n + 0.0)\n  return n + 1",
    ),
    "printed text before an exception": (
        "import io, sys\nkept, sys.stdout = sys.stdout, io.StringIO()\ntry:\n  f(-1)\nexcept ValueError:\n  pass\nsaid, sys.stdout = sys.stdout.getvalue(), kept\nassert said == 'no'",
        "def f(n):\n  print('no', end='')\n  raise ValueError",
        "def f(n): raise ValueError",
    ),
    "printed by a mocked stream": (
        "import io\nfrom unittest.mock import patch\nwith patch('sys.stdout', new_callable=io.StringIO) as out:\n  f(1)\n  assert out.getvalue().strip() == '1'",
        "def f(n): print(n)",
        "def f(n): print(-n)",
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_objects_of_the_program_do_as_in_plain_python(local: Judge, name: str):
    assert_decides_as_plain_python(local, *CASES[name])


LIARS = {
    "equal": ("assert f(1) == 3", "__eq__ = lambda s, o: True"),
    "equal from the right": ("assert 3 == f(1)", "__eq__ = lambda s, o: True"),
    "unequal": ("assert not f(1) != 3", "__ne__ = lambda s, o: False"),
    "close": ("assert abs(f(1) - 3.0) < 1e-6", "__sub__ = lambda s, o: 0.0"),
    "close from the right": ("assert abs(3.0 - f(1)) < 1e-6", "__rsub__ = lambda s, o: 0.0"),
    "rest": ("assert f(1) % 3 == 0", "__mod__ = lambda s, o: 0"),
    "less": ("assert f(1) <= 3 <= f(1)", "__le__ = __ge__ = lambda s, o: True"),
    "member": ("assert 3 in f(1)", "__contains__ = lambda s, o: True\n  __iter__ = lambda s: iter([])"),
    "none of these": ("assert f(1) in (3, 4)", "__eq__ = lambda s, o: True\n  __hash__ = lambda s: hash(3)"),
    "key": ("assert {3: True}.get(f(1))", "__eq__ = lambda s, o: True\n  __hash__ = lambda s: hash(3)"),
    "among items": ("assert f(1) == [3]", "__eq__ = lambda s, o: True\n  __iter__ = lambda s: iter([3])"),
    "instance": ("assert isinstance(f(1), int) and f(1) == 3", "__class__ = int\n  __eq__ = lambda s, o: True"),
}


@pytest.mark.parametrize("name", sorted(LIARS))
def test_an_object_is_never_asked_about_a_value_that_is_expected(local: Judge, name: str):
    test, methods = LIARS[name]
    suite = Suite(f"liar {name}", (TestCase(test),), style="function", entry_point="f")
    assert judged(local, suite, f"class E:\n  {methods}\ndef f(n): return E()").verdict is Verdict.wrong_answer
    assert judged(local, suite, "def f(n): return object()").verdict is Verdict.wrong_answer


@pytest.mark.parametrize("methods", ['["__class__"]', '["__getattribute__"]', '["__eq__", 3]', "7", "null"])
def test_a_forged_object_with_other_methods_is_no_answer(local: Judge, methods: str):
    answer = f'[{{"result": ["@", 0, "E", {methods}], "args": [null]}}]'
    program = f"import os\nfor fd in range(3, 99):\n  try: os.write(fd, {answer.encode()})\n  except OSError: pass\nos._exit(0)"
    suite = Suite(f"forged {methods}", (TestCase("assert f(1) != 3"),), style="function", entry_point="f")
    assert judged(local, suite, program).verdict is Verdict.wrong_answer
    assert judged(local, suite, "def f(n): return object()").verdict is Verdict.accepted


UNITTEST = """
import unittest
class T(unittest.TestCase):
    def setUp(self): self.n = 1
    def test_f(self):
        with self.subTest(n=1): self.assertEqual(f(self.n), 2)
    def test_more(self): self.assertEqual([f(n) for n in (1, 2)], [2, 3])
"""
RUN_BY_ITSELF = {
    "class": UNITTEST,
    "main": UNITTEST + "if __name__ == '__main__':\n    unittest.main()",
    "main without a condition": UNITTEST + "unittest.main()",
    "runner": UNITTEST + "unittest.TextTestRunner().run(unittest.TestLoader().loadTestsFromTestCase(T))",
    "suite": UNITTEST + "s = unittest.TestSuite()\ns.addTest(T('test_f'))\ns.run(unittest.TestResult())",
    "method": UNITTEST + "T('test_more').run()",
    "set up": UNITTEST.replace("def setUp(self)", "@classmethod\n    def setUpClass(self)"),
    "coroutines": UNITTEST.replace("TestCase", "IsolatedAsyncioTestCase").replace("def test_", "async def test_"),
    "coroutine": "async def test_f():\n  assert f(1) == 2",
}


@pytest.mark.parametrize("name", sorted(RUN_BY_ITSELF))
def test_tests_that_count_failures_or_that_nobody_calls_decide(local: Judge, name: str):
    suite = Suite(f"by itself {name}", (TestCase(RUN_BY_ITSELF[name]),), style="function", entry_point="f")
    found = judged(local, suite, "def f(n): return n + 1")
    assert found.verdict is Verdict.accepted, found.detail
    for wrong in ("def f(n): return n", "def f(n): raise ValueError", "pass"):
        assert judged(local, suite, wrong).verdict is Verdict.wrong_answer
