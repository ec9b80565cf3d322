"""The stage `q0` as a whole: whose samples it counts, and that it stops a run whose prompts are all unusable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.q0 import stage
from tasks.q0.stage import NoUsablePrompt
from tasks.run import prompt_set, runs
from tasks.run.errors import OtherWeights
from tasks.run.prompt_set import PromptSet
from tasks.run.stage import Context
from tasks.sampling.assignment import Assignment
from tests.tasks.conftest import Lab
from tests.tasks.small_model import small_model, small_run
from warehouse import maintenance
from warehouse.schema import TABLES
from warehouse.superseding import content


def test_a_run_of_which_no_prompt_is_solved_stops_after_q0_and_keeps_the_samples(copied: Callable[[], Lab]) -> None:
    lab = copied()
    untrained = {"reference.pretrain.steps": 1, "q0.samples": 3, "q0.zero_successes": "drop"}
    run_id = lab.start("hopeless", untrained)
    lab.run(run_id, "prepare")
    with pytest.raises(NoUsablePrompt, match="none of the 6 training prompts"):
        lab.run(run_id, "q0")
    assert lab.value(f"SELECT sum(n) FROM reference_counts WHERE run_id = '{run_id}'") == 6 * 3
    with pytest.raises(NoUsablePrompt):
        lab.run(run_id, "q0")
    assert lab.value(f"SELECT sum(n) FROM reference_counts WHERE run_id = '{run_id}'") == 6 * 3


def test_a_run_with_fractional_rewards_goes_on_where_no_sample_passes_every_test(copied: Callable[[], Lab]) -> None:
    lab = copied()
    untrained = {"reference.pretrain.steps": 1, "q0.samples": 3, "q0.zero_successes": "drop"}
    run_id = lab.start("partial", untrained | {"train.reward": "fractional", "pivotal.trajectories": 0})
    lab.run(run_id, "prepare", "q0")
    flag = lab.value(f"SELECT message FROM run_events WHERE kind = 'without_success' AND run_id = '{run_id}'")
    assert flag.startswith("6 prompts without a success are trained on by the tests that they pass")


EDITED = {"statement": "A statement in quite other words: read one integer n from standard input and print n + 4."}


def counted(lab: Lab, model: Path, **edited: Any) -> str:
    """What Q0 of a new run over six problems says of its samples, the fourth problem being edited so."""
    results = lab.run(small_run(lab, model, edited=edited), "prepare", "q0")
    return str(results["q0"].manifest.summary).partition(";")[0]


def test_a_statement_in_other_words_gets_samples_of_its_own_though_its_tests_are_the_same(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    assert counted(lab, model) == "24 new samples, 0 known"
    assert counted(lab, model, **EDITED) == "4 new samples, 20 known"
    assert counted(lab, model, **EDITED, title="another") == "0 new samples, 24 known"
    assert lab.value("SELECT count(DISTINCT prompt_id) FROM reference_counts WHERE problem_id = 'teapot-4'") == 2
    assert lab.value("SELECT count(*) FROM reference_counts WHERE prompt_id IS NULL OR n <> 4") == 0


def test_a_problem_with_other_tests_gets_samples_of_its_own_that_count(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    counted(lab, model)
    more = {"input_tests": ["5\n", "70\n", "-9\n"], "output_tests": ["9\n", "74\n", "-5\n"]}
    assert counted(lab, model, **more) == "4 new samples, 20 known"
    assert lab.value("SELECT count(DISTINCT suite_hash) FROM reference_counts WHERE problem_id = 'teapot-4'") == 2
    assert counted(lab, model, **more, title="another") == "0 new samples, 24 known"


def test_samples_in_quarantine_are_drawn_again_by_the_next_run(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    lab.run(small_run(lab, model, **{"q0.problems_per_shard": 2}), "prepare", "q0")
    put_aside(lab, "SELECT min(batch_id) FROM reference_counts")
    found = lab.run(small_run(lab, model, **{"q0.problems_per_shard": 2}), "prepare", "q0")["q0"]
    assert str(found.manifest.summary).startswith("8 new samples, 16 known")
    again = lab.run(small_run(lab, model, **{"q0.problems_per_shard": 2, "train.steps": 3}), "prepare", "q0")["q0"]
    assert again.skipped
    assert lab.value("SELECT sum(n) FROM reference_counts") == 24


@pytest.mark.parametrize("which", ["min", "max"])
def test_samples_of_one_batch_among_several_are_drawn_again(which: str, tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    for samples in (4, 8):
        lab.run(small_run(lab, model, **{"q0.samples": samples}), "prepare", "q0")
    put_aside(lab, f"SELECT arg_{which}(batch_id, arrival) FROM reference_counts")
    found = lab.run(small_run(lab, model, **{"q0.samples": 8, "train.steps": 3}), "prepare", "q0")["q0"]
    assert str(found.manifest.summary).startswith("8 new samples, 40 known")
    each = "SELECT sum(n) AS n FROM reference_counts GROUP BY problem_id"
    assert lab.value(f"SELECT list(DISTINCT n) FROM ({each})") == [8]
    assert lab.value("SELECT count(DISTINCT trajectory_id) FROM stored.trajectories") == 48 + 8
    again = lab.run(small_run(lab, model, **{"q0.samples": 8, "train.steps": 4}), "prepare", "q0")["q0"]
    assert again.skipped


def test_samples_without_a_verdict_and_of_other_stages_are_passed_over_when_they_are_put_aside(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    run_id = small_run(lab, model)
    lab.run(run_id, "prepare", "q0")
    with lab.store() as store:
        context = Context(run_id, runs.load_config(store, run_id), store, lab.home)
        prompts = prompt_set.load(context, "train")
        columns = "problem_id, reference, sampling, template_id, suite_hash, prompt_id"
        counts = store.rows(f"SELECT {columns}, 3 AS n, 0 AS k FROM reference_counts WHERE problem_id = 'teapot-4'")
        store.append("rollout/other/0/00000000", {"reference_counts": counts}, run_id="other")
        lost = [content(row) for row in store.rows("SELECT * FROM trajectories WHERE problem_id = 'teapot-4'")][:1]
        batch = store.value("SELECT any_value(batch_id) FROM reference_counts WHERE batch_id LIKE 'q0/%'")
        store.append(f"{batch}-lost", {"trajectories": [row | {"reward": None} for row in lost]}, run_id="other")
        before = stage._drawn(context, prompts)
        assert before == dict.fromkeys(prompts.prompts, 4) | {"teapot-4": 4 + 3 + 1}
    for one in ("rollout/other/0/00000000", f"{batch}-lost", batch):
        put_aside(lab, f"SELECT '{one}'")
        with lab.store() as store:
            assert stage._drawn(replace(context, warehouse=store), prompts) == before


def put_aside(lab: Lab, which: str) -> None:
    """Put the batch that a query gives into quarantine."""
    with lab.store() as store:
        bad = {"bad_batch_id": store.value(which), "reason": "by hand"}
        store.append(f"bad/{bad['bad_batch_id']}", {"quarantine": [bad]}, run_id="by hand")


def test_counts_of_before_prompts_were_recorded_still_count(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    counted(lab, model)

    def forget(connection: Any, schema: str) -> int:
        connection.execute(f"UPDATE {schema}.reference_counts SET prompt_id = NULL")
        return 0

    maintenance.rewrite(lab.location, forget)
    assert counted(lab, model, **EDITED) == "0 new samples, 24 known"
    put_aside(lab, "SELECT min(batch_id) FROM reference_counts")
    assert counted(lab, model, **EDITED) == "8 new samples, 16 known"


def test_weights_that_were_replaced_are_noticed_and_get_samples_of_their_own(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    first = lab.run(small_run(lab, model), "prepare", "q0")
    assert lab.run(small_run(lab, model), "prepare")["prepare"].skipped
    small_model(model, seed=1)
    run_id = small_run(lab, model)
    again = lab.run(run_id, "prepare", "q0")
    assert not again["prepare"].skipped
    assert again["prepare"].manifest.policy_id != first["prepare"].manifest.policy_id
    assert str(again["q0"].manifest.summary).startswith("24 new samples, 0 known")


def test_weights_that_are_replaced_after_prepare_are_refused_before_anything_is_sampled(tmp_path: Path) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    run_id = small_run(lab, model)
    lab.run(run_id, "prepare")
    small_model(model, seed=1)
    with pytest.raises(OtherWeights, match=f"{model} holds policy .* run '{run_id}' was prepared with policy"):
        lab.run(run_id, "q0")
    assert lab.value("SELECT count(*) FROM trajectories") == 0


PPO = {
    "train.algorithm": "ppo",
    "train.sources.online.share": 1.0,
    "train.sources.offline.share": 0.0,
    "train.behaviour.temperature": [1.0, 1.0],
    "train.behaviour.top_p": 1.0,
}


def test_a_run_of_ppo_does_not_let_one_of_spo_pass_that_has_nothing_to_train_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    untrained = {"reference.pretrain.steps": 1, "q0.samples": 3, "q0.zero_successes": "drop"}
    lab.run(lab.start("ppo", untrained | PPO), "prepare", "q0")
    run_id = lab.start("spo", untrained)
    lab.run(run_id, "prepare")
    with pytest.raises(NoUsablePrompt, match="none of the 6 training prompts"):
        lab.run(run_id, "q0")
    assert lab.value("SELECT sum(n) FROM reference_counts") == 6 * 3


def test_counts_of_ppo_and_spo_have_one_key_where_no_prompt_is_dropped(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    untrained = {"reference.pretrain.steps": 1, "q0.samples": 3}
    lab.run(lab.start("ppo", untrained | PPO), "prepare", "q0")
    assert lab.run(lab.start("spo", untrained), "prepare", "q0")["q0"].skipped


def test_samples_that_runs_side_by_side_both_draw_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, model = Lab(tmp_path), small_model(tmp_path / "model")
    assert counted(lab, model) == "24 new samples, 0 known"
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
