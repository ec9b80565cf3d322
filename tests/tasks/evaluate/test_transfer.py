"""Zero-shot transfer: other sets, on which the first and the last policy are compared after training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.problems.records import InvalidProblem
from tasks.run.stage_names import STAGE_NAMES
from tests.tasks.conftest import Lab
from tests.tasks.evaluate.test_model_evaluation import DOUBLE, evaluated, settings, write
from tests.tasks.small_model import small_model

RIGHT = {"code": "print(sum(map(int, input().split())))"}


def outside(folder: Path, trained_on: str) -> str:
    """A file with problems of another set: a good one, one too long for a prompt, one whose own solution fails, and one
    that is trained on.
    """
    good = {"problem_id": "other/1", "statement": "Read integers. Print the sum.", "title": "sum", "solutions": [RIGHT]}
    good |= {"input_tests": ["1 2\n", "3 4\n"], "output_tests": ["3\n", "7\n"]}
    records = [
        good,
        good | {"problem_id": "other/2", "statement": "Read integers. Print the sum. " * 200},
        good | {"problem_id": "other/3", "title": "broken", "output_tests": ["4\n", "8\n"]},
        good | {"problem_id": "other/4", "statement": f"  {trained_on}\n"},
    ]
    return str(write(folder / "other.jsonl", records))


def test_first_and_last_policy_are_compared_on_each_set_and_training_is_not_repeated(
    copied: Callable[[], Lab], tmp_path: Path
) -> None:
    lab, stages = copied(), STAGE_NAMES[: STAGE_NAMES.index("report")]
    trained_on = lab.value("SELECT min(statement) FROM problems WHERE split = 'train' AND length(statement) > 20")
    sets = [{"source": "jsonl", "path": outside(tmp_path, trained_on)}, {"source": "basics", "most": 3}]
    run_id = lab.start("transfer", {"evaluate.transfer": sets})
    results = lab.run(run_id, *stages)
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
    assert list(found.transfer_unfit) == ["other/3"]
    assert found.transfer_alike == {"other": 1}
    whole, unseen = found.transfer["other"]["pass@1"], found.transfer_unseen["other"]["pass@1"]
    assert (whole.better + whole.worse + whole.equal, unseen.better + unseen.worse + unseen.equal) == (2, 1)
    drawn = "SELECT (policy_id, problem_id) AS one, count(*) AS n FROM eval_samples WHERE problem_id LIKE 'other/%'"
    with lab.store() as store:
        rows = store.rows(f"{drawn} GROUP BY ALL")
    assert sorted(row["n"] for row in rows) == [10] * 4
    again = lab.run(run_id, "evaluate", force=True)["evaluate"].manifest
    assert again.rows == 0
    assert again.transfer == found.transfer


def test_problems_whose_prompts_are_too_long_are_left_out_and_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "home")
    long = DOUBLE | {"task_id": "Human/2", "prompt": 'def double(x):\n    """' + "Twice x. " * 3000 + '"""\n'}
    model = {"subject": {"kind": "checkpoint"}, "reference": {"model": str(small_model(tmp_path / "model"))}}
    _, result = evaluated(lab, "a", settings(write(tmp_path / "set.jsonl", [DOUBLE, long]), **model))
    assert result.manifest.transfer_too_long == ("Human/2",)
    alone = settings(write(tmp_path / "long.jsonl", [long]), **model)
    with pytest.raises(InvalidProblem):
        evaluated(lab, "b", alone)
