"""The stages, run as plain functions on a micro recipe: what they leave, and that nothing is done twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.run.errors import StageInputMissing
from tests.tasks.conftest import Lab, storing_broken_at

PROBLEMS, SAMPLES, EVALUATED, EVALUATION_SAMPLES = 6, 24, 4, 10


def test_every_training_prompt_has_its_counts(finished: Lab) -> None:
    assert finished.value("SELECT count(DISTINCT problem_id) FROM reference_counts") == PROBLEMS
    assert (
        finished.value("SELECT min(n) FROM (SELECT sum(n) AS n FROM reference_counts GROUP BY problem_id)") == SAMPLES
    )


def test_counts_agree_with_the_stored_samples(finished: Lab) -> None:
    different = finished.value(
        "SELECT count(*) FROM (SELECT problem_id, sum(n) AS n, sum(k) AS k FROM reference_counts GROUP BY ALL) c "
        "FULL JOIN (SELECT problem_id, count(reward) AS n, count(*) FILTER (reward = 0) AS k FROM trajectories "
        "WHERE batch_id LIKE 'q0/%' GROUP BY ALL) t USING (problem_id) "
        "WHERE c.n IS DISTINCT FROM t.n OR c.k IS DISTINCT FROM t.k"
    )
    assert different == 0


def test_the_corpus_holds_correct_distinct_programs_of_training_problems(finished: Lab) -> None:
    assert finished.value("SELECT count(*) FROM corpus") > PROBLEMS
    wrong = (
        "SELECT count(*) FROM corpus c JOIN trajectories t USING (trajectory_id) JOIN problems p "
        "ON p.problem_id = t.problem_id WHERE t.reward <> 0 OR p.split <> 'train'"
    )
    assert finished.value(wrong) == 0
    assert (
        finished.value(
            "SELECT max(copies) FROM (SELECT count(*) AS copies FROM corpus JOIN trajectories t USING (trajectory_id) "
            "GROUP BY t.problem_id, t.normal_hash)"
        )
        == 1
    )


def test_pivotal_counts_are_those_of_their_rollouts(finished: Lab) -> None:
    paid = finished.value("SELECT sum(n) FROM token_values WHERE search_id LIKE 'wave/%'")
    assert paid == finished.value("SELECT count(reward) FROM trajectories WHERE source = 'pivotal_rollout'") > 0
    correct = finished.value("SELECT sum(k) FROM token_values WHERE search_id LIKE 'wave/%'")
    assert correct == finished.value(
        "SELECT count(*) FROM trajectories WHERE source = 'pivotal_rollout' AND reward = 0"
    )


def test_training_used_every_online_trajectory_at_most_once(finished: Lab) -> None:
    used = (
        "(SELECT unnest(trajectory_ids) AS id, unnest(sources) AS source FROM train_batches WHERE run_id = 'micro-1')"
    )
    assert finished.value(f"SELECT count(*) FROM {used} WHERE source = 'online'") == 4 * 8
    assert finished.value(f"SELECT count(DISTINCT id) FROM {used} WHERE source = 'online'") == 4 * 8
    assert (
        finished.value(
            f"SELECT count(*) FROM {used} u LEFT JOIN trajectories t ON t.trajectory_id = u.id WHERE t.reward IS NULL"
        )
        == 0
    )


def test_every_policy_is_evaluated_on_problems_that_are_not_trained_on(finished: Lab) -> None:
    per_policy = "SELECT policy_id, count(*) AS n FROM eval_samples GROUP BY policy_id"
    assert finished.value(f"SELECT count(*) FROM ({per_policy})") == 3
    assert finished.value(f"SELECT min(n) FROM ({per_policy})") == EVALUATED * EVALUATION_SAMPLES
    assert finished.value("SELECT count(*) FROM eval_samples WHERE problem_id IN (SELECT problem_id FROM corpus)") == 0


def test_the_report_is_one_page_with_its_pictures(finished: Lab) -> None:
    folder = finished.home / "runs" / "micro-1" / "report"
    assert "<svg" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_no_expected_output_is_in_a_prompt_unless_the_statement_shows_it(finished: Lab) -> None:
    leaks = (
        "SELECT count(*) FROM tests t JOIN prompts p USING (problem_id) JOIN problems q USING (problem_id) "
        "WHERE t.hidden AND length(t.expected) > 8 AND contains(p.text, t.expected) "
        "AND NOT contains(q.statement, t.expected)"
    )
    assert finished.value(leaks) == 0


def test_the_same_run_again_skips_every_stage(copied: Callable[[], Lab]) -> None:
    lab = copied()
    before = lab.value("SELECT count(*) FROM trajectories")
    results = lab.run("micro-1")
    assert all(result.skipped for result in results.values())
    assert lab.value("SELECT count(*) FROM trajectories") == before


def test_a_second_run_samples_no_q0_judges_nothing_known_and_learns_from_the_first(copied: Callable[[], Lab]) -> None:
    lab = copied()
    verdicts = lab.value("SELECT count(*) FROM verdicts")
    everything = {"corpus.near_duplicates": 1, "corpus.correct_only": False, "corpus.per_problem": 1000}
    run_id = lab.start("second", everything)  # the miniature policy may have written nothing correct
    results = lab.run(run_id, "prepare", "q0", "corpus")
    assert results["q0"].skipped
    assert not results["corpus"].skipped
    assert not any(results["corpus"].manifest.added.values())
    assert lab.value("SELECT count(*) FROM verdicts") == verdicts
    different = "count(DISTINCT (t.problem_id, t.normal_hash, t.reward))"
    found = lab.value(
        f"SELECT {different} FROM corpus c JOIN trajectories t USING (trajectory_id) "
        f"WHERE c.run_id = '{run_id}' AND c.source = 'prior_spo' AND t.run_id = 'micro-1' AND t.source = 'online'"
    )
    written = lab.value(
        f"SELECT {different} FROM trajectories t WHERE source = 'online' AND reward IS NOT NULL "
        "AND (problem_id, normal_hash) NOT IN "
        "(SELECT (problem_id, normal_hash) FROM trajectories WHERE source = 'human')"
    )
    assert found == results["corpus"].manifest.per_source["prior_spo"] == written > 0


def test_a_higher_target_samples_only_the_difference(copied: Callable[[], Lab]) -> None:
    lab = copied()
    results = lab.run(lab.start("more", {"q0.samples": 30}), "prepare", "q0")
    assert results["q0"].rows == PROBLEMS * 6
    assert lab.value("SELECT min(n) FROM (SELECT sum(n) AS n FROM reference_counts GROUP BY problem_id)") == 30
    assert (
        lab.value("SELECT count(*) - count(DISTINCT trajectory_id) FROM trajectories WHERE batch_id LIKE 'q0/%'") == 0
    )


def test_q0_broken_in_the_middle_repeats_nothing_and_loses_nothing(with_models: Lab) -> None:
    lab = with_models
    run_id = lab.start("broken")
    lab.run(run_id, "prepare")
    with storing_broken_at("q0/", 2):
        lab.run(run_id, "q0")
    assert lab.value("SELECT sum(n) FROM reference_counts") == 2 * SAMPLES
    first = lab.value("SELECT string_agg(trajectory_id, ',' ORDER BY trajectory_id) FROM trajectories")
    assert lab.value("SELECT count(*) FROM run_events WHERE kind = 'failed' AND stage = 'q0'") == 1
    result = lab.run(run_id, "q0")["q0"]
    assert result.rows == (PROBLEMS - 2) * SAMPLES
    assert lab.value("SELECT sum(n) FROM reference_counts") == PROBLEMS * SAMPLES
    assert lab.value("SELECT count(DISTINCT trajectory_id) FROM trajectories") == PROBLEMS * SAMPLES
    kept = lab.value(
        "SELECT string_agg(trajectory_id, ',' ORDER BY trajectory_id) FROM trajectories "
        "WHERE snapshot_id = (SELECT min(snapshot_id) FROM trajectories)"
    )
    assert kept == first


def test_samples_put_into_quarantine_are_drawn_again(with_models: Lab) -> None:
    lab = with_models
    run_id = lab.start("spoilt")
    lab.run(run_id, "prepare", "q0")
    for _ in range(2):
        batch = lab.value("SELECT max(batch_id) FROM reference_counts")
        with lab.store() as store:
            store.append(
                f"quarantine/{batch}", {"quarantine": [{"bad_batch_id": batch, "reason": "a test"}]}, run_id=run_id
            )
        assert lab.value("SELECT sum(n) FROM reference_counts") == (PROBLEMS - 2) * SAMPLES
        assert lab.run(run_id, "q0", force=True)["q0"].rows == 2 * SAMPLES
        assert lab.value("SELECT sum(n) FROM reference_counts") == PROBLEMS * SAMPLES
    drawn = "SELECT count(DISTINCT trajectory_id) FROM {}"
    assert lab.value(drawn.format("trajectories")) == PROBLEMS * SAMPLES
    assert lab.value(drawn.format("stored.trajectories")) == (PROBLEMS + 2 * 2) * SAMPLES, "other samples each time"


def test_a_stage_whose_input_is_missing_says_what_to_run(with_models: Lab) -> None:
    run_id = with_models.start("hasty")
    with pytest.raises(StageInputMissing, match="spo/prepare"):
        with_models.run(run_id, "q0")


def test_pinned_inputs_leave_newer_trajectories_out(copied: Callable[[], Lab]) -> None:
    lab = copied()
    pin = lab.value("SELECT snapshot_out FROM stages WHERE stage = 'corpus' AND run_id = 'micro-1'")
    run_id = lab.start("pinned")
    results = lab.run(run_id, "prepare", "q0", "corpus", "pivotal", "train", pin=pin)
    assert results["corpus"].manifest.corpus_id == lab.value(
        "SELECT corpus_id FROM corpus WHERE run_id = 'micro-1' LIMIT 1"
    )
    assert results["train"].skipped


def test_a_corpus_made_anew_at_a_pin_has_nothing_that_was_found_later(copied: Callable[[], Lab]) -> None:
    lab = copied()
    found_later = (
        "SELECT count(*) FROM corpus JOIN trajectories AS t USING (trajectory_id) "
        "WHERE corpus.run_id = '{}' AND t.source = 'online'"
    )
    pin = lab.value("SELECT snapshot_out FROM stages WHERE stage = 'corpus' AND run_id = 'micro-1'")
    for name, at in (("newest", None), ("pinned", pin)):
        run_id = lab.start(name, {"corpus": {"per_problem": 500, "correct_only": False}})
        results = lab.run(run_id, "prepare", "q0", "corpus", pin=at)
        assert not results["corpus"].skipped
        assert (lab.value(found_later.format(run_id)) > 0) is (at is None)


def test_the_trained_policy_is_an_ordinary_checkpoint(finished: Lab) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = Path(finished.value("SELECT path FROM policies WHERE kind = 'final'"))
    model = AutoModelForCausalLM.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.chat_template
    assert model.config.vocab_size >= len(tokenizer)


def test_a_stage_samples_the_same_bits_with_one_engine_process_and_with_three(finished: Lab, tmp_path: Path) -> None:
    found: list[list[Any]] = []
    for processes in (1, 3):
        home = tmp_path / str(processes)
        shutil.copytree(finished.home / "models", home / "models")
        lab = Lab(home)
        lab.run(lab.start("spread", {"engine.processes": processes, "engine.max_batch": 12}), "prepare", "q0")
        with lab.store() as store:
            names = "trajectory_id, batch_id, token_ids, sampled_logprobs, verdict"
            found.append(store.rows(f"SELECT {names} FROM trajectories ORDER BY trajectory_id"))
    assert len(found[0]) == PROBLEMS * SAMPLES
    assert found[0] == found[1]
