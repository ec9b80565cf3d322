"""Sets to evaluate on: told apart, none empty, and none with the problems of another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks import config
from tasks.checks.preflight import faults
from tasks.config import EvaluationSet, ProblemsConfig
from tasks.problems import sources
from tasks.problems.records import Record
from tasks.problems.sources import evaluation_problems, read
from tests.refusals import refused


def written(path: Path, *names: str, **fields: Any) -> str:
    """A file of problems in the project's own layout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {"statement": "Print 1.", "input_tests": ["\n"], "output_tests": ["1\n"]} | fields
    path.write_text("".join(json.dumps({"problem_id": name} | line) + "\n" for name in names), encoding="utf-8")
    return str(path)


def released(path: Path, *days: str) -> str:
    """A file of LiveCodeBench's problems, one released on each day."""
    tests = json.dumps([{"input": "1", "output": "1", "testtype": "stdin"}])
    fields = {"question_content": "Echo.", "platform": "atcoder", "public_test_cases": tests}
    rows = [
        fields | {"question_id": day, "contest_date": f"{day}T00:00:00", "private_test_cases": "[]"} for day in days
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def own(path: str, **fields: Any) -> EvaluationSet:
    return EvaluationSet(source="jsonl", path=path, **fields)


def in_preflight(tmp_path: Path, *transfer: EvaluationSet) -> list[str]:
    sets = [one.model_dump(exclude_unset=True) for one in transfer]
    return faults(config.validate({"evaluate": {"transfer": sets}}), tmp_path)


def test_sets_of_the_same_name_stay_two_sets(tmp_path: Path) -> None:
    folders = [written(tmp_path / name / "data.jsonl", name) for name in ("one", "other")]
    problems = evaluation_problems([own(path) for path in folders], 0)
    assert {one.problem_id: one.problem_set for one in problems} == {"one": "one/data", "other": "other/data"}
    train = written(tmp_path / "train.jsonl", "a", "b")
    sets = tuple(own(path) for path in folders)
    found = read(ProblemsConfig(source="jsonl", path=train, evaluation_sets=sets)).problems
    assert [one.problem_set for one in found if one.split == "evaluation"] == ["one/data", "other/data"]
    (alone,) = evaluation_problems([own(folders[0])], 0)
    assert alone.problem_set == "data"


def test_windows_and_splits_of_one_file_are_sets_of_their_own(tmp_path: Path) -> None:
    path = released(tmp_path / "lcb.jsonl", "2024-07-01", "2024-08-01")
    early, late = ({"until": "2024-08-01"}, {"since": "2024-08-01"})
    sets = [EvaluationSet(source="livecodebench", path=path, **window) for window in (early, late)]
    above = tmp_path.name
    assert [one.problem_set for one in evaluation_problems(sets, 0)] == [
        f"{above}/lcb ..2024-08-01",
        f"{above}/lcb 2024-08-01..",
    ]


@pytest.mark.child
def test_sets_that_nothing_tells_apart_are_refused_before_the_run(tmp_path: Path) -> None:
    sets = [own(written(tmp_path / name / "same" / "data.jsonl", name)) for name in ("one", "other")]
    with refused("SetsOfOneName", "'same/data'"):
        evaluation_problems(sets, 0)
    (fault,) = in_preflight(tmp_path, *sets)
    assert "several sets to evaluate on are called 'same/data'" in fault


@pytest.mark.child
def test_two_sets_with_one_problem_are_refused_before_the_run(tmp_path: Path) -> None:
    sets = [own(written(tmp_path / f"{name}.jsonl", "HumanEval/0")) for name in ("HumanEval", "HumanEvalPlus")]
    with refused("InTwoSets", "HumanEval", "HumanEvalPlus"):
        evaluation_problems(sets, 0)
    (fault,) = in_preflight(tmp_path, *sets)
    assert "problem 'HumanEval/0' is in" in fault
    train = {"source": "jsonl", "path": written(tmp_path / "train.jsonl", "a", "HumanEval/0")}
    problems = train | {"evaluation_sets": [sets[0].model_dump(exclude_unset=True)]}
    (fault,) = faults(config.validate({"problems": problems}), tmp_path)
    assert "problem 'HumanEval/0' is in the problems to train on and in" in fault


@pytest.mark.child
def test_what_may_not_be_chosen_is_no_fault(tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(9)]
    train = {"source": "jsonl", "path": written(tmp_path / "train.jsonl", *names), "train": 4}
    (of_evaluation,) = [name for name in names if name not in chosen(ProblemsConfig(**train))][:1]
    sets = [{"source": "jsonl", "path": written(tmp_path / "test.jsonl", of_evaluation, "other")}]
    assert faults(config.validate({"problems": train | {"evaluation_sets": sets}}), tmp_path) == []


def chosen(settings: ProblemsConfig) -> set[str]:
    """The problems that are trained on beside a set to evaluate on."""
    assert settings.path is not None
    one = EvaluationSet(source="jsonl", path=written(Path(settings.path).parent / "any.jsonl", "any"))
    found = read(settings.model_copy(update={"evaluation_sets": (one,)})).problems
    return {problem.problem_id for problem in found if problem.split == "train"}


@pytest.mark.child
def test_a_window_in_which_nothing_was_released_is_named_before_the_run(tmp_path: Path) -> None:
    path = released(tmp_path / "lcb.jsonl", "2024-07-01")
    late = EvaluationSet(source="livecodebench", path=path, since="2030-01-01")
    with refused("InvalidProblem", "lcb.jsonl", "2030-01-01"):
        evaluation_problems([late], 0)
    (fault,) = in_preflight(tmp_path, late)
    assert "no problem was released since 2030-01-01" in fault


def test_a_set_of_which_nothing_can_be_judged_is_named_with_the_reason(tmp_path: Path) -> None:
    path = written(tmp_path / "special.jsonl", "a", checker={"type": "by_hand"})
    with refused("NothingJudgeable", "special.jsonl"):
        evaluation_problems([own(path)], 0)


def test_a_split_that_a_set_of_the_hub_does_not_hold_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"problem_id": 1, "question": "?", "split": "train"}
    monkeypatch.setattr(sources, "read_hub", lambda _: iter([Record("hub:1", row)]))
    with refused("InvalidProblem", "'split'", "'test'"):
        evaluation_problems([EvaluationSet(source="apps", hub="someone/apps", only="test")], 0)
