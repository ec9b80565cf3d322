"""The stages, run as plain functions on a micro recipe: what they leave, and that nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.run import provenance
from tasks.run.errors import StageInputMissing
from tests.shared_folder import copy_home
from tests.tasks.conftest import Lab, storing_broken_at

PROBLEMS, SAMPLES, EVALUATED, EVALUATION_SAMPLES = 6, 24, 4, 10
COUNTS = "(SELECT problem_id, sum(n) AS n, sum(k) AS k FROM reference_counts GROUP BY ALL)"
USED = "(SELECT unnest(trajectory_ids) AS id, unnest(sources) AS source FROM train_batches WHERE run_id = 'micro-1')"
PER_POLICY = "(SELECT policy_id, count(*) AS n FROM eval_samples GROUP BY policy_id)"
ROLLOUTS = "FROM trajectories WHERE source = 'pivotal_rollout'"


@pytest.mark.parametrize(
    ("what", "value"),
    [
        (f"(count(*), min(n)) FROM {COUNTS}", (PROBLEMS, SAMPLES)),
        (f"(count(*), count(DISTINCT id)) FROM {USED} WHERE source = 'online'", (4 * 8, 4 * 8)),
        (f"(count(*), min(n)) FROM {PER_POLICY}", (3, EVALUATED * EVALUATION_SAMPLES)),
        (f"(SELECT count(*) FROM corpus) > {PROBLEMS}", True),
        ("sum(n) > 0 FROM token_values WHERE search_id LIKE 'wave/%'", True),
    ],
)
def test_a_finished_run_holds(what: str, value: Any, finished: Lab) -> None:
    assert finished.value(f"SELECT {what}") == value


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(
            f"FROM {COUNTS} c FULL JOIN (SELECT problem_id, count(reward) AS n, count(*) FILTER (reward = 0) AS k "
            "FROM trajectories WHERE batch_id LIKE 'q0/%' GROUP BY ALL) t USING (problem_id) "
            "WHERE c.n IS DISTINCT FROM t.n OR c.k IS DISTINCT FROM t.k",
            id="counts that are not those of the stored samples",
        ),
        pytest.param(
            "FROM corpus JOIN trajectories t USING (trajectory_id) JOIN problems p ON p.problem_id = t.problem_id "
            "WHERE t.reward <> 0 OR p.split <> 'train'",
            id="members of the corpus that are wrong or of a problem that is not trained on",
        ),
        pytest.param(
            "FROM (SELECT 1 FROM corpus JOIN trajectories t USING (trajectory_id) GROUP BY t.problem_id, t.normal_hash "
            "HAVING count(*) > 1)",
            id="programs that the corpus has twice",
        ),
        pytest.param(
            "FROM (SELECT sum(n) AS n, sum(k) AS k FROM token_values WHERE search_id LIKE 'wave/%') v, "
            f"(SELECT count(reward) AS n, count(*) FILTER (reward = 0) AS k {ROLLOUTS}) r "
            "WHERE v.n <> r.n OR v.k <> r.k",
            id="pivotal counts that are not those of their rollouts",
        ),
        pytest.param(
            "FROM trajectories r JOIN trajectories p ON p.trajectory_id = r.parent_trajectory_id "
            "WHERE r.source = 'pivotal_rollout' AND (r.token_ids[:r.prefix_tokens] <> p.token_ids[:r.prefix_tokens] "
            "OR r.policy_start <> (SELECT policy_id FROM policies WHERE kind = 'reference') "
            "OR r.prompt_id <> p.prompt_id)",
            id="rollouts that do not start with their prefix",
        ),
        pytest.param(
            f"FROM {USED} u LEFT JOIN trajectories t ON t.trajectory_id = u.id WHERE t.reward IS NULL",
            id="trajectories without a reward that were trained on",
        ),
        pytest.param(
            f"FROM {USED} u LEFT JOIN reference_logprobs l ON l.trajectory_id = u.id "
            "WHERE source = 'offline' AND (l.batch_id IS NULL OR NOT starts_with(l.batch_id, 'scores/'))",
            id="offline log-probabilities that the corpus stage did not compute",
        ),
        pytest.param(
            "FROM (SELECT 1 FROM reference_logprobs GROUP BY trajectory_id, fingerprint HAVING count(*) > 1)",
            id="log-probabilities that were computed twice",
        ),
        pytest.param(
            "FROM eval_samples WHERE problem_id IN (SELECT problem_id FROM corpus)",
            id="evaluated problems that are trained on",
        ),
        pytest.param(
            "FROM tests t JOIN prompts p USING (problem_id) JOIN problems q USING (problem_id) WHERE t.hidden "
            "AND length(t.expected) > 8 AND contains(p.text, t.expected) AND NOT contains(q.statement, t.expected)",
            id="expected outputs in a prompt that the statement does not show",
        ),
    ],
)
def test_a_finished_run_has_no(wrong: str, finished: Lab) -> None:
    assert finished.value(f"SELECT count(*) {wrong}") == 0


def test_what_a_run_leaves_are_an_ordinary_checkpoint_and_one_page_with_its_pictures(finished: Lab) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = Path(finished.value("SELECT path FROM policies WHERE kind = 'final'"))
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.chat_template
    assert AutoModelForCausalLM.from_pretrained(path).config.vocab_size >= len(tokenizer)
    folder = finished.home / "runs" / "micro-1" / "report"
    assert "<svg" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


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


def test_q0_broken_in_the_middle_repeats_nothing_and_loses_nothing(with_models: Lab) -> None:
    lab = with_models
    run_id = lab.start("broken")
    with pytest.raises(StageInputMissing):
        lab.run(run_id, "q0")
    lab.run(run_id, "prepare")
    with storing_broken_at(lab, "q0/", 2):
        lab.run(run_id, "q0")
    assert lab.value("SELECT sum(n) FROM reference_counts") == 2 * SAMPLES
    names = "SELECT list(trajectory_id ORDER BY trajectory_id) FROM trajectories"
    first = lab.value(names)
    assert lab.value("SELECT count(*) FROM run_events WHERE kind = 'failed' AND stage = 'q0'") == 2
    assert lab.run(run_id, "q0")["q0"].rows == (PROBLEMS - 2) * SAMPLES
    assert lab.value("SELECT sum(n) FROM reference_counts") == PROBLEMS * SAMPLES
    assert lab.value("SELECT count(DISTINCT trajectory_id) FROM trajectories") == PROBLEMS * SAMPLES
    assert lab.value(f"{names} WHERE snapshot_id = (SELECT min(snapshot_id) FROM trajectories)") == first


def test_pinned_inputs_leave_newer_trajectories_out(copied: Callable[[], Lab]) -> None:
    lab = copied()
    pin = lab.value("SELECT snapshot_out FROM stages WHERE stage = 'corpus' AND run_id = 'micro-1'")
    run_id = lab.start("pinned")
    with lab.store() as store:
        provenance.pin(store, run_id, pin)
        assert provenance.pinned(store, run_id) == pin
    results = lab.run(run_id, "prepare", "q0", "corpus", "pivotal", "train", pin=pin)
    assert all(result.skipped for result in results.values())
    anew = lab.start("anew", {"corpus": {"per_problem": 500, "correct_only": False}})
    assert not lab.run(anew, "prepare", "q0", "corpus", pin=pin)["corpus"].skipped
    members = f"FROM corpus JOIN trajectories AS t USING (trajectory_id) WHERE corpus.run_id = '{anew}'"
    assert lab.value(f"SELECT (count(*) > 0, count(*) FILTER (t.source = 'online')) {members}") == (True, 0)


@pytest.mark.slow
def test_a_stage_samples_the_same_bits_with_one_engine_process_and_with_three(finished: Lab, tmp_path: Path) -> None:
    found: list[list[Any]] = []
    for processes in (1, 3):
        home = tmp_path / str(processes)
        copy_home(finished.home / "models", home / "models")
        lab = Lab(home)
        lab.run(lab.start("spread", {"engine.processes": processes, "engine.max_batch": 12}), "prepare", "q0")
        with lab.store() as store:
            names = "trajectory_id, batch_id, token_ids, sampled_logprobs, verdict"
            found.append(store.rows(f"SELECT {names} FROM trajectories ORDER BY trajectory_id"))
    assert len(found[0]) == PROBLEMS * SAMPLES
    assert found[0] == found[1]
