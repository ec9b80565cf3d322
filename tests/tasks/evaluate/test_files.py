"""Files that `spo eval` reads: samples in each way of writing them, problem sets in each layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.config import EvaluationSet
from tasks.evaluate import sample_files
from tasks.problems.records import InvalidProblem
from tasks.problems.sources import evaluation_problems, layout_of, read_file
from tests.tasks.evaluate.test_model_evaluation import DOUBLE, write


@pytest.mark.parametrize(
    "row, program",
    [
        ({"completion": "    return 1"}, DOUBLE["prompt"] + "    return 1"),
        ({"solution": "a = 1"}, "a = 1"),
        ({"code_list": ["a = 1", "a = 2"]}, "a = 1"),
        ({"response": "So:\n```python\na = 1\n```"}, "a = 1"),
        ({"samples": [{"program": "a = 1"}]}, "a = 1"),
    ],
)
def test_each_way_of_writing_samples_is_understood(tmp_path: Path, row: dict[str, Any], program: str) -> None:
    path = write(tmp_path / "set.jsonl", [DOUBLE])
    problems = {one.problem_id: one for one in read_file(path, "humaneval")}
    found = sample_files.read(write(tmp_path / "s.jsonl", [{"task_id": "Human/0"} | row]), problems)
    assert found.samples["Human/0"][0].program == program


def test_a_row_without_a_program_or_a_problem_is_named(tmp_path: Path) -> None:
    problems = {one.problem_id: one for one in read_file(write(tmp_path / "set.jsonl", [DOUBLE]), "humaneval")}
    for row, field in (({"task_id": "Human/0"}, "completion"), ({"solution": "a"}, "problem_id")):
        with pytest.raises(InvalidProblem, match=field):
            sample_files.read(write(tmp_path / "s.jsonl", [row]), problems)


@pytest.mark.parametrize(
    "problem, layout, row",
    [
        (
            {"question_id": "abc1_a", "question_content": "?", "platform": "atcoder", "contest_date": "2024-07-01"}
            | {"public_test_cases": '[{"input": "1", "output": "1", "testtype": "stdin"}]', "private_test_cases": "[]"},
            "livecodebench",
            {"question_id": "abc1_a", "code_list": ["a = 1"]},
        ),
        (
            {"task_id": 11, "text": "?", "code": "", "test_list": ["assert f(1) == 1"]},
            "mbpp",
            {"task_id": 11, "code": "a = 1"},
        ),
    ],
)
def test_problems_are_found_by_the_names_that_their_own_set_gives_them(
    problem: dict[str, Any], layout: str, row: dict[str, Any], tmp_path: Path
) -> None:
    problems = {one.problem_id: one for one in read_file(write(tmp_path / "set.jsonl", [problem]), layout)}
    rows = [row, {"task_id": "elsewhere", "code": "a = 2"}]
    found = sample_files.read(write(tmp_path / "s.jsonl", rows), problems)
    assert [[one.program for one in own] for own in found.samples.values()] == [["a = 1"]]
    assert (found.left_out, found.unknown) == ({"of no problem of the set": 1}, "elsewhere")


def test_a_number_names_no_problem_of_a_set_whose_names_are_whole(tmp_path: Path) -> None:
    problems = {one.problem_id: one for one in read_file(write(tmp_path / "set.jsonl", [DOUBLE]), "humaneval")}
    found = sample_files.read(write(tmp_path / "s.jsonl", [{"task_id": 0, "code": "a = 1"}]), problems)
    assert (found.samples, found.unknown) == ({"Human/0": []}, "0")


@pytest.mark.parametrize(
    "row, layout",
    [
        (DOUBLE, "humaneval"),
        ({"problem_id": "p", "statement": "s"}, "jsonl"),
        ({"task_id": 1, "text": "t", "test_list": []}, "mbpp"),
        ({"question_id": "1", "question_content": "c"}, "livecodebench"),
    ],
)
def test_the_layout_is_told_from_the_fields(tmp_path: Path, row: dict[str, Any], layout: str) -> None:
    assert layout_of(write(tmp_path / "set.jsonl", [row])) == layout


def test_a_file_of_no_known_layout_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblem):
        layout_of(write(tmp_path / "set.jsonl", [{"a": 1}]))


def test_livecodebench_problems_are_taken_from_a_window_of_releases(tmp_path: Path) -> None:
    tests = json.dumps([{"input": "1", "output": "1", "testtype": "stdin"}])
    rows = [
        {
            "question_id": day,
            "question_content": "Echo.",
            "platform": "atcoder",
            "contest_date": f"{day}T00:00:00",
            "public_test_cases": tests,
            "private_test_cases": "[]",
        }
        for day in ("2024-07-01", "2024-08-01", "2024-09-01")
    ]
    path = str(write(tmp_path / "lcb.jsonl", rows))
    window = EvaluationSet(source="livecodebench", path=path, since="2024-08-01", until="2024-09-01")
    assert [one.problem_id for one in evaluation_problems([window], 0)] == ["livecodebench/2024-08-01"]
    with pytest.raises(ValueError):
        EvaluationSet(source="humaneval", path=path, since="2024-08-01")
