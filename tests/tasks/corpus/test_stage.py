"""The corpus stage on responses that no run sampled, and what Q0 and training get from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.corpus import other_models
from tasks.corpus.other_models import Answer, OtherModelError, Question
from tasks.q0 import stage as q0
from tests.tasks.conftest import Lab, storing_broken_at

ONLY_FILES = {"corpus.reference_samples": 0, "corpus.sources": ["other_model"], "corpus.reference_logprobs": False}
VERDICTS = "SELECT count(*) FROM verdicts"


def solutions(lab: Lab) -> dict[str, str]:
    """A correct program for each training problem."""
    with lab.store() as store:
        rows = store.rows(
            "SELECT problem_id, min(program) AS program FROM solutions JOIN problems USING (problem_id) "
            "WHERE split = 'train' AND claimed = 'accepted' GROUP BY problem_id"
        )
    return {row["problem_id"]: row["program"] for row in rows}


def prepared(lab: Lab, overrides: dict[str, Any]) -> str:
    lab.run(run_id := lab.start(json.dumps(overrides), overrides), "prepare")
    return run_id


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_users_file_is_judged_deduplicated_and_filtered(with_models: Lab, tmp_path: Path) -> None:
    lab = with_models
    prepared(lab, ONLY_FILES)
    (first, program), *others = solutions(lab).items()
    rows = [
        {"problem_id": first, "program": program},
        {"problem_id": first, "program": program + "\n# the same"},
        {"problem_id": first, "program": program},
        {"problem_id": first, "text": f"Let me think.\n```python\n{program}\nprint()\n```"},
        {"problem_id": first, "program": "print('no')"},
        {"problem_id": others[0][0], "program": others[0][1] + "\n" + "print()\n" * 200},
        {"problem_id": others[1][0], "text": others[1][1][:10], "finish_reason": "length"},
        {"problem_id": "unknown", "program": program},
    ]
    files = {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]}
    run_id = prepared(lab, ONLY_FILES | files)
    manifest = lab.run(run_id, "corpus")["corpus"].manifest
    flow = manifest.flow["other_model"]
    assert flow["came in"] == 7
    assert flow["too long"] == 1
    assert flow["not correct"] == 2 + (flow["correct"] == 3)
    assert flow["duplicate"] == 2
    assert flow["kept"] == len(rows) - 1 - 2 - flow["not correct"] - 1 - flow.get("near duplicate", 0)
    assert manifest.left_out == {"mine.jsonl: no training problem of this run": 1}
    assert sum(n for fate, n in flow.items() if fate not in {"came in", "judged", "correct"}) == flow["came in"]


def test_the_same_file_again_adds_and_judges_nothing(with_models: Lab, tmp_path: Path) -> None:
    lab = with_models
    prepared(lab, ONLY_FILES)
    rows = [{"problem_id": name, "program": program} for name, program in solutions(lab).items()]
    files = {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]}
    first = lab.run(prepared(lab, ONLY_FILES | files), "corpus")["corpus"]
    assert first.manifest.added["mine.jsonl"] == len(rows)
    judged = lab.value(VERDICTS)
    again = lab.run(prepared(lab, ONLY_FILES | files | {"corpus.per_problem": 7}), "corpus")["corpus"]
    assert again.manifest.added["mine.jsonl"] == 0
    assert again.manifest.flow == first.manifest.flow
    assert lab.value(VERDICTS) == judged


def test_known_verdicts_are_used_for_programs_from_elsewhere(with_models: Lab, tmp_path: Path) -> None:
    lab = with_models
    lab.run(prepared(lab, ONLY_FILES | {"corpus.sources": ["human"]}), "corpus")
    judged = lab.value(VERDICTS)
    rows = [{"problem_id": name, "program": program, "model": "m"} for name, program in solutions(lab).items()]
    files = {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]}
    manifest = lab.run(prepared(lab, ONLY_FILES | files), "corpus")["corpus"].manifest
    assert manifest.flow["other_model"]["kept"] == len(rows)
    assert lab.value(VERDICTS) == judged


def test_responses_end_with_the_end_token_unless_they_were_cut_off(with_models: Lab, tmp_path: Path) -> None:
    from tasks.engines.checkpoint import load_tokenizer

    lab = with_models
    prepared(lab, ONLY_FILES)
    (name, program), *_ = solutions(lab).items()
    rows = [{"problem_id": name, "text": program}, {"problem_id": name, "text": program, "finish_reason": "length"}]
    run_id = prepared(lab, ONLY_FILES | {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]})
    lab.run(run_id, "corpus")
    with lab.store() as store:
        stored = store.rows("SELECT token_ids, finish_reason, verdict FROM trajectories ORDER BY finish_reason")
        reference = store.value("SELECT path FROM policies LIMIT 1")
    end = load_tokenizer(Path(reference)).eos_token_id
    assert [row["finish_reason"] for row in stored] == ["length", "stop"]
    assert stored[1]["token_ids"] == [*stored[0]["token_ids"], end]
    assert stored[0]["verdict"] == "cut_off"


def test_token_ids_of_another_tokenizer_are_made_anew_and_the_run_says_so(with_models: Lab, tmp_path: Path) -> None:
    lab = with_models
    prepared(lab, ONLY_FILES)
    (name, program), *_ = solutions(lab).items()
    rows = [{"problem_id": name, "text": program, "token_ids": [1, 2, 3], "tokenizer_hash": "another"}]
    lab.run(prepared(lab, ONLY_FILES | {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]}), "corpus")
    assert lab.value("SELECT token_ids FROM trajectories") != [1, 2, 3]
    assert "1 responses of mine.jsonl" in lab.value("SELECT message FROM run_events WHERE kind = 'retokenized'")


def test_another_models_answers_are_topped_up_and_survive_its_failure(
    with_models: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = with_models
    prepared(lab, ONLY_FILES)
    known, asked = solutions(lab), 0

    def answers(_client: Any, _config: Any, questions: list[Question]) -> list[Answer]:
        nonlocal asked
        if asked >= 4:
            raise OtherModelError("the server went away")
        asked += len(questions)
        return [Answer(f"Hm.\n```python\n{known[q.problem.problem_id]}\n```", "stop") for q in questions]

    monkeypatch.setattr(other_models, "_asked", answers)
    monkeypatch.setattr("tasks.corpus.stage.PROBLEMS_PER_BATCH", 2)
    model = {"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big-1", "samples": 2}
    run_id = prepared(lab, ONLY_FILES | {"corpus.other_models": [model]})
    with pytest.raises(OtherModelError, match="went away"):
        lab.run(run_id, "corpus")
    assert lab.value("SELECT count(*) FROM trajectories") == 4
    asked = -100
    flow = lab.run(run_id, "corpus")["corpus"].manifest.flow["other_model"]
    assert asked == -100 + 2 * len(known) - 4
    assert (flow["came in"], flow["kept"], flow["duplicate"]) == (2 * len(known), len(known), len(known))
    more = prepared(lab, ONLY_FILES | {"corpus.other_models": [model | {"samples": 3}]})
    asked = -100
    lab.run(more, "corpus")
    assert asked == -100 + len(known)
    with lab.store() as store:
        (first, *_) = store.rows("SELECT batch_id, count(*) AS n FROM trajectories GROUP BY 1 ORDER BY min(arrival)")
        store.append("bad", {"quarantine": [{"bad_batch_id": first["batch_id"], "reason": "test"}]}, run_id="hand")
    for most, expected in ((5, first["n"]), (6, 0)):
        asked = -100
        lab.run(prepared(lab, ONLY_FILES | {"corpus.other_models": [model], "corpus.per_problem": most}), "corpus")
        assert asked == -100 + expected
        assert lab.value("SELECT count(*) FROM trajectories") == 3 * len(known)


def test_another_model_is_sampled_here_when_it_has_no_address(with_models: Lab) -> None:
    lab = with_models
    prepared(lab, ONLY_FILES)
    model = {"name": "here", "model": lab.value("SELECT path FROM policies LIMIT 1"), "samples": 2, "max_tokens": 24}
    manifest = lab.run(prepared(lab, ONLY_FILES | {"corpus.other_models": [model]}), "corpus")["corpus"].manifest
    assert manifest.added["here"] == manifest.flow["other_model"]["came in"] == 12
    assert lab.value("SELECT count(DISTINCT seed) FROM trajectories WHERE engine = 'other_model/here'") == 12


def test_correct_programs_of_runs_with_other_prompts_are_retokenized_once(copied: Callable[[], Lab]) -> None:
    lab = copied()
    with lab.store() as store:
        row = store.rows("SELECT * FROM trajectories WHERE source = 'human' AND reward = 0 LIMIT 1")[0]
        found = online(row, text=row["text"] + "\nunheard_of = 1", normal_hash="new")
        store.append("rollout/micro-1/9/0", {"trajectories": [found]}, run_id="micro-1")
    overrides = {"reference.template": "few_shot", "problems.max_prompt_tokens": 4096, "corpus.reference_samples": 0}
    overrides |= {"corpus.near_duplicates": 1, "corpus.reference_logprobs": False}
    first = lab.run(lab.start("few", overrides), "prepare", "corpus")["corpus"].manifest
    assert first.added["retokenized"] > 0
    assert first.per_source["prior_spo"] > 0
    assert lab.value("SELECT count(*) FROM trajectories WHERE parent_trajectory_id = 'found' AND reward = 0") == 1
    message = lab.value("SELECT message FROM run_events WHERE kind = 'retokenized' ORDER BY created_at DESC LIMIT 1")
    assert f"{first.added['retokenized']} responses of runs with another tokenizer or template" in message
    again = lab.run(lab.start("few again", overrides | {"corpus.per_problem": 5}), "prepare", "corpus")["corpus"]
    assert again.manifest.added["retokenized"] == 0


def online(row: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A row of `trajectories` as if an earlier run had sampled it online; its id is `found`."""
    columns = ("problem_id", "prompt_id", "suite_hash", "token_ids", "finish_reason", "reward", "verdict")
    return {name: row[name] for name in columns} | {"trajectory_id": "found", "source": "online"} | changes


def test_samples_of_pi_0_at_q0s_settings_count_for_q0_wherever_they_are_drawn(with_models: Lab) -> None:
    lab = with_models
    like_q0 = {"corpus.behaviour": {"weights": "reference", "temperature": [1.0, 1.0], "top_p": 1.0}}
    run_id = prepared(lab, like_q0 | {"corpus.reference_samples": 5, "corpus.sources": ["reference"]})
    lab.run(run_id, "corpus")
    assert lab.value("SELECT sum(n) FROM reference_counts") == 6 * 5
    assert lab.run(run_id, "q0")["q0"].rows == 6 * (24 - 5)
    assert lab.value("SELECT count(*) - count(DISTINCT (prompt_id, seed)) FROM trajectories") == 0


def test_more_corpus_samples_are_drawn_on_top_of_the_known_ones(with_models: Lab) -> None:
    lab = with_models
    only = {"corpus.sources": ["reference"], "corpus.reference_logprobs": False}
    lab.run(prepared(lab, only | {"corpus.reference_samples": 4}), "corpus")
    more = lab.run(prepared(lab, only | {"corpus.reference_samples": 6}), "corpus")["corpus"]
    assert more.manifest.added["reference"] == 6 * 2
    assert lab.value("SELECT count(DISTINCT trajectory_id) FROM trajectories") == 6 * 6


@pytest.mark.parametrize("which", ["min", "max"])
def test_samples_of_one_batch_among_several_are_drawn_again_for_the_corpus(which: str, with_models: Lab) -> None:
    lab = with_models
    only = {"corpus.sources": ["reference"], "corpus.reference_logprobs": False}
    for samples in (4, 8):
        lab.run(prepared(lab, only | {"corpus.reference_samples": samples}), "corpus")
    batch = lab.value(f"SELECT arg_{which}(batch_id, arrival) FROM trajectories")
    with lab.store() as store:
        store.append("bad", {"quarantine": [{"bad_batch_id": batch, "reason": "by hand"}]}, run_id="by hand")
    again = only | {"corpus.reference_samples": 8}
    found = lab.run(prepared(lab, again | {"train.steps": 3}), "corpus")["corpus"]
    assert found.manifest.added["reference"] == 6 * 4
    each = "SELECT count(DISTINCT trajectory_id) AS n FROM trajectories GROUP BY problem_id"
    assert lab.value(f"SELECT list(DISTINCT n) FROM ({each})") == [8]
    assert lab.run(prepared(lab, again | {"train.steps": 4}), "corpus")["corpus"].skipped


def test_log_probabilities_of_what_training_drew_from_the_corpus_were_computed_once_and_here(finished: Lab) -> None:
    drawn = (
        "(SELECT DISTINCT id FROM (SELECT unnest(trajectory_ids) AS id, unnest(sources) AS source FROM train_batches) "
        "WHERE source = 'offline')"
    )
    assert finished.value(f"SELECT count(*) FROM {drawn}") > 0
    for condition in ("NOT starts_with(l.batch_id, 'scores/')", "l.trajectory_id IS NULL"):
        missed = f"SELECT count(*) FROM {drawn} d LEFT JOIN reference_logprobs l ON l.trajectory_id = d.id WHERE "
        assert finished.value(missed + condition) == 0
    assert finished.value("SELECT count(*) - count(DISTINCT (trajectory_id, fingerprint)) FROM reference_logprobs") == 0


def test_log_probabilities_that_were_put_aside_are_computed_again(copied: Callable[[], Lab]) -> None:
    lab, of_the_corpus = copied(), "FROM reference_logprobs WHERE starts_with(batch_id, 'scores/')"
    stored = lab.value(f"SELECT count(*) {of_the_corpus}")
    with lab.store() as store:
        bad = store.rows(f"SELECT DISTINCT batch_id AS bad_batch_id, 'by hand' AS reason {of_the_corpus}")
        store.append("bad", {"quarantine": bad}, run_id="by hand")
    run_id = lab.start("again", {"corpus.per_problem": 7})
    for stage in ("prepare", "q0", "corpus"):
        lab.run(run_id, stage)
    assert lab.value(f"SELECT count(*) {of_the_corpus}") >= stored > 0


def probabilities(lab: Lab, corpus_id: str) -> dict[str, float]:
    """The probability that pi_0 gives all members of each problem, by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM

    with lab.store() as store:
        rows = store.rows(
            "SELECT problem_id, prompts.token_ids AS prompt, trajectories.token_ids AS response FROM corpus "
            "JOIN trajectories USING (trajectory_id, problem_id) JOIN prompts USING (problem_id) WHERE corpus_id = ?",
            [corpus_id],
        )
        folder = store.value("SELECT path FROM policies WHERE kind = 'reference' LIMIT 1")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    found: dict[str, float] = {}
    for row in rows:
        ids = torch.tensor([*row["prompt"], *row["response"]])
        with torch.no_grad():
            logp = model(ids[None]).logits[0, :-1].log_softmax(dim=-1).gather(1, ids[1:, None])[:, 0]
        found[row["problem_id"]] = found.get(row["problem_id"], 0.0) + float(logp[len(row["prompt"]) - 1 :].sum().exp())
    return found


def test_a_problem_never_solved_is_kept_with_what_pi_0_thinks_of_its_known_programs(with_models: Lab) -> None:
    lab = with_models
    few = {"q0.samples": 2, "corpus.sources": ["human"], "corpus.reference_samples": 0, "train.steps": 1}
    run_id = prepared(lab, few | {"q0.zero_successes": "corpus"})
    never = set(lab.run(run_id, "q0")["q0"].manifest.without_success)
    solved = min(never)
    with lab.store() as store:  # as if another run had seen pi_0 solve it
        columns = "problem_id, reference, sampling, template_id, suite_hash, prompt_id"
        row = store.rows(f"SELECT {columns} FROM reference_counts WHERE problem_id = ? LIMIT 1", [solved])[0]
        store.append("seen", {"reference_counts": [row | {"n": 1, "k": 1}]}, run_id="other")
    corpus = lab.run(run_id, "corpus")["corpus"].manifest
    expected = probabilities(lab, corpus.corpus_id)
    del expected[solved]
    assert set(expected) == never - {solved}
    assert corpus.known_shares == pytest.approx(expected, rel=1e-3)
    kept = lab.run(prepared(lab, few | {"q0.zero_successes": "keep"}), "q0", "corpus")["corpus"]
    assert not kept.skipped
    assert kept.manifest.known_shares == {}


def test_solutions_that_are_added_to_a_file_of_problems_join_the_corpus(with_models: Lab, tmp_path: Path) -> None:
    lab, path = with_models, tmp_path / "mine.jsonl"
    rows: list[dict[str, Any]] = [
        {
            "problem_id": f"p{number}",
            "statement": f"Read a number. Print {number} more, {name}.",
            "input_tests": ["5\n"],
            "output_tests": [f"{5 + number}\n"],
        }
        for number, name in enumerate(("apple", "brook", "cloud", "delta"))
    ]
    overrides = {
        "problems": {"source": "jsonl", "path": write(path, rows), "train": 4, "evaluation": 0},
        "corpus": {"sources": ["human"], "reference_samples": 0, "reference_logprobs": False},
    }

    def kept(name: str) -> int:
        manifest = lab.run(lab.start(name, overrides), "prepare", "corpus")["corpus"].manifest
        return manifest.flow.get("human", {}).get("kept", 0)

    assert kept("without") == 0
    for number, row in enumerate(rows):
        row["solutions"] = [{"code": f"print(int(input()) + {number})", "language": "python3", "correct": True}]
    write(path, rows)
    assert kept("with") == 4
    assert lab.run(lab.start("same", overrides), "prepare", "corpus")["corpus"].skipped


def test_adaptive_q0_broken_in_the_middle_repeats_no_sample_and_keeps_the_total(with_models: Lab) -> None:
    lab = with_models
    run_id = prepared(lab, {"q0.adaptive": True, "q0.narrow_nats": 1e-6})
    with storing_broken_at("q0/", 6):
        lab.run(run_id, "q0")
    known = lab.value("SELECT sum(n) FROM reference_counts")
    assert 0 < known < 6 * 24
    assert lab.run(run_id, "q0")["q0"].rows == 6 * 24 - known
    assert lab.value("SELECT sum(n) FROM reference_counts") == 6 * 24
    assert lab.value("SELECT count(DISTINCT (prompt_id, seed)) FROM trajectories") == 6 * 24
    per_prompt = "SELECT sum(n) AS n FROM reference_counts GROUP BY problem_id"
    assert lab.value(f"SELECT min(n) FROM ({per_prompt})") >= 24 / 4


def test_adaptive_q0_takes_in_what_others_count_meanwhile(with_models: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, tuple[int, int]]] = []
    counted = q0._counts

    def with_others(*arguments: Any) -> dict[str, tuple[int, int]]:
        asked.append(counted(*arguments))
        return {name: (n + 90, k + 90) if len(asked) > 1 else (n, k) for name, (n, k) in asked[-1].items()}

    monkeypatch.setattr(q0, "_counts", with_others)
    lab = with_models
    lab.run(prepared(lab, {"q0.adaptive": True, "q0.narrow_nats": 1e-6}), "q0")
    assert len(asked) > 1


def test_prompts_without_a_success_are_topped_up_and_flagged(with_models: Lab) -> None:
    lab = with_models
    run_id = prepared(lab, {"q0.samples": 2, "q0.zero_top_up": 4})
    manifest = lab.run(run_id, "q0")["q0"].manifest
    per_prompt = "(SELECT problem_id, sum(n) AS n, sum(k) AS k FROM reference_counts GROUP BY problem_id)"
    assert lab.value(f"SELECT count(*) FROM {per_prompt} WHERE k = 0 AND n <> 4") == 0
    assert lab.value(f"SELECT count(*) FROM {per_prompt} WHERE k = 0") == len(manifest.without_success) > 0
    flag = lab.value("SELECT message FROM run_events WHERE kind = 'without_success'")
    assert manifest.without_success[0] in flag


def test_a_later_runs_corpus_holds_what_an_earlier_run_found_online(copied: Callable[[], Lab]) -> None:
    lab = copied()
    with lab.store() as store:
        row = store.rows("SELECT * FROM trajectories WHERE source = 'human' AND reward = 0 LIMIT 1")[0]
        text = "unheard_of = [n ** 3 for n in range(99)]\nprint(sum(unheard_of))"
        found = online(row, text=text, normal_hash="new")
        store.append("rollout/micro-1/9/0", {"trajectories": [found]}, run_id="micro-1")
    judged = lab.value(VERDICTS)
    results = lab.run(lab.start("second"), "prepare", "q0", "corpus")
    assert results["q0"].skipped
    assert lab.value("SELECT source FROM corpus WHERE trajectory_id = 'found' AND run_id = 'micro-2'") == "prior_spo"
    assert lab.value(VERDICTS) == judged


def test_a_corpus_of_other_sources_is_the_same_whatever_runs_sample_online(copied: Callable[[], Lab]) -> None:
    lab, settings = copied(), {"corpus.sources": ["reference", "human"]}
    lab.run(lab.start("second", settings), "prepare", "q0", "corpus")
    with lab.store() as store:
        row = store.rows("SELECT * FROM trajectories WHERE source = 'human' AND reward = 0 LIMIT 1")[0]
        found = online(row, text="unheard_of = 1\nprint(unheard_of)", normal_hash="new")
        store.append("rollout/micro-1/9/0", {"trajectories": [found]}, run_id="micro-1")
    results = lab.run(lab.start("third", settings), "prepare", "q0", "corpus")
    assert results["corpus"].skipped


@pytest.mark.slow
def test_a_whole_second_run_samples_no_q0_and_judges_no_program_twice(copied: Callable[[], Lab]) -> None:
    lab = copied()
    counted = lab.value("SELECT sum(n) FROM reference_counts")
    results = lab.run(lab.start("second"))
    assert results["q0"].skipped
    assert lab.value("SELECT sum(n) FROM reference_counts") == counted
    twice = "SELECT count(*) - count(DISTINCT (program_hash, suite_hash)) FROM verdicts WHERE run_id = 'micro-2'"
    assert lab.value(twice) == 0
    known = (
        "SELECT count(*) FROM verdicts n JOIN verdicts o USING (program_hash, suite_hash) "
        "WHERE n.run_id = 'micro-2' AND o.run_id = 'micro-1'"
    )
    assert lab.value(known) == 0
