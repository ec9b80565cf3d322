"""Files that evalplus wrote are read, and programs are judged as evalplus judged them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, Submission, Verdict
from tasks.problems import sources
from tasks.problems.evalplus import mbppplus
from tasks.problems.problem import Problem
from tasks.problems.published import mbpp
from tasks.problems.records import Record
from tests.refusals import refused

FIXTURES = Path(__file__).parent / "fixtures" / "evalplus"
"""Written by evalplus 0.3.1 (`write.py` there)."""
ROOTS = "HumanEval/32"
"""evalplus 0.3.1 passes no program there: it leaves the loop before it notes that an input was right."""


def problems() -> dict[str, Problem]:
    files = {"humanevalplus": FIXTURES / "HumanEvalPlus.jsonl.gz", "mbppplus": FIXTURES / "MbppPlus.jsonl"}
    assert {name: sources.layout_of(path) for name, path in files.items()} == {name: name for name in files}
    return {p.problem_id: p for name, path in files.items() for p in sources.read_file(path, name)}


@pytest.mark.child
def test_programs_have_evalplus_verdicts() -> None:
    known, verdicts = problems(), defaultdict[str, list[bool]](list)
    rows: list[dict[str, Any]] = json.loads((FIXTURES / "verdicts.json").read_text())
    with Judge("embedded", workers=1) as judge:
        found = judge.judge([Submission(row["program"], known[row["task_id"]].suite()) for row in rows])
    for row, judgement in zip(rows, found, strict=True):
        assert judgement.verdict != Verdict.infra, (row["task_id"], judgement.detail)
        verdicts[row["task_id"]].append(judgement.verdict == Verdict.accepted)
        if row["task_id"] != ROOTS:
            assert verdicts[row["task_id"]][-1] == (row["base"] and row["plus"]), row
    assert verdicts[ROOTS] == [True, True, False]
    assert all(set(passed) == {True, False} for passed in verdicts.values()), "each problem has both"


def test_a_problem_shows_its_prompt_and_takes_the_canonical_solution_as_its_own() -> None:
    problem = problems()["HumanEval/7"]
    assert problem.statement.startswith("def shouted(words, mark):")
    assert problem.solutions[0].program.startswith(problem.statement)
    assert (problem.style, problem.entry_point, problem.unjudgeable_reason) == ("function", "shouted", None)


@pytest.mark.parametrize(
    ("shown", "given", "typed"),
    [
        ("f((1, 2), [3])", [[5, 6], [7]], [(5, 6), [7]]),
        ("f([(1, 2), (3, 4)], 2)", [[[1, 2]], 3], [[(1, 2)], 3]),
        ("f(((1, 2), (3,)))", [[[1], [2]]], [((1,), (2,))]),
        ("f((4, (7, 6, (2, 4)), 6))", [[1, [2, [3]]]], [(1, (2, (3,)))]),
        ("f(('HELLO', 5, [], True), 2)", [["a", [1]], 2], [("a", [1]), 2]),
        ("f({'a': (1, 2)}, 6.0)", [{"b": [1, 3]}, 2], [{"b": (1, 3)}, 2]),
        ("f([{}, {}])", [[[1, 2], []]], [[{1, 2}, {}]]),
        ("f(0, 1j)", ["2", "(1+2j)"], [2.0, 1 + 2j]),
        ("f(1)", ["(1+2j)"], [1 + 2j]),
        ("f('a')", ["b", [1]], ["b", [1]]),
        ("f(unknown)", [[1]], [[1]]),
    ],
)
def test_arguments_have_the_types_of_the_statements_assert(shown: str, given: list[Any], typed: list[Any]) -> None:
    data = {
        "task_id": "Mbpp/1",
        "prompt": f'"""\nWrite a function.\nassert {shown} == 1\n"""\n',
        "entry_point": "f",
        "canonical_solution": "def f(*_): pass",
        "base_input": [given],
        "plus_input": {},
    }
    (test,) = mbppplus(Record("file:1", data), "set").hidden_tests
    assert f"for given in {[typed]!r}:" in test.input


def test_inputs_that_are_no_arguments_are_named() -> None:
    data = {"task_id": "Mbpp/1", "prompt": "", "entry_point": "f", "canonical_solution": "", "base_input": [1]}
    with refused("InvalidProblem", "file:1", "'base_input[0]'"):
        mbppplus(Record("file:1", data), "set")


def test_the_plus_inputs_of_mbpps_fields_are_one_more_test() -> None:
    data = {"task_id": 2, "prompt": "Add.", "code": "def f(a): return a", "test_list": ["assert f(1) == 1"]}
    plain, plus = (
        mbpp(Record("file:1", data | more), "set") for more in ({}, {"test": "for i in (1, 2): assert f(i) == i"})
    )
    assert [len(plain.tests), len(plus.tests)] == [1, 2]
    assert plus.tests[1].input == "for i in (1, 2): assert f(i) == i"
