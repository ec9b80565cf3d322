"""Function-style problems: programs answer the very calls that plain Python makes, in its order."""

# ruff: noqa: E501  programs are data

import pytest

from sandbox import Judge, Limits, Suite, TestCase, Verdict
from tests.sandbox.functions import assert_decides_as_plain_python, judged

CASES = {
    "account": (
        "a = Account(100)\nassert a.withdraw(30) == 70\nassert a.balance == 70",
        "class Account:\n  def __init__(s, b): s.balance = b\n  def withdraw(s, n): s.balance -= n; return s.balance",
        "class Account:\n  def __init__(s, b): s.balance = b\n  def withdraw(s, n): s.balance += n; return s.balance",
    ),
    "stack": (
        "s = Stack(); s.push(1); s.push(2)\nassert s.pop() == 2\nassert s.items == [1]",
        "class Stack:\n  def __init__(s): s.items = []\n  def push(s, x): s.items.append(x)\n  def pop(s): return s.items.pop()",
        "class Stack:\n  def __init__(s): s.items = []\n  def push(s, x): s.items.append(x)\n  def pop(s): return s.items[-1]",
    ),
    "rot": (
        "xs=[1,2,3]\nassert rot(xs) is None\nassert rot(xs) is None\nassert xs == [2,3,1]",
        "def rot(x): x.insert(0, x.pop())",
        "def rot(x): x.append(x.pop(0))",
    ),
    "ends itself": (
        "import sys\ntry:\n    f(-1)\n    sys.exit('no error')\nexcept ValueError:\n    pass\nassert f(1) == 1",
        "def f(n):\n  if n < 0: raise ValueError\n  return n",
        "def f(n):\n  if n < 0: raise ValueError\n  return 2",
    ),
    "keyword": (
        "a=[]\nf(x=a)\nassert a == [1]",
        "def f(x): x.append(1)",
        "def f(x): x.append(2)",
    ),
    "keyword assert": (
        "a=[]\nd={}\nassert f(1, x=a, y=d) is d\nassert a == [1] and d == {1: 2}",
        "def f(n, x, y): x.append(n); y[n] = 2; return y",
        "def f(n, x, y): x.append(n); return y",
    ),
    "evalplus": (
        "def assertion(out, exp, atol):\n    exact = out == exp\n    if not exact and atol: assert abs(out - exp) < atol\n    else: assert exact, (out, exp)\ndef check(candidate):\n    inputs = [[i] for i in range(300)]\n    results = [i*i for i in range(300)]\n    for i, (inp, exp) in enumerate(zip(inputs, results)):\n        assertion(candidate(*inp), exp, 0)",
        "def f(n): return n * n",
        "def f(n): return n * n if n != 250 else 1",
    ),
    "counter between nested": (
        "assert f(g(1)) == 2\nassert count() == 2",
        "n=0\ndef f(x):\n  global n; n+=1; return x\ndef g(x):\n  global n; n+=1; return x+1\ndef count(): return n",
        "n=0\ndef f(x):\n  global n; n+=1; return x\ndef g(x):\n  global n; return x+1\ndef count(): return n",
    ),
    "state and nested": (
        "assert pop(push(1)) == 1\nassert size() == 0\nassert pop(push(push(2))) == 2\nassert size() == 1",
        "s=[]\ndef push(x): s.append(x); return x\ndef pop(x): return s.pop()\ndef size(): return len(s)",
        "s=[]\ndef push(x): s.append(x); return x\ndef pop(x): return s[-1]\ndef size(): return len(s)",
    ),
    "stale exit": (
        "h=[3,1,2]\norder(h)\nassert find(h, 2) == 1",
        "import os\ndef order(h): h.sort()\ndef find(h, x):\n  if h != sorted(h): os._exit(1)\n  return h.index(x)",
        "def order(h): h.sort()\ndef find(h, x): return 0",
    ),
    "while in place": (
        "q=[1,2,3]\nn=0\nwhile q:\n    step(q)\n    n += 1\nassert n == 3",
        "def step(q): q.pop()",
        "def step(q): q.clear()",
    ),
    "while with asserts": (
        "q=[1,2,3]\nn=0\nwhile q:\n    assert step(q) is None\n    n += 1\nassert n == 3",
        "def step(q): q.pop()",
        "def step(q): q.clear()",
    ),
    "while in helper": (
        "def go(q): step(q)\nq=[1,2,3]\nn=0\nwhile q:\n    go(q)\n    n += 1\nassert n == 3",
        "def step(q): q.pop()",
        "def step(q): q.clear()",
    ),
    "memo between asserts": (
        "assert f(3) == 'new'\nassert f(3) == 'old'\nassert f(4) == 'new'",
        "seen=set()\ndef f(n):\n  r = 'old' if n in seen else 'new'\n  seen.add(n); return r",
        "def f(n): return 'new'",
    ),
    "default mutable": (
        "assert f(1) == [1]\nassert f(2) == [1, 2]\nassert f(3, []) == [3]",
        "def f(x, a=[]): a.append(x); return a",
        "def f(x, a=None): a = a or []; a.append(x); return a",
    ),
    "message calls again": (
        "assert f(1) == 2, f(1)\nassert f(2) == 3, 'x' + str(f(2))",
        "def f(n): return n + 1",
        "def f(n): return 2",
    ),
    "no more calls on a wrong turn": (
        "if f(1) == 2:\n  assert g(1) == 1\nelse:\n  assert False",
        "def f(n): return n + 1\ndef g(n): return n",
        "def f(n): return n\ndef g(n): return n",
    ),
    "assigned in a loop": (
        "for k in range(300):\n  x = f(k)\n  assert x == k + 1",
        "def f(n): return n+1",
        "def f(n): return n+1 if n < 290 else 0",
    ),
    "carried from turn to turn": (
        "x = 0\nfor _ in range(10):\n  x = f(x)\nassert x == 10",
        "def f(n): return n+1",
        "def f(n): return n+2",
    ),
    "loop until": (
        "import itertools\nfor k in itertools.count():\n  if f(k) > 5: break\nassert k == 6",
        "def f(n): return n",
        "def f(n): return n+1",
    ),
    "deep loops": (
        "for a in [1]:\n for b in [1]:\n  for c in [1]:\n   for d in [1]:\n    for e in [1]:\n     for g in [1]:\n      for h in [1]:\n       for i in [1]:\n        for j in [1]:\n         for k in [1]:\n          for l in [1]:\n           assert f(l) == 2\n           f(l)\n           x = f(l)",
        "def f(n): return n+1",
        "def f(n): return n",
    ),
    "results of a loop": (
        "out = {}\nfor k in range(50):\n  out[k] = f(k)\nassert sum(out.values()) == 50 * 49",
        "def f(n): return 2*n",
        "def f(n): return n",
    ),
    "loop with a stateful object": (
        "s = S()\nfor op, want in [(1, 1), (2, 3), (3, 6)]:\n  got = s.add(op)\n  assert got == want\nassert s.n == 6",
        "class S:\n  n = 0\n  def add(s, x): s.n += x; return s.n",
        "class S:\n  n = 0\n  def add(s, x): s.n = x; return s.n",
    ),
    "collected in a list": (
        "out = []\nfor k in range(40):\n  out.append(f(k))\nassert out == list(range(1, 41))",
        "def f(n): return n+1",
        "def f(n): return n+1 if n < 39 else 0",
    ),
    "object made between others": (
        "a = A(1)\nassert a.copy().x == 1\nassert a.child().x == 2\nb = A(5)\nassert b.copy().x == 5\nassert a.made == 5",
        "made = 0\nclass A:\n  def __init__(s, x):\n    global made; made += 1; s.x = x\n  def copy(s): return A(s.x)\n  def child(s): return A(s.x + 1)\n  @property\n  def made(s): return made",
        "made = 0\nclass A:\n  def __init__(s, x):\n    global made; made += 1; s.x = x\n  def copy(s): return s\n  def child(s): return A(s.x + 1)\n  @property\n  def made(s): return made",
    ),
    "many objects": (
        "ps = [P(k) for k in range(10)]\nassert [p.x for p in ps] == list(range(10))\nfor p in ps:\n  p.grow()\nassert sum(p.x for p in ps) == 55",
        "class P:\n  def __init__(s, x): s.x = x\n  def grow(s): s.x += 1",
        "class P:\n  def __init__(s, x): s.x = x\n  def grow(s): s.x += s.x",
    ),
    "lru cache object": (
        "c = L(2)\nc.put(1,1)\nc.put(2,2)\nassert c.get(1) == 1\nc.put(3,3)\nassert c.get(2) == -1\nc.put(4,4)\nassert c.get(1) == -1\nassert c.get(3) == 3\nassert c.get(4) == 4",
        "from collections import OrderedDict\nclass L:\n  def __init__(s, n): s.n, s.d = n, OrderedDict()\n  def get(s, k):\n    if k not in s.d: return -1\n    s.d.move_to_end(k); return s.d[k]\n  def put(s, k, v):\n    s.d[k] = v; s.d.move_to_end(k)\n    if len(s.d) > s.n: s.d.popitem(last=False)",
        "from collections import OrderedDict\nclass L:\n  def __init__(s, n): s.n, s.d = n, OrderedDict()\n  def get(s, k): return s.d.get(k, -1)\n  def put(s, k, v):\n    s.d[k] = v\n    if len(s.d) > s.n: s.d.popitem(last=False)",
    ),
    "callback with statements": (
        "def show(x):\n  print(x)\n  assert x\n  return x + 1\nassert f(show) == 2\nassert f(show) == 2",
        "def f(g): return g(1)",
        "def f(g): return g(2)",
    ),
}
"""Name -> test, a right program, a wrong one."""


@pytest.mark.parametrize("name", sorted(CASES))
def test_calls_that_change_what_later_ones_find_are_made_in_plain_pythons_order(local: Judge, name: str):
    assert_decides_as_plain_python(local, *CASES[name])


def test_a_suite_of_tests_with_state_is_judged_test_by_test(local: Judge):
    tests = tuple(
        TestCase(f"a = A({k})\na.grow()\nassert a.n == {k + 1}\na.grow()\nassert a.n == {k + 2}") for k in range(3)
    )
    suite = Suite("grow", tests, style="function", limits=Limits(cpu_s=1))
    program = "class A:\n  def __init__(s, n): s.n = n\n  def grow(s): s.n += 1"
    assert judged(local, suite, program).verdict is Verdict.accepted
    assert judged(local, suite, program.replace("+= 1", "= 1")).verdict is Verdict.wrong_answer
