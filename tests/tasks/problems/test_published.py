"""Published layouts: the same little problem as each of the sets would write it."""

import ast
import base64
import json
import math
import pickle
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import Judge, Submission, Verdict
from tasks.problems.problem import Problem, problems_from_rows, rows
from tasks.problems.published import PRELUDE
from tasks.problems.sources import read_file
from tests.refusals import refused

CODECONTESTS: dict[str, Any] = {
    "name": "1_A. Twice",
    "description": "Print twice n.",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["2\n"], "output": ["4\n"]},
    "generated_tests": {"input": ["3\n"], "output": ["6\n"]},
    "source": 2,
    "solutions": {"language": [2, 3], "solution": ["int main(){}", "print(2 * int(input()))"]},
    "incorrect_solutions": {"language": [3, 1], "solution": ["print(1)", "print 1"]},
    "time_limit": {"seconds": 1, "nanos": 500000000},
    "memory_limit_bytes": 256000000,
    "input_file": "",
    "output_file": "",
}
TACO: dict[str, Any] = {
    "question": "Print twice n.",
    "solutions": json.dumps(["print(2 * int(input()))"]),
    "starter_code": "",
    "input_output": json.dumps({"inputs": ["1\n", ["2", "x"]], "outputs": ["2\n", ["4"]]}),
    "url": "https://example.org/1",
    "time_limit": "1.5 seconds",
    "memory_limit": "256.0 megabytes",
}
FUNCTION = {
    "starter_code": "class Solution:\n    def twice(self, n: int) -> int:\n",
    "input_output": json.dumps({"fn_name": "twice", "inputs": [[1], [2]], "outputs": [[2], 4]}),
}
LIVECODEBENCH: dict[str, Any] = {
    "question_id": "abc1_a",
    "question_title": "Twice",
    "question_content": "Print twice n.",
    "platform": "atcoder",
    "contest_date": "2024-01-01T00:00:00",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "1\n", "output": "2\n", "testtype": "stdin"}]),
    "private_test_cases": json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}]),
    "metadata": "{}",
}


def only(folder: Path, layout: str, record: dict[str, Any]) -> Problem:
    path = folder / "set.jsonl"
    path.write_text(json.dumps(record) + "\n")
    return read_file(path, layout)[0]


def packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


def test_codecontests_problem_is_read(tmp_path: Path) -> None:
    problem = only(tmp_path, "codecontests", CODECONTESTS)
    assert (problem.problem_id, problem.checker.kind) == ("codecontests/1_A. Twice", "codecontests")
    assert [test.expected for test in problem.tests] == ["2\n", "4\n", "6\n"]
    assert len(problem.public_tests) == 1
    assert (problem.limits.cpu_s, problem.limits.memory_bytes) == (1.5, 256000000)
    assert [(s.program, s.claimed) for s in problem.solutions] == [
        ("print(2 * int(input()))", "accepted"),
        ("print(1)", "rejected"),
    ]
    assert problem.unjudgeable_reason is None


def test_codecontests_tests_may_be_a_list_of_pairs(tmp_path: Path) -> None:
    pairs = {"public_tests": [{"input": "1\n", "output": "2\n"}]}
    assert only(tmp_path, "codecontests", CODECONTESTS | pairs).public_tests[0].expected == "2\n"


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"input_file": "in.txt"}, "reads or writes files"),
        ({"description": "See <image>."}, "statement has images"),
        ({"public_tests": {}, "private_tests": {}, "generated_tests": None}, "no tests"),
    ],
)
def test_codecontests_problem_that_cannot_be_judged_says_why(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    assert only(tmp_path, "codecontests", CODECONTESTS | change).unjudgeable_reason == reason


def test_taco_problem_is_read(tmp_path: Path) -> None:
    problem = only(tmp_path, "taco", TACO)
    assert problem.problem_id == "taco/https://example.org/1"
    assert [(test.input, test.expected) for test in problem.hidden_tests] == [("1\n", "2\n"), ("2\nx\n", "4\n")]
    assert (problem.limits.cpu_s, problem.limits.memory_bytes) == (1.5, 256 << 20)
    assert [s.program for s in problem.solutions] == ["print(2 * int(input()))"]


def test_calls_become_asserts_that_a_right_program_passes(tmp_path: Path) -> None:
    problem = only(tmp_path, "taco", TACO | FUNCTION)
    assert (problem.style, problem.entry_point) == ("function", "twice")
    assert "class Solution" in problem.statement
    right = "class Solution:\n    def twice(self, n):\n        return 2 * n\n"
    wrong = right.replace("2 * n", "n")
    for test in problem.hidden_tests:
        exec(right + test.input, {})
    with pytest.raises(AssertionError):
        exec(wrong + problem.hidden_tests[0].input, {})


def test_apps_problem_is_read(tmp_path: Path) -> None:
    record = {"problem_id": 7} | {name: TACO[name] for name in ("question", "solutions", "input_output", "url")}
    problem = only(tmp_path, "apps", record)
    assert (len(problem.hidden_tests), problem.limits.cpu_s) == (2, 4.0)
    assert problem.problem_id.startswith("apps/7-")
    assert (
        only(tmp_path, "apps", record | {"question": "Another."}).problem_id != problem.problem_id
    )  # both splits count


def test_taco_problems_without_an_address_are_told_apart_in_a_folder_of_files(tmp_path: Path) -> None:
    for number in range(2):
        record = TACO | {"url": None, "question": f"Print n times {number}."}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    assert len({problem.problem_id for problem in read_file(tmp_path, "taco")}) == 2


@pytest.mark.child
def test_numbers_of_thousands_of_digits_are_read_judged_and_passed(tmp_path: Path) -> None:
    zeros = "0" * 9000
    tests = f'{{"fn_name": "twice", "inputs": [[1{zeros}]], "outputs": [2{zeros}]}}'
    problem = only(tmp_path, "apps", TACO | FUNCTION | {"problem_id": 7, "input_output": tests})
    with refused("ValueError", 4300):
        str(10**9000)  # as identities of programs need it
    with Judge() as judge:
        program = "class Solution:\n    def twice(self, n):\n        return {} * n"
        found = judge.judge([Submission(program.format(n), problem.suite()) for n in (2, 3)])
    assert [one.verdict for one in found] == [Verdict.accepted, Verdict.wrong_answer]


@pytest.mark.child
def test_numbers_without_a_literal_are_judged(tmp_path: Path) -> None:
    tests = {"fn_name": "twice", "inputs": [[1], [3], [5]], "outputs": [2, math.inf, [[-math.inf, "nan"]]]}
    problem = only(tmp_path, "apps", TACO | FUNCTION | {"problem_id": 7, "input_output": json.dumps(tests)})
    program = "class Solution:\n    def twice(self, n):\n        return {1: 2, 3: 1e999, 5: [-1e999, 'nan']}[n]"
    with Judge() as judge:
        found = judge.judge([Submission(text, problem.suite()) for text in (program, program.replace("-", "+"))])
    assert [one.verdict for one in found] == [Verdict.accepted, Verdict.wrong_answer]


def test_apps_without_tests_is_unjudgeable(tmp_path: Path) -> None:
    problem = only(tmp_path, "apps", {"problem_id": 7, "question": "?", "solutions": "", "input_output": ""})
    assert problem.unjudgeable_reason == "no tests"


def test_livecodebench_problem_is_read_packed_or_not(tmp_path: Path) -> None:
    plain = only(tmp_path, "livecodebench", LIVECODEBENCH)
    private = packed([{"input": "2\n", "output": "4\n", "testtype": "stdin"}])
    assert only(tmp_path, "livecodebench", LIVECODEBENCH | {"private_test_cases": private}) == plain
    assert [test.expected for test in plain.tests] == ["2\n", "4\n"]
    assert plain.limits.cpu_s == 6.0


def test_livecodebench_functional_tests_become_asserts(tmp_path: Path) -> None:
    tests = json.dumps(
        [{"input": '[1, 2]\n"a\u2028"\n', "output": "true", "testtype": "functional"}], ensure_ascii=False
    )
    change = {
        "public_test_cases": tests,
        "private_test_cases": "[]",
        "metadata": json.dumps({"func_name": "check"}),
        "starter_code": FUNCTION["starter_code"],
    }
    problem = only(tmp_path, "livecodebench", LIVECODEBENCH | change)
    assert (problem.style, problem.entry_point) == ("function", "check")
    assert problem.public_tests[0].input == "assert Solution().check([1, 2], 'a\\u2028') == True\n"


STARTED = """class Solution:
    def twice(self, n: List[int], far: Optional[int] = inf) -> List[int]:
        return [pow(2 * one, 1, 1000) for one in deque(n)]
"""


@pytest.mark.child
def test_programs_that_start_from_a_given_function_find_what_it_names(tmp_path: Path) -> None:
    """As in the sets' own graders; `from __future__` stays where it must be. Elsewhere programs import themselves."""
    tests = json.dumps([{"input": "[1, 2]", "output": "[2, 4]", "testtype": "functional"}])
    change = {"public_test_cases": tests, "private_test_cases": "[]", "metadata": json.dumps({"func_name": "twice"})}
    problem = only(tmp_path, "livecodebench", LIVECODEBENCH | change | {"starter_code": FUNCTION["starter_code"]})
    (again,) = problems_from_rows(*(rows([problem])[name] for name in ("problems", "tests", "solutions")))
    assert again.suite() == problem.suite()
    assert problem.style == "function"
    bare = replace(problem, prelude="")
    assert bare.suite_hash != problem.suite_hash
    programs = [STARTED, f'"""Words."""\nfrom __future__ import (\n    annotations,\n)\n{STARTED}']
    with Judge() as judge:
        found = judge.judge([Submission(text, one.suite()) for one in (problem, bare) for text in programs[:1]])
        later = judge.judge([Submission(programs[1], problem.suite())])
    assert [one.verdict for one in found] == [Verdict.accepted, Verdict.runtime_error]
    assert later[0].verdict is Verdict.accepted
    assert not only(tmp_path, "taco", TACO).prelude
    assert only(tmp_path, "taco", TACO | FUNCTION).prelude == PRELUDE


DEEP = """def go(i):
    return i and 1 + go(i - 1)


print(go(int(input())))
"""


@pytest.mark.child
def test_livecodebench_lets_programs_recurse_as_its_own_grader_does(tmp_path: Path) -> None:
    tests = json.dumps([{"input": "20000\n", "output": "20000\n", "testtype": "stdin"}])
    change = {"public_test_cases": tests, "private_test_cases": "[]"}
    problem = only(tmp_path, "livecodebench", LIVECODEBENCH | change)
    called = json.dumps([{"input": "20000", "output": "20000", "testtype": "functional"}])
    of_function = change | {
        "public_test_cases": called,
        "metadata": json.dumps({"func_name": "go"}),
        "starter_code": "",
    }
    function = only(tmp_path, "livecodebench", LIVECODEBENCH | of_function)
    with Judge() as judge:
        submissions = [Submission(DEEP, problem.suite()), Submission(DEEP.partition("\n\n\n")[0], function.suite())]
        assert [one.verdict for one in judge.judge(submissions)] == [Verdict.accepted] * 2


@pytest.mark.child
def test_letter_case_and_lines_count_where_the_sets_own_graders_count_them(tmp_path: Path) -> None:
    swap = json.dumps({"inputs": ["AtCoder\n"], "outputs": ["aTcODER\n"]})
    tests = json.dumps([{"input": "AtCoder\n", "output": "aTcODER\n", "testtype": "stdin"}])
    change = {"public_test_cases": tests, "private_test_cases": "[]"}
    problems = [
        only(tmp_path, "taco", TACO | {"input_output": swap}),
        only(tmp_path, "apps", {"problem_id": 7, "question": "?", "solutions": "", "input_output": swap}),
        only(tmp_path, "livecodebench", LIVECODEBENCH | change),
    ]
    programs = {"print(input())": Verdict.wrong_answer, "print(input().swapcase())": Verdict.accepted}
    with Judge() as judge:
        for program, verdict in programs.items():
            found = judge.judge([Submission(program, problem.suite()) for problem in problems])
            assert {one.verdict for one in found} == {verdict}


@pytest.mark.child
def test_outputs_of_megabytes_can_be_right(tmp_path: Path) -> None:
    output = "7" * 1_200_000 + "\n"
    change = {"public_test_cases": json.dumps([{"input": "7\n", "output": output, "testtype": "stdin"}])}
    problem = only(tmp_path, "livecodebench", LIVECODEBENCH | change | {"private_test_cases": "[]"})
    (again,) = problems_from_rows(*(rows([problem])[name] for name in ("problems", "tests", "solutions")))
    assert again.suite() == problem.suite()
    with Judge() as judge:
        programs = ["print(input() * 1_200_000)", "print('7' * 2_500_000)"]
        found = judge.judge([Submission(program, problem.suite()) for program in programs])
    assert [one.verdict for one in found] == [Verdict.accepted, Verdict.output_limit]


@pytest.mark.child
def test_large_values_of_asserts_are_one_constant(tmp_path: Path) -> None:
    given = [[number, number + 1] for number in range(30_000)]
    test = {"input": json.dumps(given), "output": json.dumps([a + b for a, b in given]), "testtype": "functional"}
    change = {"public_test_cases": json.dumps([test]), "private_test_cases": "[]", "starter_code": ""}
    problem = only(tmp_path, "livecodebench", LIVECODEBENCH | change | {"metadata": json.dumps({"func_name": "f"})})
    tree = ast.parse(problem.public_tests[0].input)
    assert sum(1 for _ in ast.walk(tree)) < 200
    with Judge() as judge:
        right, wrong = "def f(xs):\n    return [a + b for a, b in xs]", "def f(xs):\n    return [a for a, b in xs]"
        found = judge.judge([Submission(program, problem.suite()) for program in (right, wrong)])
    assert [one.verdict for one in found] == [Verdict.accepted, Verdict.wrong_answer]


def test_tuples_count_as_the_lists_that_json_made_of_them_and_keys_as_numbers(tmp_path: Path) -> None:
    """Results and arguments went through JSON; the sets' own graders compare them so."""
    content = {"fn_name": "twice", "inputs": [[{"1": [2]}], [[3]]], "outputs": [[[[1, 2], [3]]], [{"4": 5}]]}
    problem = only(tmp_path, "taco", TACO | FUNCTION | {"input_output": json.dumps(content)})
    right = "class Solution:\n    def twice(self, x):\n        return ((1, 2), [3]) if x == {1: [2]} else {4: 5}\n"
    wrong = right.replace("((1, 2), [3])", "((1, 2), 3)")
    for test in problem.hidden_tests:
        exec(right + test.input, {})
    with pytest.raises(AssertionError):
        exec(wrong + problem.hidden_tests[0].input, {})


def test_pickle_that_calls_code_is_refused(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (print, ("called",))

    text = base64.b64encode(zlib.compress(pickle.dumps(Hostile()))).decode()
    with refused("InvalidProblem", "private_test_cases", "builtins.print"):
        only(tmp_path, "livecodebench", LIVECODEBENCH | {"private_test_cases": text})


@pytest.mark.parametrize(
    "layout, record, field",
    [
        ("codecontests", CODECONTESTS | {"private_tests": {"input": ["1"], "output": []}}, "private_tests.output"),
        ("codecontests", CODECONTESTS | {"solutions": {"language": [3], "solution": []}}, "solutions.solution"),
        ("taco", TACO | {"input_output": "{"}, "input_output"),
        ("taco", TACO | {"input_output": '{"inputs": ["1"], "outputs": []}'}, "input_output.outputs"),
        ("taco", TACO | {"solutions": "[1]"}, "solutions[0]"),
        ("apps", TACO, "problem_id"),
        ("livecodebench", LIVECODEBENCH | {"private_test_cases": "!!"}, "private_test_cases"),
        ("livecodebench", LIVECODEBENCH | {"public_test_cases": '[{"input": 1}]'}, "public_test_cases[0].input"),
    ],
)
def test_malformed_field_is_named(tmp_path: Path, layout: str, record: dict[str, Any], field: str) -> None:
    with refused("InvalidProblem", "set.jsonl:1", f"'{field}'"):
        only(tmp_path, layout, record)


@pytest.mark.parametrize("change", [{"question": "See [Image]."}, {"picture_num": "2"}, {"picture_num": 1}])
def test_a_taco_problem_with_pictures_is_left_out(change: dict[str, Any], tmp_path: Path) -> None:
    assert only(tmp_path, "taco", TACO | change).unjudgeable_reason == "statement has images"
    assert only(tmp_path, "taco", TACO | {"picture_num": "0"}).unjudgeable_reason is None
    assert only(tmp_path, "taco", TACO | {"picture_num": None}).unjudgeable_reason is None


def test_a_limit_in_bytes_is_that_of_the_programs_text(tmp_path: Path) -> None:
    limits = only(tmp_path, "taco", TACO | {"memory_limit": "50000 bytes"}).limits
    assert limits.memory_bytes == only(tmp_path, "taco", TACO | {"memory_limit": None}).limits.memory_bytes


@pytest.mark.parametrize(
    ("time", "memory", "seconds", "mib"),
    [
        ("2.0 seconds", "256.0 megabytes", 2.0, 256),
        ("500 ms", "131072 KB", 0.5, 128),
        ("1 sec", "1 GB", 1.0, 1024),
        ("1500 milliseconds", "65536 kilobytes", 1.5, 64),
    ],
)
def test_limits_are_read_with_their_units(time: str, memory: str, seconds: float, mib: int, tmp_path: Path) -> None:
    limits = only(tmp_path, "taco", TACO | {"time_limit": time, "memory_limit": memory}).limits
    assert (limits.cpu_s, limits.memory_bytes) == (seconds, mib << 20)
