"""Reading problem files: what comes out, what is left out, and what a malformed file gets told."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, Submission
from tasks.config import EvaluationSet, ProblemsConfig
from tasks.problems.problem import Problem
from tasks.problems.sources import read, read_file, split_of
from tests.refusals import refused

LINE: dict[str, Any] = {
    "problem_id": "site/1",
    "title": "Double",
    "statement": "Print twice the number.",
    "public_tests": [{"input": "1\n", "output": "2\n"}],
    "input_tests": ["2\n", "3\n"],
    "output_tests": ["4\n", "6\n"],
    "checker": {"type": "kattis_default", "case_sensitive": True, "float_tolerance": 1e-3},
    "time_limit_s": 4,
    "memory_limit_mb": 64,
    "solutions": [
        {
            "code": "print(2 * int(input()))",
            "language": "python3",
            "correct": True,
            "verified": "AC",
            "origin": "human",
        },
        {"code": "print(input())", "language": "python3", "correct": False, "verified": "WA"},
        {"code": "?", "correct": False, "verified": "not_run"},
    ],
    "license": "CC BY 4.0",
    "source": "a site",
    "unknown_field": {"is": "passed over"},
}


def written(folder: Path, *lines: Any, name: str = "set.jsonl") -> Path:
    path = folder / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def one(folder: Path, **changes: Any) -> Problem:
    return read_file(written(folder, LINE | changes))[0]


def test_every_field_arrives(tmp_path: Path) -> None:
    problem = one(tmp_path)
    assert (problem.problem_id, problem.problem_set, problem.title) == ("site/1", "set", "Double")
    assert [test.expected for test in problem.public_tests] == ["2\n"]
    assert [test.input for test in problem.hidden_tests] == ["2\n", "3\n"]
    assert (problem.checker.kind, problem.checker.case_sensitive, problem.checker.float_tolerance) == (
        "tokens",
        True,
        1e-3,
    )
    assert (problem.limits.cpu_s, problem.limits.memory_bytes) == (4.0, 64 << 20)
    assert [(s.claimed, s.verified) for s in problem.solutions] == [
        ("accepted", "accepted"),
        ("rejected", "wrong_answer"),
        ("rejected", None),
    ]
    assert (problem.licence, problem.source, problem.unjudgeable_reason) == ("CC BY 4.0", "a site", None)


def test_absent_limits_are_the_sandbox_defaults(tmp_path: Path) -> None:
    problem = one(tmp_path, time_limit_s=None, memory_limit_mb=0)
    assert (problem.limits.cpu_s, problem.limits.memory_bytes) == (2.0, 512 << 20)


@pytest.mark.parametrize(
    "checker, kind",
    [
        ({}, "tokens"),
        ({"type": "codecontests"}, "codecontests"),
        ({"type": "kattis_default", "space_change_sensitive": True}, "caseless"),
        ({"type": "kattis_default", "space_change_sensitive": True, "case_sensitive": True}, "exact"),
    ],
)
def test_checkers_are_translated(tmp_path: Path, checker: dict[str, Any], kind: str) -> None:
    assert one(tmp_path, checker=checker).checker.kind == kind


def test_gzip_is_read_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl.gz"
    path.write_bytes(gzip.compress(("\n" + json.dumps(LINE) + "\n\n").encode()))
    assert [problem.problem_set for problem in read_file(path)] == ["set"]


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"checker": {"type": "custom"}}, "needs a special judge"),
        ({"public_tests": [], "input_tests": [], "output_tests": []}, "no tests"),
        ({"statement_has_image": True}, "statement has images"),
        ({"multi_answer_suspect": True}, "several answers may be right"),
    ],
)
def test_unjudgeable_problems_are_counted_and_kept_apart(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    path = written(tmp_path, LINE, LINE | {"problem_id": "site/2"} | change)
    report = read(ProblemsConfig(source="jsonl", path=str(path)))
    assert [problem.problem_id for problem in report.problems] == ["site/1"]
    assert [problem.unjudgeable_reason for problem in report.unjudgeable] == [reason]
    assert report.left_out == {reason: 1}


@pytest.mark.parametrize(
    "change, field",
    [
        ({"problem_id": None}, "problem_id"),
        ({"statement": 3}, "statement"),
        ({"input_tests": "2"}, "input_tests"),
        ({"input_tests": ["2", 3]}, "input_tests[1]"),
        ({"output_tests": ["4\n"]}, "output_tests"),
        ({"public_tests": [{"input": "1"}]}, "public_tests[0].output"),
        ({"solutions": [{"code": "x"}, {"code": 1}]}, "solutions[1].code"),
        ({"solutions": ["x"]}, "solutions[0]"),
        ({"checker": "tokens"}, "checker"),
        ({"checker": {"float_tolerance": "small"}}, "checker.float_tolerance"),
        ({"time_limit_s": -1}, "time_limit_s"),
        ({"time_limit_s": "2 s"}, "time_limit_s"),
        ({"statement_has_image": "no"}, "statement_has_image"),
    ],
)
def test_malformed_field_is_named_with_file_and_line(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    path = written(tmp_path, LINE, LINE | {"problem_id": "site/2"} | change)
    with refused("InvalidProblem", "set.jsonl:2", f"'{field}'"):
        read_file(path)


@pytest.mark.parametrize(
    ("line", "code"), [("{", "NotJson"), ("[1]", "NotAnObject"), ("3", "NotAnObject"), ('{"problem_id": ', "NotJson")]
)
def test_line_that_is_no_object_is_named(tmp_path: Path, line: str, code: str) -> None:
    with refused(code, "set.jsonl:2"):
        read_file(written(tmp_path, LINE, line))


def test_repeated_problem_id_is_refused_with_both_places(tmp_path: Path) -> None:
    with refused("InvalidProblem", ":2", "'problem_id'", "'site/1'", ":1"):
        read_file(written(tmp_path, LINE, LINE))


def test_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(gzip.compress(json.dumps(LINE).encode())[:-20])
    for path in (tmp_path / "absent.jsonl", broken):
        with refused("Unreadable", path.name):
            read_file(path)


def test_split_of_a_problem_does_not_depend_on_the_other_problems(tmp_path: Path) -> None:
    lines = [LINE | {"problem_id": f"site/{number}"} for number in range(300)]
    config = ProblemsConfig(source="jsonl", path="x", train=300, evaluation=100)
    all_of_them = read(config.model_copy(update={"path": str(written(tmp_path, *lines))}))
    some = read(config.model_copy(update={"path": str(written(tmp_path, *lines[::3]))}))
    split = {problem.problem_id: problem.split for problem in all_of_them.problems}
    assert all(split[problem.problem_id] == problem.split for problem in some.problems)
    assert 50 < sum(value == "evaluation" for value in split.values()) < 100


def test_split_changes_with_the_seed() -> None:
    config = ProblemsConfig(train=10, evaluation=10)
    other = config.model_copy(update={"seed": 1})
    assert any(split_of(str(n), config) != split_of(str(n), other) for n in range(50))


def test_no_more_than_asked_for_are_taken_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, *(LINE | {"problem_id": f"site/{number}"} for number in range(40)))
    report = read(ProblemsConfig(source="jsonl", path=str(path), train=3, evaluation=2))
    assert [problem.split for problem in report.problems] == ["train"] * 3 + ["evaluation"] * 2
    assert report.left_out == {"more than problems.train or problems.evaluation": 35}


def test_miniature_needs_no_file() -> None:
    report = read(ProblemsConfig(train=4, evaluation=3))
    assert [problem.split for problem in report.problems] == ["train"] * 4 + ["evaluation"] * 3


@pytest.mark.child
def test_asserts_that_make_objects_of_the_programs_classes_are_judged(tmp_path: Path) -> None:
    base = {"style": "function", "input_tests": [], "output_tests": [], "public_tests": []}
    setup = "root = Node(1)\nroot.left = Node(2)"
    problem = one(tmp_path, **base, test_list=["assert depth(root) == 2"], test_setup_code=setup)
    assert problem.unjudgeable_reason is None
    node = "class Node:\n    def __init__(self, value): self.value, self.left = value, None\n"
    right = node + "def depth(node): return 1 + depth(node.left) if node else 0"
    with Judge(workers=1) as judge:
        wrong = node + "def depth(node): return 1"
        found = judge.judge([Submission(program, problem.suite()) for program in (right, wrong)])
    assert [judgement.verdict for judgement in found] == ["accepted", "wrong_answer"]


def test_humaneval_way_makes_one_test_and_mbpp_way_one_per_assert(tmp_path: Path) -> None:
    base = {"style": "function", "input_tests": [], "output_tests": [], "public_tests": [], "statement": "def f(): ..."}
    humaneval = base | {"entry_point": "f", "test_code": "def check(c):\n    assert c() == 1", "test_call": "check(f)"}
    mbpp = base | {"test_list": ["assert f() == 1", "assert f() > 0"], "test_setup_code": "import math"}
    first = one(tmp_path, **humaneval)
    assert (first.style, first.entry_point) == ("function", "f")
    assert [test.input for test in first.hidden_tests] == ["def check(c):\n    assert c() == 1\ncheck(f)\n"]
    helped = one(
        tmp_path, **humaneval | {"statement": "import math\ndef g():\n    return 1\ndef f():\n    '''Is g.'''"}
    )
    assert helped.hidden_tests[0].input.startswith("import math\ndef g():\n    return 1\ndef check(c):")
    second = one(tmp_path, **mbpp)
    assert [test.input for test in second.hidden_tests] == [
        "import math\nassert f() == 1\n",
        "import math\nassert f() > 0\n",
    ]


def test_only_the_records_of_a_split_are_read(tmp_path: Path) -> None:
    lines = [LINE | {"problem_id": f"site/{i}", "split": "test" if i % 2 else "train"} for i in range(4)]
    path = written(tmp_path, *lines)
    report = read(ProblemsConfig(source="jsonl", path=str(path), only="test", train=9, evaluation=0))
    assert sorted(problem.problem_id for problem in report.problems) == ["site/1", "site/3"]
    with refused("InvalidProblem", "'split'", "'validation'"):
        read(ProblemsConfig(source="jsonl", path=str(path), only="validation"))


def test_the_first_assert_is_shown_where_the_statement_names_no_function(tmp_path: Path) -> None:
    asserts = ["assert set(twice([1])) == {2}", "assert set(twice([2])) == {4}"]
    function = {"style": "function", "test_list": asserts, "public_tests": []}
    shown = one(tmp_path, statement="Double every number.", **function)
    assert shown.statement == (
        "Double every number.\n\nThe function must pass this test:\n\nassert set(twice([1])) == {2}\n"
    )
    for named in ("Write twice(xs).", "Write `twice`.", "Write a function named twice.", "```\ndef twice (xs):\n```"):
        assert one(tmp_path, statement=named, **function).statement == named


def test_an_assert_that_the_statement_shows_is_shown_once(tmp_path: Path) -> None:
    shown = "Double every number.\n\nassert twice ([1]) == [2]"
    function = {"style": "function", "public_tests": [], "test_list": ["assert twice ([1]) == [2]"]}
    assert one(tmp_path, statement=shown, **function).statement == shown


@pytest.mark.parametrize(
    "given",
    [
        {"test_list": ["assert twice([1]) == [2]"]},  # a word of the statement, too
        {"test_list": ["assert (twice ([1]) == [2])"]},
        {"test_list": ["assert sum(10, 15) == 6"]},  # the name of a function of Python's
        {"test_list": ["assert twice([1]) == [2]"], "test_setup_code": "import math"},
    ],
)
def test_a_word_that_is_the_functions_name_by_chance_names_no_function(given: dict[str, Any], tmp_path: Path) -> None:
    shown = one(tmp_path, statement="Give the sum of all, twice.", style="function", public_tests=[], **given)
    assert shown.statement.endswith(f"must pass this test:\n\n{given['test_list'][0]}\n")


def test_a_tolerance_of_nothing_is_one(tmp_path: Path) -> None:
    assert one(tmp_path, checker={"type": "tokens", "float_tolerance": 0}).checker.float_tolerance == 0.0
    assert one(tmp_path, checker={"type": "tokens"}).checker.float_tolerance is None


def test_problems_of_basics_are_evaluated_on_beside_another_set(tmp_path: Path) -> None:
    path = written(tmp_path, LINE)
    sets = (EvaluationSet(source="basics", most=5), EvaluationSet(source="jsonl", path=str(path)))
    problems = read(ProblemsConfig(source="basics", train=7, evaluation_sets=sets)).problems
    assert [(p.problem_set, p.split) for p in problems] == (
        [("basics", "train")] * 7 + [("basics", "evaluation")] * 5 + [("set", "evaluation")]
    )
    families = {"train": set[str](), "evaluation": set[str]()}
    for problem in problems:
        families[problem.split].add(problem.title.split(":")[0])
    assert not families["train"] & families["evaluation"]
