"""Function-style problems: odd test code decides as plain Python does, or is known not to."""

# ruff: noqa: E501  programs are data

import pytest

from sandbox import Judge, Verdict
from tests.sandbox.functions import assert_decides_as_plain_python, judged, plain_python

CASES = {
    "closure": (
        "inc, get = make()\ninc()\ninc()\nassert get() == 2",
        "def make():\n  n=[0]\n  def inc(): n[0]+=1\n  return inc, lambda: n[0]",
        "def make():\n  n=[0]\n  def inc(): n[0]=1\n  return inc, lambda: n[0]",
    ),
    "generator argument": (
        "assert f(x*x for x in range(4)) == 14\nassert f(iter([1,2])) == 3",
        "def f(it): return sum(it)",
        "def f(it): return len(list(it))",
    ),
    "returned generator": (
        "g = f(3)\nassert next(g) == 0\nassert next(g) == 1\nassert list(g) == [2]",
        "def f(n): yield from range(n)",
        "def f(n): yield from range(1, n)",
    ),
    "infinite returned generator": (
        "import itertools\nassert list(itertools.islice(f(), 3)) == [0,1,2]",
        "def f():\n  n=0\n  while True: yield n; n+=1",
        "def f():\n  n=1\n  while True: yield n; n+=1",
    ),
    "generator of growing numbers": (
        "g = f()\nassert [next(g) for _ in range(5)] == [0, 1, 1, 2, 3]\nassert next(g) == 5",
        "def f():\n  a, b = 0, 1\n  while True: yield a; a, b = b, a + b",
        "def f():\n  a, b = 1, 1\n  while True: yield a; a, b = b, a + b",
    ),
    "generator that takes its time": (
        "g = f()\nassert next(g) == 2\nassert next(g) == 3",
        "def f():\n  n = 1\n  while True:\n    n += 1\n    for i in range(200_000): pass\n    yield n",
        "def f():\n  n = 0\n  while True:\n    n += 1\n    for i in range(200_000): pass\n    yield n",
    ),
    "generator that fails later": (
        "g = f([1, 2, 0])\nassert next(g) == 1.0\nassert next(g) == 0.5",
        "def f(xs): return (1 / x for x in xs)",
        "def f(xs): return (2 / x for x in xs)",
    ),
    "generator that has to fail": (
        "g = f([1, 0])\nassert next(g) == 1.0\ntry:\n  next(g)\n  assert False\nexcept ZeroDivisionError:\n  pass",
        "def f(xs): return (1 / x for x in xs)",
        "def f(xs): return (1 / x for x in xs if x)",
    ),
    "generator of many": (
        "assert sum(f(1000)) == 499500\nassert list(f(9)) == list(range(9))\nfor i, x in enumerate(f(40)):\n  assert i == x",
        "def f(n): yield from range(n)",
        "def f(n): yield from (x if x < 900 else 0 for x in range(n))",
    ),
    "iterator of an iterator": (
        "it = iter(range(30))\nassert list(f(it)) == list(range(0, 60, 2))",
        "def f(it): return (2 * x for x in it)",
        "def f(it): return (2 * x for x in it if x < 29)",
    ),
    "endless iterator handed back": (
        "assert first(3, f()) == [0, 1, 2]\ng = f()\nassert next(g) == 0\nassert first(9, g) == list(range(1, 10))",
        "import itertools\ndef f(): return itertools.count()\ndef first(n, it): return list(itertools.islice(it, n))",
        "import itertools\ndef f(): return itertools.count()\ndef first(n, it): return list(itertools.islice(it, min(n, 8)))",
    ),
    "iterator class": (
        "import itertools\nassert list(itertools.islice(Count(3), 20)) == list(range(3, 23))",
        "class Count:\n  def __init__(s, n): s.n = n - 1\n  def __iter__(s): return s\n  def __next__(s): s.n += 1; return s.n",
        "class Count:\n  def __init__(s, n): s.n = n - 1\n  def __iter__(s): return s\n  def __next__(s): s.n += 1; return min(s.n, 20)",
    ),
    "expected exception": (
        "try:\n  f(-1)\n  assert False, 'no error'\nexcept ValueError as e:\n  assert 'neg' in str(e)\nassert f(1) == 1",
        "def f(n):\n  if n < 0: raise ValueError('neg')\n  return n",
        "def f(n): return n",
    ),
    "argument changed before an exception": (
        "account = {'balance': 5}\ntry:\n  f(account, 10)\n  assert False\nexcept ValueError:\n  pass\nassert account == {'balance': 5}",
        "def f(a, n):\n  if a['balance'] < n: raise ValueError\n  a['balance'] -= n",
        "def f(a, n):\n  a['balance'] -= n\n  if a['balance'] < 0: raise ValueError",
    ),
    "argument that has to change before an exception": (
        "a = [1]\ntry:\n  f(a)\nexcept ValueError:\n  pass\nassert a == [1, 2]",
        "def f(a):\n  a.append(2)\n  raise ValueError",
        "def f(a): raise ValueError",
    ),
    "exception that says what it reads as": (
        "try:\n  f(3)\n  assert False\nexcept Exception as e:\n  assert str(e) == 'need 3'",
        "class Missing(Exception):\n  def __init__(s, n): s.n = n\n  def __str__(s): return f'need {s.n}'\ndef f(n): raise Missing(n)",
        "class Missing(Exception): pass\ndef f(n): raise Missing(n)",
    ),
    "key that is missing": (
        "try:\n  f('a')\n  assert False\nexcept KeyError as e:\n  assert str(e) == repr('a') and e.args == ('a',)",
        "def f(k): return {}[k]",
        "def f(k): raise KeyError",
    ),
    "function that is not there": (
        "try:\n  f({}, 'a')\n  assert False\nexcept KeyError:\n  pass",
        "def f(d, k): return d[k]",
        "def g(d, k): return d[k]",
    ),
    "built-in functions beside one of the program": (
        "assert set([sum(10, 15)]) == {25}",
        "def sum(a, b): return a + b",
        "def sum(a, b): return a - b",
    ),
    "bare except": (
        "ok = False\ntry:\n  f(-1)\nexcept:\n  ok = True\nassert ok\nassert f(1) == 1",
        "def f(n):\n  if n < 0: raise ValueError('neg')\n  return n",
        "def f(n): return n",
    ),
    "expected assertion error": (
        "try:\n  f(-1)\nexcept AssertionError:\n  ok = True\nelse:\n  ok = False\nassert ok",
        "def f(n): assert n >= 0",
        "def f(n): return n",
    ),
    "raises with": (
        "class raises:\n  def __init__(s, k): s.k = k\n  def __enter__(s): return s\n  def __exit__(s, t, v, tb):\n    assert t is not None, 'did not raise'\n    return issubclass(t, s.k)\nwith raises(ValueError):\n  f(-1)\nwith raises(KeyError):\n  f(0)\nassert f(1) == 1",
        "def f(n):\n  if n < 0: raise ValueError\n  if n == 0: raise KeyError\n  return n",
        "def f(n):\n  if n < 0: raise ValueError\n  return n",
    ),
    "contextmanager raises": (
        "from contextlib import contextmanager\n@contextmanager\ndef raises(k):\n  try:\n    yield\n  except k:\n    return\n  raise AssertionError('did not raise')\nwith raises(ValueError):\n  f(-1)\nassert f(1) == 1",
        "def f(n):\n  if n < 0: raise ValueError\n  return n",
        "def f(n): return n",
    ),
    "suppress": (
        "from contextlib import suppress\nwith suppress(ValueError):\n  f(-1)\n  assert False\nassert f(1) == 1",
        "def f(n):\n  if n < 0: raise ValueError\n  return n",
        "def f(n): return n",
    ),
    "unittest": (
        "import unittest\nclass T(unittest.TestCase):\n  def test_a(self):\n    self.assertEqual(f(1), 2)\n    self.assertTrue(f(2) == 3)\n    with self.assertRaises(ValueError):\n      f(-1)\nT('test_a').test_a()",
        "def f(n):\n  if n < 0: raise ValueError\n  return n+1",
        "def f(n): return n+1",
    ),
    "asserts in a class": (
        "class T:\n  def run(self):\n    assert f(1) == 2\n    assert f(2) == 3\nT().run()",
        "def f(n): return n+1",
        "def f(n): return 2",
    ),
    "recursion": (
        "assert fib(10) == 55\nassert [fib(n) for n in range(6)] == [0,1,1,2,3,5]",
        "def fib(n): return n if n < 2 else fib(n-1)+fib(n-2)",
        "def fib(n): return n if n < 2 else fib(n-1)+fib(n-1)",
    ),
    "several classes": (
        "d = Dog('Rex')\no = Owner('Ann')\no.adopt(d)\nassert d.owner.name == 'Ann'\nassert o.dogs[0].name == 'Rex'\nassert len(o.dogs) == 1",
        "class Dog:\n  def __init__(s, n): s.name = n; s.owner = None\nclass Owner:\n  def __init__(s, n): s.name = n; s.dogs = []\n  def adopt(s, d): s.dogs.append(d); d.owner = s",
        "class Dog:\n  def __init__(s, n): s.name = n; s.owner = None\nclass Owner:\n  def __init__(s, n): s.name = n; s.dogs = []\n  def adopt(s, d): s.dogs.append(d); d.owner = d",
    ),
    "property": (
        "t = Temp(0)\nassert t.f == 32\nt.c = 100\nassert t.f == 212\nt.f = 32\nassert t.c == 0",
        "class Temp:\n  def __init__(s, c): s.c = c\n  @property\n  def f(s): return s.c*9/5+32\n  @f.setter\n  def f(s, v): s.c = (v-32)*5/9",
        "class Temp:\n  def __init__(s, c): s.c = c\n  @property\n  def f(s): return s.c*9/5+32\n  @f.setter\n  def f(s, v): s.c = v",
    ),
    "class attributes": (
        "assert A.total == 0\nA(); A()\nassert A.total == 2\nassert A.make().kind == 'x'",
        "class A:\n  total = 0\n  kind = 'x'\n  def __init__(s): A.total += 1\n  @classmethod\n  def make(c): return c()",
        "class A:\n  total = 0\n  kind = 'x'\n  def __init__(s): self = 1\n  @classmethod\n  def make(c): return c()",
    ),
    "iterator object": (
        "assert list(C(3)) == [0, 1, 2]",
        "class C:\n  def __init__(s, n): s.n = n; s.k = -1\n  def __iter__(s): return s\n  def __next__(s):\n    s.k += 1\n    if s.k >= s.n: raise StopIteration\n    return s.k",
        "class C:\n  def __init__(s, n): s.n = n; s.k = 0\n  def __iter__(s): return s\n  def __next__(s):\n    s.k += 1\n    if s.k >= s.n: raise StopIteration\n    return s.k",
    ),
    "isinstance": (
        "assert isinstance(f(1), P)\nassert isinstance(P(1), P)",
        "class P:\n  def __init__(s, x): s.x = x\ndef f(n): return P(n)",
        "class P:\n  def __init__(s, x): s.x = x\ndef f(n): return n",
    ),
    "dataclass": (
        "p = P(1, y=2)\nassert p.x + p.y == 3\np.x += 4\nassert p.x == 5 and total(p) == 7",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\n  y: int\ndef total(p): return p.x + p.y",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\n  y: int\ndef total(p): return p.x * p.y",
    ),
    "linked list": (
        "def chain(xs):\n  head = None\n  for x in reversed(xs): head = Node(x, head)\n  return head\ndef items(n):\n  out = []\n  while n is not None:\n    out.append(n.val)\n    n = n.next\n  return out\nassert items(rev(chain([1,2,3]))) == [3,2,1]",
        "class Node:\n  def __init__(s, val, next=None): s.val, s.next = val, next\ndef rev(n):\n  p = None\n  while n: n.next, p, n = p, n, n.next\n  return p",
        "class Node:\n  def __init__(s, val, next=None): s.val, s.next = val, next\ndef rev(n): return n",
    ),
    "method chain": (
        "assert Q().add(1).add(2).total() == 3",
        "class Q:\n  def __init__(s): s.t = 0\n  def add(s, n): s.t += n; return s\n  def total(s): return s.t",
        "class Q:\n  def __init__(s): s.t = 0\n  def add(s, n): s.t = n; return s\n  def total(s): return s.t",
    ),
    "setattr of a class": (
        "A.x = 3\nassert A().x == 3",
        "class A: x = 1",
        "class A:\n  def __init__(s): s.x = 1",
    ),
    "augmented item": (
        "d = f()\nd['a'] += 1\nassert g(d) == 2",
        "def f(): return {'a': 1}\ndef g(d): return d['a']",
        "def f(): return {'a': 1}\ndef g(d): return 1",
    ),
    "hasattr": (
        "assert hasattr(A(), 'x')\nassert not hasattr(A(), 'y')",
        "class A: x = 1",
        "class A: x = y = 1",
    ),
    "walrus and any": (
        "assert any((y := f(x)) > 3 for x in range(4)) and y == 4",
        "def f(n): return n + 2",
        "def f(n): return 0",
    ),
    "random seed": (
        "import random\nrandom.seed(1)\nassert f() == f()",
        "import random\ndef f(): random.seed(3); return random.random()",
        "import random\ndef f(): return random.random()",
    ),
    "raises own error": (
        "class raises:\n  def __init__(s, k): s.k = k\n  def __enter__(s): return s\n  def __exit__(s, t, v, tb):\n    assert t is not None, 'did not raise'\n    return issubclass(t, s.k)\nwith raises(Bad):\n  f(-1)\nassert f(1) == 1",
        "class Bad(Exception): pass\ndef f(n):\n  if n < 0: raise Bad\n  return n",
        "class Bad(Exception): pass\ndef f(n):\n  if n < 0: raise ValueError\n  return n",
    ),
    "unittest own error": (
        "import unittest\nclass T(unittest.TestCase):\n  def test_a(self):\n    with self.assertRaises(Bad) as c:\n      f(-1)\n    self.assertEqual(str(c.exception), 'neg')\nT('test_a').test_a()",
        "class Bad(ValueError): pass\ndef f(n): raise Bad('neg')",
        "class Bad(ValueError): pass\ndef f(n): raise ValueError('neg')",
    ),
    "subclass": (
        "assert issubclass(B, A) and not issubclass(A, B)\nassert isinstance(B(), A) and not isinstance(A(), (B, int))\nassert isinstance(B(), (A, int))",
        "class A: pass\nclass B(A): pass",
        "class A: pass\nclass B: pass",
    ),
    "same list twice": (
        "a=[1]\nf(a, a)\nassert a == [1, 1, 1]",
        "def f(x, y): x.append(1); y.append(1)",
        "def f(x, y): x.append(1)",
    ),
    "same list as two results": (
        "a=[1]\nassert f(a, a) == [1, 2]\nassert f([1], [1]) == [1]",
        "def f(x, y): x.append(2); return y",
        "def f(x, y): x.append(2); return x",
    ),
    "same list by position and keyword": (
        "a={1}\nassert f(a, other=a) == 0\nassert a == set()",
        "def f(x, other): x.clear(); return len(other)",
        "def f(x, other): n = len(other); x.clear(); return n",
    ),
    "same row twice in a grid": (
        "row=[0, 0]\ng=[row] * 3\nassert f(g) == 7\nassert g == [[7, 0]] * 3",
        "def f(g): g[0][0] = 7; return g[2][0]",
        "def f(g): g[0] = [7, 0]; return 7",
    ),
    "same list beside one that changes": (
        "a, b=[1], [a0 := [2]]\nf(a, b, b, c=a0)\nassert (a, b) == ([1, 9], [[2]])",
        "def f(a, b, d, c): a.append(9 if b is d and b[0] is c else 0)",
        "def f(a, b, d, c): a.append(9); b[0] = 0",
    ),
    "same list in a default of a callback": (
        "a=[1]\nassert f(a, lambda x, b=a: (len(x), x is b)) == (2, True)",
        "def f(a, g): a.append(2); return g(a)",
        "def f(a, g): return g([*a, 2])",
    ),
    "calls among the items of an argument": (
        "a=[1]\nassert f(a, (f(a, [n]) for n in range(2)), a) == 6",
        "def f(a, *rest): return len(a) if len(rest) == 1 else 4 * (a is rest[1]) + sum(rest[0])",
        "def f(a, *rest): return len(a) if len(rest) == 1 else sum(rest[0])",
    ),
    "returned grid of one row": (
        "g=f(2)\ng[0][0] = 1\nassert g == [[1], [1]]\nassert f(1) == [[0]]",
        "def f(n): return [[0]] * n",
        "def f(n): return [[0] for _ in range(n)]",
    ),
    "equal lists are not the same": (
        "a, b=[1], [1]\nassert f(a, b) == [1]",
        "def f(x, y): x.append(2); return y",
        "def f(x, y): x.append(2); return x",
    ),
}
"""Name -> test, a right program, a wrong one."""

UNSUPPORTED = {
    "generator argument used twice": (
        "it = iter([1,2,3])\nassert f(it) == 1\nassert f(it) == 2",
        "def f(it): return next(it)",
        "def f(it): return 1",
    ),
    "in": (
        "s = S()\ns.add(1)\nassert 1 in s\nassert 2 not in s",
        "class S:\n  def __init__(s): s.i = []\n  def add(s, x): s.i.append(x)\n  def __contains__(s, x): return x in s.i",
        "class S:\n  def __init__(s): s.i = []\n  def add(s, x): s.i.append(x)\n  def __contains__(s, x): return True",
    ),
    "inner list": (
        "g=[[0]]\nrow=g[0]\nf(g)\nassert row == [1]",
        "def f(g): g[0][0] = 1",
        "def f(g): g[0] = [1]",
    ),
    "callback that remembers": (
        "seen=[]\nf(lambda x: seen.append(x))\nassert seen == [1]",
        "def f(g): g(1)",
        "def f(g): g(2)",
    ),
}
"""What docs/guides/sandbox.md says that asserts cannot do."""


@pytest.mark.parametrize("name", sorted(CASES))
def test_odd_test_code_decides_as_plain_python_does(local: Judge, name: str):
    assert_decides_as_plain_python(local, *CASES[name])


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_what_asserts_cannot_do_lets_no_wrong_program_pass(local: Judge, name: str):
    test, right, wrong = UNSUPPORTED[name]
    assert (plain_python(test, right), plain_python(test, wrong)) == (True, False)
    assert judged(local, test, right).verdict is not Verdict.accepted
    assert judged(local, test, wrong).verdict is not Verdict.accepted
