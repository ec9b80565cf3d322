"""Which stages stand, and what a run would do: answered from the warehouse, without changing it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks import config
from tasks.checks import plan as planning
from tasks.config import OtherModelConfig
from tasks.corpus import other_models
from tasks.corpus.known_programs import ROUND
from tasks.run import runs
from tasks.run.manifests import TrainManifest
from tasks.run.stage import finished as manifest_of
from tasks.run.stage_names import STAGE_NAMES
from tasks.stages import STAGES
from tests.shared_folder import copy_home
from tests.tasks.conftest import MICRO, Lab

ADDED = "SELECT count(*) FROM trajectories"


def states(lab: Lab, run_id: str) -> dict[str, str]:
    with lab.store() as store:
        return {found.stage: found.state for found in planning.statuses(store, run_id, lab.home)}


def plan(lab: Lab, overrides: dict[str, Any] | None = None, *, run_id: str = "") -> dict[str, planning.PlannedStage]:
    with lab.store() as store:
        configuration = runs.load_config(store, run_id) if run_id else config.load(MICRO, overrides, folder=Path())
        return {work.stage: work for work in planning.plan(store, configuration, lab.home, run_id=run_id)}


def test_every_stage_of_a_finished_run_is_fresh(finished: Lab) -> None:
    assert states(finished, "micro-1") == dict.fromkeys(STAGE_NAMES, "fresh")


def test_a_training_whose_weights_are_gone_does_not_stand(finished: Lab, tmp_path: Path) -> None:
    with finished.store() as store:
        found = manifest_of(store, TrainManifest, run_id="micro-1")
    assert found is not None
    kept = tuple(
        one.model_copy(update={"path": copy_home(one.path, tmp_path / f"{one.step}")}) for one in found.policies
    )
    moved = found.model_copy(update={"policies": kept})
    assert STAGES["train"].usable(moved)
    shutil.rmtree(kept[-1].path)
    assert not STAGES["train"].usable(moved)


def test_a_failed_stage_says_why_and_later_ones_wait(with_models: Lab) -> None:
    run_id = with_models.start("failing")
    with with_models.store() as store:
        runs.note(store, run_id, stage="prepare", kind="failed", message="OSError: the disk went away")
        found = {status.stage: status for status in planning.statuses(store, run_id, with_models.home)}
    assert found["prepare"].state == "failed"
    assert found["prepare"].note == "OSError: the disk went away"
    assert {status.state for name, status in found.items() if name != "prepare"} == {"waiting"}


def test_an_unknown_run_is_refused_with_the_nearest_name(finished: Lab) -> None:
    with finished.store() as store, pytest.raises(runs.UnknownRun, match="did you mean 'micro-1'"):
        planning.statuses(store, "mirco-1", finished.home)


def test_the_plan_of_a_finished_run_has_nothing_to_do_and_changes_nothing(finished: Lab) -> None:
    before = finished.value(ADDED)
    work = plan(finished, run_id="micro-1")
    assert all(item.done and item.seconds == 0 for item in work.values())
    assert finished.value(ADDED) == before


def test_a_plan_counts_only_the_missing_samples_and_times_them_by_what_was_measured(finished: Lab) -> None:
    work = plan(finished, {"q0.samples": 34, "seed": 5})
    assert work["prepare"].done
    assert work["q0"].amount == planning.Amount(6 * 10, "samples", f"{6 * 24} known")
    cost = finished.value("SELECT seconds / \"rows\" FROM stages WHERE stage = 'q0'")
    assert work["q0"].seconds == pytest.approx(60 * cost)
    assert "each, as in 1 earlier" in work["q0"].basis
    assert work["report"].seconds == pytest.approx(finished.value("SELECT seconds FROM stages WHERE stage = 'report'"))


def test_what_another_policy_cost_is_no_prediction(finished: Lab) -> None:
    work = plan(finished, {"reference.model": "another"})
    assert work["q0"].seconds is None
    assert work["q0"].basis == "never measured here"


def test_a_plan_counts_steps_rollouts_and_evaluations(finished: Lab) -> None:
    work = plan(finished, {"train.steps": 5, "pivotal.trajectories": 5})
    assert work["q0"].done
    assert not work["pivotal"].done
    assert 0 < work["pivotal"].amount.units <= 5 * 8 * 6
    assert work["train"].amount == planning.Amount(5, "steps", f"{5 * 8} online trajectories")
    assert work["evaluate"].amount.units == 4 * 4 * 10 - 4 * 10
    assert work["evaluate"].amount.note == "4 policies, 40 samples of the reference known"


def test_a_plan_leaves_to_evaluation_what_is_not_evaluated_beside_training(finished: Lab) -> None:
    work = plan(finished, {"train.steps": 5, "evaluate.during_training": True})
    assert work["evaluate"].amount == planning.Amount(4 * 10, "samples", "the last policy; the others beside training")


def test_without_a_warehouse_a_plan_says_what_the_recipe_asks_for(tmp_path: Path) -> None:
    configuration = config.load(MICRO, None, folder=Path())
    work = {item.stage: item for item in planning.plan(None, configuration, tmp_path)}
    assert work["q0"].amount.units == 6 * 24
    assert work["evaluate"].amount.units == 3 * 4 * 10
    assert all(item.seconds is None and not item.done for item in work.values())
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_shown_although_its_problems_cannot_be_read(finished: Lab, tmp_path: Path) -> None:
    missing = {"source": "jsonl", "path": str(tmp_path / "nowhere.jsonl")}
    work = plan(finished, {"problems": missing, "evaluate.transfer": [missing]})
    assert work["q0"].amount.units == 6 * 24
    assert "at least" in work["evaluate"].amount.note


def test_a_stage_that_was_continued_is_timed_with_all_its_attempts(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    run_id = lab.start("continued", {"train.steps": 100})
    row = {"stage": "train", "stage_version": "1", "key": "k", "status": "completed", "rows": 800, "seconds": 1.0}
    with lab.store() as store:
        runs.note(store, run_id, stage="train", kind="started", message="first")
        time.sleep(2)
        runs.note(store, run_id, stage="train", kind="failed", message="after 95 of 100 steps")
        runs.note(store, run_id, stage="train", kind="started", message="second")
        row |= {"snapshot_in": store.snapshot(), "snapshot_out": store.snapshot(), "manifest_json": "{}"}
        store.append("stage/continued", {"stages": [row]}, run_id=run_id)
    work = plan(lab, {"train.steps": 50})["train"]
    assert work.amount.units == 50
    assert work.seconds is not None
    assert 3.0 / 2 <= work.seconds < 10.0 / 2


@pytest.mark.parametrize(("mosts", "number", "least"), [((5, 7), 12, False), ((5, None), 5, True), ((None,), 0, True)])
def test_a_plan_counts_the_problems_of_evaluation_sets(
    mosts: tuple[int | None, ...], number: int, least: bool, tmp_path: Path
) -> None:
    sets = [{"source": "jsonl", "path": "test.jsonl"} | ({} if most is None else {"most": most}) for most in mosts]
    problems = {"source": "jsonl", "path": "p.jsonl", "evaluation_sets": sets, "evaluation": None}
    configuration = config.load(MICRO, {"problems": problems, "reference.pretrain": None}, folder=Path())
    work = {item.stage: item.amount for item in planning.plan(None, configuration, tmp_path)}
    assert work["evaluate"] == planning.Amount(3 * number * 10, "samples", "3 policies" + ", at least" * least)
    assert work["prepare"].units == 6 + number
    assert work["prepare"].note == f"6 to train on, {'at least ' * least}{number} to evaluate"


def test_a_plan_says_how_many_samples_unsolved_prompts_may_get_besides(tmp_path: Path) -> None:
    configuration = config.load(MICRO, {"q0.zero_top_up": 60}, folder=Path())
    (q0,) = [item.amount for item in planning.plan(None, configuration, tmp_path) if item.stage == "q0"]
    assert q0 == planning.Amount(
        6 * 24, "samples", f"all of them, and up to {6 * 36} for prompts that none of theirs solves"
    )


def with_solutions(folder: Path, number: int) -> dict[str, Any]:
    """Settings of four problems that come with so many Python programs each, and one in another language."""
    rows = [
        {
            "problem_id": f"p{place}",
            "statement": f"Read a number. Print {place} more, {name}.",
            "input_tests": ["5\n"],
            "output_tests": [f"{5 + place}\n"],
            "solutions": [
                {"code": f"print(int(input()) + {place} + {one} - {one})", "language": "python3", "correct": True}
                for one in range(number)
            ]
            + [{"code": "int main(){}", "language": "cpp", "correct": True}],
        }
        for place, name in enumerate(("apple", "brook", "cloud", "delta"))
    ]
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {
        "problems": {"source": "jsonl", "path": str(path), "train": 4, "evaluation": 0},
        "corpus": {"sources": ["human"], "reference_samples": 0, "reference_logprobs": False},
    }


def test_a_plan_counts_the_known_programs_of_a_first_round_until_they_are_taken_in(
    with_models: Lab, tmp_path: Path
) -> None:
    lab, settings = with_models, with_solutions(tmp_path, ROUND + 3)
    before = plan(lab, settings)["corpus"]
    assert before.amount == planning.Amount(0, "responses", "and the known programs", open_ended=True)
    assert (before.seconds, before.basis) == (None, "not counted yet")
    run_id = lab.start("human", settings)
    lab.run(run_id, "prepare")
    planned = plan(lab, settings)["corpus"]
    assert planned.amount == planning.Amount(4 * ROUND, "responses", f"{4 * ROUND} known programs in a first round")
    assert (planned.seconds, planned.basis) == (None, "never measured here")
    lab.run(run_id, "corpus")
    settings["corpus"]["per_problem"] = 7
    again = plan(lab, settings)["corpus"]
    assert not again.done
    assert (again.amount.units, again.seconds) == (0, 0.0)


def test_a_plan_counts_the_answers_that_other_models_have_not_given_yet(
    copied: Callable[[], Lab], tmp_path: Path
) -> None:
    lab = copied()
    model = {"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big-1", "samples": 3}
    asked = {"corpus.sources": ["other_model"], "corpus.reference_samples": 0, "corpus.other_models": [model]}
    without = {item.stage: item for item in planning.plan(None, config.load(MICRO, asked, folder=Path()), tmp_path)}
    assert without["corpus"].amount == planning.Amount(6 * 3, "responses", f"{6 * 3} answers of other models")
    work = plan(lab, asked)["corpus"]
    assert work.amount.units == 6 * 3
    assert work.seconds is not None
    assert work.seconds > 0
    with lab.store() as store:
        row = store.rows("SELECT problem_id, prompt_id, suite_hash, token_ids FROM trajectories LIMIT 1")[0]
        seed = other_models.seed_of(OtherModelConfig(**model), row["problem_id"], 1)
        answer = row | {"trajectory_id": "answer", "source": "other_model", "engine": "other_model/big", "seed": seed}
        answer |= {"finish_reason": "stop"}
        store.append("import/other_model/big/1", {"trajectories": [answer]}, run_id="other")
    assert plan(lab, asked)["corpus"].amount.units == 6 * 3 - 1


def test_what_is_in_files_is_not_counted_and_has_no_time(finished: Lab, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("")
    only_files = {"corpus.sources": ["other_model"], "corpus.reference_samples": 0, "corpus.files": [str(path)]}
    work = plan(finished, only_files)["corpus"]
    assert (work.amount.units, work.amount.note) == (0, "and what is in files")
    assert (work.seconds, work.basis) == (None, "not counted yet")
