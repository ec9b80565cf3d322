"""Where problem sets may lie: Parquet, several files, the hub's layout, and sets of their own for evaluation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from sandbox import Judge, Submission
from tasks.config import EvaluationSet, ProblemFiles, ProblemsConfig
from tasks.problems.sources import read, read_file, read_set
from tasks.programs.stubs import given_code
from tests.refusals import refused
from tests.tasks.problems.test_published import CODECONTESTS, TACO, only

HUMANEVAL: dict[str, Any] = {
    "task_id": "HumanEval/0",
    "prompt": 'def twice(n: int) -> int:\n    """Twice n."""\n',
    "entry_point": "twice",
    "canonical_solution": "    return 2 * n\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
}
MBPP: dict[str, Any] = {
    "task_id": 2,
    "text": "Write a function that doubles.",
    "code": "def twice(n):\n    return 2 * n",
    "test_list": ["assert twice(1) == 2", "assert twice(2) == 4"],
    "test_setup_code": "",
    "challenge_test_list": [],
}


def numbered(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [CODECONTESTS | {"name": f"{number}_A"} | changes for number in range(count)]


def write_parquet(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("layout, record", [("codecontests", CODECONTESTS), ("taco", TACO)])
def test_parquet_and_json_lines_give_the_same_problem(tmp_path: Path, layout: str, record: dict[str, Any]) -> None:
    lines = only(tmp_path, layout, record)
    assert read_file(write_parquet(tmp_path / "set.parquet", [record]), layout)[0] == lines


def test_a_malformed_parquet_row_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "set.parquet", [TACO, TACO | {"url": "x", "input_output": "{"}])
    with refused("InvalidProblem", "set.parquet:2", "'input_output'"):
        read_file(path, "taco")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.parquet").write_text("no")
    with refused("Unreadable", "set.parquet"):
        read_file(tmp_path / "set.parquet", "taco")


def test_a_folder_and_a_pattern_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00001.parquet", numbered(4)[2:])
    write_parquet(tmp_path / "data" / "train-00000.parquet", numbered(2))
    write_lines(tmp_path / "data" / "valid.jsonl", [CODECONTESTS | {"name": "v"}])
    names = [problem.title for problem in read_file(tmp_path / "data", "codecontests")]
    assert names == ["0_A", "1_A", "2_A", "3_A", "v"]
    pattern = [problem.title for problem in read_file(tmp_path / "data" / "train-*.parquet", "codecontests")]
    assert pattern == ["0_A", "1_A", "2_A", "3_A"]


def test_an_empty_folder_says_what_it_looked_for(tmp_path: Path) -> None:
    with refused("Unreadable"):
        read_file(tmp_path, "codecontests")


def test_a_data_set_is_read_through_the_hub_library(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", numbered(3))
    problems = read_set(ProblemFiles(source="codecontests", hub=str(tmp_path)))
    assert [problem.title for problem in problems] == ["0_A", "1_A", "2_A"]
    files = read_file(tmp_path / "data" / "train-*.parquet", "codecontests")
    assert [problem.content_hash for problem in problems] == [problem.content_hash for problem in files]


def test_a_data_set_out_of_reach_says_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    with refused("InvalidProblem", "nowhere"):
        read_set(ProblemFiles(source="codecontests", hub=str(tmp_path / "nowhere")))


def test_humaneval_and_mbpp_become_function_problems(tmp_path: Path) -> None:
    human, basic = only(tmp_path, "humaneval", HUMANEVAL), only(tmp_path, "mbpp", MBPP)
    assert (human.problem_id, human.style, human.entry_point) == ("HumanEval/0", "function", "twice")
    assert human.solutions[0].program.endswith("return 2 * n\n")
    assert "check(twice)" in human.tests[0].input
    assert (basic.problem_id, len(basic.tests)) == ("mbpp/2", 2)
    assert "assert twice(1) == 2" in basic.statement


@pytest.mark.child
@pytest.mark.parametrize("answer, right", [("    return shifted(n)\n", True), ("    return shift(n)\n", False)])
def test_an_answer_need_not_repeat_what_a_humaneval_prompt_gives_before_the_function(
    tmp_path: Path, answer: str, right: bool
) -> None:
    given = "from typing import List\n\n\ndef shifted(n):\n    return n + 1\n\n\n"
    stub = 'def f(n: List[int]):\n    """The next."""\n'
    test = "def check(candidate):\n    assert candidate(1) == 2\n"
    record = {"prompt": given + stub, "entry_point": "f", "test": test, "canonical_solution": answer}
    problem = only(tmp_path, "humaneval", HUMANEVAL | record)
    programs = [stub + answer, given + stub + answer]
    with Judge(workers=1, mode="batch") as judge:
        found = judge.judge([Submission(program, problem.suite()) for program in programs])
    assert [one.verdict == "accepted" for one in found] == [right, right]


def test_a_prompt_that_gives_nothing_before_its_function_puts_nothing_before_answers(tmp_path: Path) -> None:
    assert only(tmp_path, "humaneval", HUMANEVAL).prelude == ""
    assert given_code("no Python: (") == given_code("x = 1") == given_code("") == ""


def test_evaluation_sets_leave_the_whole_file_to_training(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.jsonl", numbered(20))
    test = write_lines(tmp_path / "test.jsonl", [CODECONTESTS | {"name": f"t{n}"} for n in range(5)])
    taco = write_lines(tmp_path / "taco.jsonl", [TACO | {"url": str(n)} for n in range(4)])
    sets = (EvaluationSet(source="codecontests", path=str(test)), EvaluationSet(source="taco", path=str(taco), most=3))
    report = read(ProblemsConfig(source="codecontests", path=str(train), train=100, evaluation_sets=sets))
    by_set = [(p.problem_set, p.split) for p in report.problems]
    assert by_set.count(("train", "train")) == 20
    assert by_set.count(("test", "evaluation")) == 5
    assert by_set.count(("taco", "evaluation")) == 3
    assert report.left_out == {"more than problems.train or problems.evaluation": 1}


def test_evaluation_problems_that_cannot_be_judged_stay_known_as_evaluation_problems(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.jsonl", numbered(3))
    bare = CODECONTESTS | {"name": "bare", "public_tests": None, "private_tests": None, "generated_tests": None}
    test = write_lines(tmp_path / "test.jsonl", [bare])
    sets = (EvaluationSet(source="codecontests", path=str(test)),)
    report = read(ProblemsConfig(source="codecontests", path=str(train), evaluation_sets=sets))
    assert [(p.split, p.unjudgeable_reason) for p in report.unjudgeable] == [("evaluation", "no tests")]


def test_a_problem_in_both_sets_is_refused(tmp_path: Path) -> None:
    train = write_lines(tmp_path / "train.jsonl", numbered(3))
    sets = (EvaluationSet(source="codecontests", path=str(train)),)
    with refused("InTwoSets"):
        read(ProblemsConfig(source="codecontests", path=str(train), evaluation_sets=sets))


@pytest.mark.parametrize(
    "settings",
    [
        {"source": "codecontests"},
        {"source": "codecontests", "path": "a", "hub": "b"},
        {"source": "kattis", "hub": "b"},
        {"source": "miniature", "evaluation_sets": [{"source": "taco", "path": "x"}]},
        {"source": "taco", "path": "x", "evaluation_sets": [{"source": "miniature"}]},
    ],
)
def test_a_place_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ProblemsConfig.model_validate(settings)
