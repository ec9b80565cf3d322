"""The stage `q0` as a whole: whose samples it counts, and that it stops a run whose prompts are all unusable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.q0 import stage
from tasks.q0.stage import NoUsablePrompt
from tasks.run.errors import OtherWeights
from tasks.run.prompt_set import PromptSet
from tasks.sampling.assignment import Assignment
from tests.tasks.conftest import Lab, storing_broken_at
from tests.tasks.small_model import small_model, small_run
from warehouse.schema import TABLES

PPO = {
    "train.algorithm": "ppo",
    "train.sources.online.share": 1.0,
    "train.sources.offline.share": 0.0,
    "train.behaviour.temperature": [1.0, 1.0],
    "train.behaviour.top_p": 1.0,
}
UNTRAINED = {"reference.pretrain.steps": 1, "q0.samples": 3}


def test_a_run_of_which_no_prompt_is_solved_stops_after_q0_and_keeps_the_samples(tmp_path: Path) -> None:
    lab, dropping = Lab(tmp_path), UNTRAINED | {"q0.zero_successes": "drop"}
    drawn = "SELECT sum(n) FROM reference_counts"
    lab.run(lab.start("ppo", dropping | PPO), "prepare", "q0")  # it may train on failures
    run_id = lab.start("spo", dropping)
    lab.run(run_id, "prepare")
    for _ in range(2):
        with pytest.raises(NoUsablePrompt):
            lab.run(run_id, "q0")
    assert lab.value(drawn) == 6 * 3
    partial = lab.start("partial", dropping | {"train.reward": "fractional", "pivotal.trajectories": 0})
    lab.run(partial, "prepare", "q0")
    assert lab.value(f"SELECT count(*) FROM run_events WHERE kind = 'without_success' AND run_id = '{partial}'") == 1
    kept = [lab.run(lab.start(name, UNTRAINED | own), "prepare", "q0")["q0"] for name, own in (("a", PPO), ("b", {}))]
    assert [result.skipped for result in kept] == [False, True], "where no prompt is dropped both have one key"
    assert kept[0].rows == 0


EDITED = {"statement": "A statement in quite other words: read one integer n from standard input and print n + 4."}


def counted(lab: Lab, model: Path, **edited: Any) -> int:
    """Samples that Q0 of a new run over six problems draws, the fourth problem being edited so."""
    return lab.run(small_run(lab, model, edited=edited), "prepare", "q0")["q0"].rows


def test_a_problem_in_other_words_or_with_other_tests_gets_samples_of_its_own(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    more = {"input_tests": ["5\n", "70\n", "-9\n"], "output_tests": ["9\n", "74\n", "-5\n"]}
    edits = ({}, EDITED, EDITED | {"title": "another"}, more, more | {"title": "another"})
    assert [counted(lab, model, **edited) for edited in edits] == [6 * 4, 4, 0, 4, 0]
    known = "FROM reference_counts WHERE problem_id = 'teapot-4'"
    assert lab.value(f"SELECT (count(DISTINCT prompt_id), count(DISTINCT suite_hash)) {known}") == (2, 2)
    assert lab.value("SELECT count(*) FROM reference_counts WHERE prompt_id IS NULL OR n <> 4") == 0


def test_weights_that_were_replaced_are_noticed_and_get_samples_of_their_own(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    first = lab.run(small_run(lab, model), "prepare", "q0")
    late = small_run(lab, model, **{"q0.samples": 6})
    assert lab.run(late, "prepare")["prepare"].skipped
    small_model(model, seed=1)
    with pytest.raises(OtherWeights):
        lab.run(late, "q0")
    assert lab.value("SELECT count(*) FROM trajectories") == 6 * 4, "nothing is sampled from what was not prepared"
    again = lab.run(small_run(lab, model), "prepare", "q0")
    assert not again["prepare"].skipped
    assert again["prepare"].manifest.policy_id != first["prepare"].manifest.policy_id
    assert again["q0"].rows == 6 * 4


def test_samples_that_runs_side_by_side_both_draw_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    assert counted(lab, model) == 6 * 4
    beside = small_run(lab, model, **{"q0.samples": 6})
    lab.run(beside, "prepare")
    with monkeypatch.context() as patch:  # it looked where to start before the first run had stored anything
        patch.setattr(stage, "_drawn", lambda _, prompts: dict.fromkeys(prompts.prompts, 0))
        lab.run(beside, "q0")
    assert lab.value(f"SELECT count(*) FROM trajectories WHERE run_id = '{beside}'") == 6 * 2
    assert lab.value("SELECT sum(n) FROM reference_counts") == 6 * 4
    assert lab.run(small_run(lab, model, **{"q0.samples": 7}), "prepare", "q0")["q0"].manifest.rows == 6 * 3
    assert lab.value("SELECT sum(n) FROM reference_counts") == 6 * 7


def test_new_samples_start_after_those_that_the_run_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    counted(lab, model)
    with lab.store() as store:
        (row,) = store.rows("SELECT * FROM reference_counts WHERE problem_id = 'teapot-4'")
        of_a_worker = {column.name: row[column.name] for column in TABLES["reference_counts"].columns} | {
            "n": 3,
            "k": 0,
        }
        store.append("rollout/another/0/0", {"reference_counts": [of_a_worker]}, run_id="another")
    assign, starts = PromptSet.assignment, {}

    def noted(self: PromptSet, problem_id: str, n: int, *seed: object) -> Assignment:
        starts[problem_id] = (seed[-1], n)
        return assign(self, problem_id, n, *seed)

    monkeypatch.setattr(PromptSet, "assignment", noted)
    lab.run(small_run(lab, model, **{"q0.samples": 6, "q0.count_rollouts": False}), "prepare", "q0")
    assert starts.pop("teapot-4") == (7, 2)
    assert set(starts.values()) == {(4, 2)}


def test_adaptive_q0_broken_in_the_middle_repeats_no_sample_and_keeps_the_total(prepared: Lab) -> None:
    lab, total = prepared, 6 * 8
    run_id = lab.start("adaptive", {"q0": {"adaptive": True, "narrow_nats": 1e-6, "samples": 8}})
    lab.run(run_id, "prepare")
    with storing_broken_at(lab, "q0/", 4):
        lab.run(run_id, "q0")
    known = lab.value("SELECT sum(n) FROM reference_counts")
    assert 0 < known < total
    assert lab.run(run_id, "q0")["q0"].rows == total - known
    assert lab.value("SELECT sum(n) FROM reference_counts") == total
    assert lab.value("SELECT count(DISTINCT (prompt_id, seed)) FROM trajectories") == total
    per_prompt = "SELECT sum(n) AS n FROM reference_counts GROUP BY problem_id"
    assert lab.value(f"SELECT min(n) FROM ({per_prompt})") >= 8 / 4


def test_prompts_without_a_success_are_topped_up_and_flagged(prepared: Lab) -> None:
    run_id = prepared.start("topped up", {"q0.samples": 2, "q0.zero_top_up": 4})
    manifest = prepared.run(run_id, "prepare", "q0")["q0"].manifest
    per_prompt = "(SELECT problem_id, sum(n) AS n, sum(k) AS k FROM reference_counts GROUP BY problem_id)"
    assert prepared.value(f"SELECT count(*) FROM {per_prompt} WHERE k = 0 AND n <> 4") == 0
    assert prepared.value(f"SELECT count(*) FROM {per_prompt} WHERE k = 0") == len(manifest.without_success) > 0
    flag = prepared.value("SELECT message FROM run_events WHERE kind = 'without_success'")
    assert manifest.without_success[0] in flag
