"""Any model on any problems: a checkpoint, programs in a file, a server; resumed, found again, compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.settings import RECIPES
from tasks import config
from tasks.checks.plan import statuses
from tasks.config import InvalidConfig
from tasks.estimators import average_pass_at_k
from tasks.evaluate.eval_samples import TooFewSamples
from tasks.evaluate.model_evaluation import STAGE
from tasks.problems.records import InvalidProblem
from tasks.problems.sources import read_file
from tasks.report import run_history, run_report
from tasks.report.comparison import NothingToCompare, compare
from tasks.run import runs
from tasks.run.errors import StageError
from tasks.run.manifests import ModelEvaluation
from tasks.run.stage import Context, StageResult, run_stage
from tests.tasks.conftest import Lab, judge_broken_at
from tests.tasks.evaluate.endpoint_stub import server
from tests.tasks.small_model import small_model, with_turns
from warehouse.queries import query
from warehouse.superseding import content

DOUBLE = {
    "task_id": "Human/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
}
SQUARE = DOUBLE | {
    "task_id": "Human/1",
    "prompt": 'def square(x):\n    """x times x."""\n',
    "entry_point": "square",
    "canonical_solution": "    return x * x\n",
    "test": "def check(candidate):\n    assert candidate(3) == 9\n",
}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "home")


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    return write(tmp_path / "human.jsonl", [DOUBLE, SQUARE])


def samples_file(tmp_path: Path, name: str = "samples.jsonl", right: int = 1) -> Path:
    """Two samples of each problem, `right` of them right for the first, both for the second."""
    rows: list[dict[str, Any]] = [
        {
            "task_id": "Human/0",
            "completion": "    return x + x\n" if n < right else "    return x\n",
            "passed": n < right,
        }
        for n in range(2)
    ]
    rows.append({"task_id": "human/1", "samples": [{"solution": "def square(x):\n    return x ** 2"}] * 2})
    return write(tmp_path / name, rows)


def settings(problems: Path, **changes: Any) -> dict[str, Any]:
    evaluate = {
        "samples": 2,
        "ks": [1, 2],
        "transfer": [{"source": "humaneval", "path": str(problems)}],
        "behaviour": {"temperature": [0.8, 0.8]},
    }
    tree = {"recipe": "eval", "evaluate": evaluate, "problems": {"max_prompt_tokens": 4096}}
    return tree | {"engine": {"max_response_tokens": 24}} | changes


def evaluated(lab: Lab, origin: str, tree: dict[str, Any]) -> tuple[str, StageResult[ModelEvaluation]]:
    with lab.store() as store:
        run_id = runs.create(store, config.validate(tree), origin=origin)
        return run_id, run_stage(STAGE, Context(run_id, runs.load_config(store, run_id), store, lab.home))


def of_file(path: Path) -> dict[str, Any]:
    return {"subject": {"kind": "samples", "path": str(path)}}


def test_programs_in_a_file_are_judged_counted_exactly_and_found_again(
    lab: Lab, tmp_path: Path, problems: Path
) -> None:
    tree = settings(problems, **of_file(samples_file(tmp_path)))
    run_id, result = evaluated(lab, "a", tree)
    expected = average_pass_at_k({"human": [(2, 1), (2, 2)]}, 1)
    assert run_id == "eval-1"
    first, second = result.manifest.curve
    assert (first.k, first.value, first.low, first.high) == (1, expected.value, expected.low, expected.high)
    assert second.value == 1.0
    assert (result.manifest.disagreeing, result.manifest.claimed) == (0, 2)
    assert lab.value("SELECT count(*) FROM eval_samples") == 4
    assert lab.value("SELECT pass_at_k FROM pass_at_k WHERE k = 1") == 0.75
    verdicts = lab.value("SELECT count(*) FROM verdicts")
    again_id, again = evaluated(lab, "b", tree)
    assert (again_id, again.skipped) == ("eval-2", True)
    assert lab.value("SELECT count(*) FROM verdicts") == verdicts
    with lab.store() as store:  # another evaluation at the same time kept the same samples, judged otherwise
        rows = [content(row) | {"reward": -1.0} for row in store.rows("SELECT * FROM eval_samples")]
        store.append("the other's shard", {"eval_samples": rows}, run_id="other")
    tree["evaluate"] |= {"ks": [2, 1]}
    _, other = evaluated(lab, "c", tree)
    assert (other.skipped, other.rows) == (False, 0)
    assert sorted(other.manifest.curve, key=lambda one: one.k) == list(result.manifest.curve)
    with lab.store() as store:
        batches = store.rows("SELECT DISTINCT batch_id AS bad_batch_id, 'test' AS reason FROM eval_samples")
        store.append("bad", {"quarantine": batches}, run_id="test")
        assert run_history.read(store, lab.home, "eval-1").points == ()
        with pytest.raises(NothingToCompare):
            compare(store, lab.home, "eval-1", "eval-1")
    tree["evaluate"] |= {"ks": [1]}
    assert evaluated(lab, "d", tree)[1].rows == 4
    assert lab.value("SELECT count(*) FROM eval_samples") == 4
    with lab.store() as store:
        with pytest.raises(runs.UnknownRun):
            runs.latest(store)
        run_id = runs.create(store, config.load("tiny", folder=RECIPES), origin="pipeline")
        assert runs.latest(store) == run_id
        assert [(one.stage, one.state) for one in statuses(store, "eval-4", lab.home)] == [("evaluate", "fresh")]
        with pytest.raises(InvalidConfig):
            runs.load_pipeline_config(store, "eval-1")


def test_a_stopped_evaluation_goes_on_where_it_was(
    lab: Lab, tmp_path: Path, problems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.evaluate.outside_samples.PROBLEMS_PER_BATCH", 1)
    tree = settings(problems, **of_file(samples_file(tmp_path)))
    with judge_broken_at(call=3):  # after the problems' own solutions and the first problem's samples
        evaluated(lab, "a", tree)
    assert lab.value("SELECT count(*) FROM eval_samples") == 2
    _, result = evaluated(lab, "b", tree)
    assert result.rows == 2
    assert lab.value("SELECT count(*) FROM eval_samples") == 4


def test_samples_that_were_judged_with_fewer_problems_are_neither_kept_nor_counted_twice(
    lab: Lab, tmp_path: Path, problems: Path
) -> None:
    tree = settings(problems, **of_file(samples_file(tmp_path)))
    few = settings(problems, **of_file(samples_file(tmp_path)))
    few["evaluate"]["transfer"] = [few["evaluate"]["transfer"][0] | {"most": 1}]
    assert evaluated(lab, "a", few)[1].rows == 2
    _, result = evaluated(lab, "b", tree)
    assert result.rows == 2
    assert (result.manifest.described[:21], result.manifest.reused) == (
        "2 problems, 4 samples",
        "2 samples of earlier evaluations",
    )
    assert lab.value("SELECT count(*) FROM eval_samples") == 4


def test_evaluations_are_compared_pairwise_and_shown_side_by_side(lab: Lab, tmp_path: Path, problems: Path) -> None:
    evaluated(lab, "a", settings(problems, **of_file(samples_file(tmp_path, "a.jsonl", right=0))))
    evaluated(lab, "b", settings(problems, **of_file(samples_file(tmp_path, "b.jsonl", right=2))))
    with lab.store() as store:
        found = compare(store, lab.home, "eval-1", "eval-2")
        histories = [run_history.read(store, lab.home, name) for name in ("eval-1", "eval-2")]
    (first, _) = found.rows
    assert (first.first, first.second) == (0.5, 1.0)
    assert (first.difference.better, first.difference.worse, first.difference.equal) == (1, 0, 1)
    page = run_report.assemble(histories, "two files", "here")
    assert page.title == "Runs eval-1, eval-2"
    assert "side_by_side" in [chart.name for section in page.sections for chart in section.charts]


def test_problems_that_were_trained_on_here_are_named_and_left_out_once_more(lab: Lab, tmp_path: Path) -> None:
    from dataclasses import replace

    from tasks.problems.problem import rows

    words = "Given a list of numbers return the sum of all that are larger than the mean of the list "
    statement = words * 3 + "and print nothing else at all whatever the caller says or does about it today."
    prompt = f'def double(x):\n    """{statement}"""\n'
    path = write(tmp_path / "long.jsonl", [DOUBLE | {"prompt": prompt}, SQUARE])
    (trained, _) = read_file(path, "humaneval")
    with lab.store() as store:
        known = replace(trained, problem_id="mine/1", statement=statement, split="train")
        store.append("problems/mine", rows([known]), run_id="old")
        other = replace(known, statement="Another problem of that name: print the sum of two numbers that are given.")
        store.append("problems/theirs", rows([replace(other, entry_point=None)]), run_id="newer")
    _, result = evaluated(lab, "a", settings(path, **of_file(samples_file(tmp_path, right=0))))
    assert {(one.train_id, one.evaluation_id) for one in result.manifest.overlaps} == {("mine/1", "Human/0")}
    assert [point.value for point in result.manifest.clean] == [1.0, 1.0]
    assert result.manifest.curve[0].value == 0.5


def test_a_chat_template_that_was_edited_in_place_asks_anew(lab: Lab, problems: Path, tmp_path: Path) -> None:
    model = small_model(tmp_path / "model")
    tree = settings(problems, subject={"kind": "checkpoint"}, reference={"model": str(model)})
    assert evaluated(lab, "a", tree)[1].rows == 4
    (model / "chat_template.jinja").write_text("USER {{ messages[0].content }} ANSWER", encoding="utf-8")
    assert evaluated(lab, "b", tree)[1].rows == 4
    turns = small_model(tmp_path / "turns")
    with_turns(turns)
    with pytest.raises(StageError):  # it would not stop where its chat template ends an answer
        evaluated(lab, "c", tree | {"reference": {"model": str(turns)}})
    assert lab.value("SELECT count(*) FROM eval_samples") == 8


def test_a_problem_whose_own_solution_fails_its_tests_is_left_out_and_named(lab: Lab, tmp_path: Path) -> None:
    broken = SQUARE | {"test": "def check(candidate):\n    assert candidate(3) == 10\n"}
    tree = settings(write(tmp_path / "broken.jsonl", [DOUBLE, broken]), **of_file(samples_file(tmp_path)))
    _, result = evaluated(lab, "a", tree)
    assert result.manifest.described.startswith("1 problems, 2 samples")
    assert list(result.manifest.transfer_unfit) == ["Human/1"]
    only = settings(write(tmp_path / "only.jsonl", [broken]), **of_file(samples_file(tmp_path)))
    with pytest.raises(
        InvalidProblem,
    ):
        evaluated(lab, "b", only)


def kinds(lab: Lab, policy_id: str) -> list[str]:
    with lab.store() as store:
        rows = store.rows("SELECT kind FROM policies WHERE policy_id = ? ORDER BY arrival", [policy_id])
    return [row["kind"] for row in rows]


def test_a_checkpoint_that_is_only_evaluated_is_nobodys_reference_until_a_run_begins_with_it(
    with_models: Lab, problems: Path
) -> None:
    (reference,) = {
        str(found) for found in (with_models.home / "models").iterdir() if (found / "config.json").is_file()
    }
    tree = settings(problems, subject={"kind": "checkpoint"}, reference={"model": reference})
    _, result = evaluated(with_models, "a", tree)
    assert with_models.value("SELECT count(*) FROM eval_samples WHERE len(token_ids) > 0") == result.rows == 4
    tree["evaluate"] |= {"samples": 3}
    _, more = evaluated(with_models, "b", tree)
    assert (more.rows, more.manifest.policy_id) == (2, result.manifest.policy_id)
    assert kinds(with_models, result.manifest.policy_id) == ["evaluated"]
    with_models.run(with_models.start("first"), "prepare")
    assert kinds(with_models, result.manifest.policy_id) == ["evaluated", "reference"]


def test_evaluating_a_policy_that_a_run_here_trained_says_nothing_new_of_what_it_is(
    copied: Callable[[], Lab], problems: Path
) -> None:
    lab = copied()
    with lab.store() as store:
        (last,) = store.rows("SELECT policy_id, parent_policy_id, path, step FROM policies WHERE kind = 'final'")
    before = kinds(lab, last["policy_id"])
    tree = settings(problems, subject={"kind": "checkpoint"}, reference={"model": last["path"]})
    _, result = evaluated(lab, "a", tree)
    assert (result.rows, result.manifest.policy_id) == (4, last["policy_id"])
    assert kinds(lab, last["policy_id"]) == before
    steps = f"SELECT list(DISTINCT step) FROM eval_samples WHERE policy_id = '{last['policy_id']}'"
    assert lab.value(steps) == [last["step"]]
    asked = {"problem": "Human/0", "prompt": None, "policy": last["policy_id"], "id": None, "source": "evaluation"}
    older = {"policies": [{"policy_id": last["policy_id"], "kind": "reference", "step": 0}]}
    with lab.store() as store:
        store.append("as older versions did", older, run_id="eval-0")
        (row,) = store.rows(query("tasks.explorer.trajectory", "context"), asked)
    assert row["reference"] == last["parent_policy_id"]


def test_a_model_behind_a_server_is_asked_for_what_is_missing_only(lab: Lab, problems: Path) -> None:
    pytest.importorskip("openai")
    with server(["def double(x):\n    return 2 * x", "def square(x):\n    return x"]) as (address, asked):
        endpoint = {"name": "m", "model": "m", "endpoint": address, "max_tokens": 50, "requests": 1}
        tree = settings(problems, subject={"kind": "endpoint", "endpoint": endpoint})
        _, result = evaluated(lab, "a", tree)
        assert [point.value for point in result.manifest.curve] == [0.5, 0.5]
        assert len(asked) == 4
        tree["evaluate"] |= {"samples": 3}
        evaluated(lab, "b", tree)
        assert len(asked) == 6
    assert len({body["seed"] for body in asked}) == 6


def test_samples_of_other_problems_are_counted_and_too_few_are_named(lab: Lab, tmp_path: Path, problems: Path) -> None:
    rows = [
        {"task_id": "Other/7", "solution": "pass"},
        *map(json.loads, samples_file(tmp_path).read_text().splitlines()),
    ]
    _, result = evaluated(lab, "a", settings(problems, **of_file(write(tmp_path / "more.jsonl", rows))))
    assert result.manifest.left_out == {"of no problem of the set": 1}
    few = write(tmp_path / "few.jsonl", rows[:2])
    with pytest.raises(TooFewSamples):
        evaluated(lab, "b", settings(problems, **of_file(few)))


def test_only_evaluations_have_a_subject(problems: Path) -> None:
    with pytest.raises(InvalidConfig):
        config.validate(settings(problems) | {"recipe": "tiny", "subject": {"kind": "checkpoint"}})
    with pytest.raises(InvalidConfig):
        config.validate(settings(problems) | {"subject": {"kind": "samples"}})
