"""Compiling: what the compiler says beside its result is no result."""

import json

import pytest

from sandbox import Judge, Submission, Verdict
from tests.sandbox.conftest import sums
from tests.sandbox.interpreters import interpreters, told

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
ODD = {
    "is_literal": ADD + "if a is 0: pass",
    "assert_of_a_tuple": ADD + "assert (a, 'm')",
    "number_before_keyword": ADD + "1if a else 2",
    "missing_comma": ADD + "if 0: [(1, 2) (3, 4)]",
    "index_of_a_literal": ADD + "if 0: 1['a']",
    "invalid_escape": ADD + r"import re; re.match('\d', '1')",
    "invalid_octal_escape": ADD + r"x = '\777'",
    "comment_about_an_encoding": "# Run-length encoding: sums\n" + ADD,
    "declared_encoding": "#!/usr/bin/python\n# -*- coding: ascii -*-\n" + ADD + "assert 'é' > 'z'",
    "byte_order_mark": "\ufeff" + ADD,
    "many_of_them": ADD + "if 0:\n" + " a is 0\n" * 500,
}


@pytest.mark.parametrize("name", sorted(ODD))
def test_neither_a_warning_nor_a_comment_is_an_error(judge: Judge, name: str):
    found = judge.judge([Submission(ODD[name], sums(1))])[0]
    assert found.verdict is Verdict.accepted, found.detail


def test_an_error_is_told_in_words_although_there_were_warnings(judge: Judge):
    found = judge.judge([Submission("x = 1 is 1\nf(:", sums(1))])[0]
    assert found.verdict is Verdict.compile_error
    assert found.detail.startswith("SyntaxError")


SCRIPT = """
import json
from sandbox import Judge, Submission, Suite, TestCase
suite = Suite("sum", (TestCase("1 2", "3"),))
with Judge(workers=1) as judge:
    found = judge.judge([Submission(program, suite) for program in json.load(sys.stdin)])
print(json.dumps([str(judgement.verdict) for judgement in found]))
"""


@pytest.mark.parametrize("version", sorted(interpreters()))
def test_the_same_under_every_version_of_python(version: str):
    programs = [*ODD.values(), "f(:"]
    found = json.loads(told(interpreters()[version], SCRIPT, json.dumps(programs)))
    assert found == ["accepted"] * len(ODD) + ["compile_error"]
