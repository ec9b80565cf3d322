"""Zero-shot transfer: other sets, on which the first and the last policy are compared after training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.problems.records import InvalidProblem
from tests.tasks.conftest import Lab
from tests.tasks.evaluate.test_model_evaluation import DOUBLE, evaluated, settings, write
from tests.tasks.small_model import small_model

RIGHT = {"code": "print(sum(map(int, input().split())))"}


def outside(folder: Path) -> str:
    """A file with two problems of another set, one of them too long for a prompt."""
    short = {"problem_id": "other/1", "statement": "Read integers. Print the sum.", "title": "sum"}
    tests = {"input_tests": ["1 2\n", "3 4\n"], "output_tests": ["3\n", "7\n"]}
    long = short | {"problem_id": "other/2", "statement": "Read integers. Print the sum. " * 200}
    path = folder / "other.jsonl"
    path.write_text("".join(json.dumps(record | tests) + "\n" for record in (short, long)))
    return str(path)


def test_first_and_last_policy_are_compared_on_each_set_and_training_is_not_repeated(copied, tmp_path: Path) -> None:
    lab: Lab = copied()
    sets = [{"source": "jsonl", "path": outside(tmp_path)}, {"source": "basics", "most": 3}]
    run_id = lab.start("transfer", {"evaluate.transfer": sets})
    results = lab.run(run_id)
    assert results["train"].skipped
    assert not results["evaluate"].skipped
    found = results["evaluate"].manifest
    before = lab.run("micro-1", "evaluate")["evaluate"].manifest
    assert (found.comparison, found.curve) == (before.comparison, before.curve)
    assert {name: sorted(changes) for name, changes in found.transfer.items()} == {
        "basics": sorted(before.comparison),
        "other": sorted(before.comparison),
    }
    assert (before.transfer, before.transfer_unseen, before.transfer_alike) == ({}, {}, {})
    assert (found.transfer_unseen, found.transfer_alike) == ({}, {})
    samples = (
        "SELECT string_agg(n, ' ') FROM (SELECT count(*) AS n FROM eval_samples WHERE problem_id = 'other/1' "
        "GROUP BY policy_id)"
    )
    assert lab.value(samples) == "10 10"
    assert lab.value("SELECT count(*) FROM eval_samples WHERE problem_id = 'other/2'") == 0
    again = lab.run(run_id, "evaluate", force=True)["evaluate"].manifest
    assert again.rows == 0
    assert again.transfer == found.transfer


def test_problems_whose_own_solutions_fail_their_tests_are_left_out_and_named(copied, tmp_path: Path) -> None:
    lab: Lab = copied()
    path = Path(outside(tmp_path))
    good = json.loads(path.read_text().splitlines()[0]) | {"solutions": [RIGHT]}
    broken = good | {"problem_id": "other/3", "title": "broken", "output_tests": ["4\n", "8\n"]}
    path.write_text("".join(json.dumps(record) + "\n" for record in (good, broken)))
    run_id = lab.start("broken", {"evaluate.transfer": [{"source": "jsonl", "path": str(path)}]})
    found = lab.run(run_id)["evaluate"].manifest
    change = found.transfer["other"]["pass@1"]
    assert change.better + change.worse + change.equal == 1
    assert list(found.transfer_unfit) == ["other/3"]
    assert found.transfer_unfit["other/3"].startswith("its own solution is judged wrong_answer")
    assert lab.value("SELECT count(*) FROM eval_samples WHERE problem_id = 'other/3'") == 0


def test_problems_that_training_problems_resemble_are_left_out_of_a_second_comparison(copied, tmp_path: Path) -> None:
    lab: Lab = copied()
    trained_on = lab.value("SELECT min(statement) FROM problems WHERE split = 'train' AND length(statement) > 20")
    path = Path(outside(tmp_path))
    copy = json.loads(path.read_text().splitlines()[0]) | {"problem_id": "other/3", "statement": f"  {trained_on}\n"}
    path.write_text(path.read_text() + json.dumps(copy) + "\n")
    run_id = lab.start("alike", {"evaluate.transfer": [{"source": "jsonl", "path": str(path)}]})
    found = lab.run(run_id)["evaluate"].manifest
    assert found.transfer_alike == {"other": 1}
    whole, unseen = found.transfer["other"]["pass@1"], found.transfer_unseen["other"]["pass@1"]
    assert (whole.better + whole.worse + whole.equal, unseen.better + unseen.worse + unseen.equal) == (2, 1)


def test_problems_whose_prompts_are_too_long_are_left_out_and_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "home")
    long = DOUBLE | {"task_id": "Human/2", "prompt": 'def double(x):\n    """' + "Twice x. " * 3000 + '"""\n'}
    model = {"subject": {"kind": "checkpoint"}, "reference": {"model": str(small_model(tmp_path / "model"))}}
    _, result = evaluated(lab, "a", settings(write(tmp_path / "set.jsonl", [DOUBLE, long]), **model))
    assert result.manifest.transfer_too_long == ("Human/2",)
    assert result.manifest.unfit == "1 problems left out, whose prompts are too long: Human/2"
    alone = settings(write(tmp_path / "long.jsonl", [long]), **model)
    with pytest.raises(InvalidProblem, match="longer than 4072 tokens: the engine has 4096 positions"):
        evaluated(lab, "b", alone)
