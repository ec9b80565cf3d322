"""The corpus stage on responses that no run sampled, and what Q0 and training get from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.checkpoints.checkpoint import load_tokenizer
from tasks.corpus.other_models import OtherModelError
from tasks.run.stage import StageResult
from tests.tasks.conftest import Lab
from tests.tasks.corpus.test_other_models import serving

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


def begun(lab: Lab, overrides: dict[str, Any]) -> str:
    """A new run, whose problems are prepared."""
    lab.run(run_id := lab.start(json.dumps(overrides), overrides), "prepare")
    return run_id


def corpus(lab: Lab, overrides: dict[str, Any]) -> StageResult[Any]:
    """The corpus of a new run."""
    return lab.run(begun(lab, overrides), "corpus")["corpus"]


def aside(lab: Lab, batch: str) -> None:
    """Put a batch into quarantine."""
    with lab.store() as store:
        store.append(f"bad/{batch}", {"quarantine": [{"bad_batch_id": batch, "reason": "by hand"}]}, run_id="by hand")


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_users_file_is_judged_deduplicated_and_filtered(prepared: Lab, tmp_path: Path) -> None:
    lab = prepared
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
    settings = ONLY_FILES | {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]}
    manifest = corpus(lab, settings).manifest
    flow = manifest.flow["other_model"]
    assert flow["came in"] == 7
    assert flow["too long"] == 1
    assert flow["not correct"] == 2 + (flow["correct"] == 3)
    assert flow["duplicate"] == 2
    assert flow["kept"] == len(rows) - 1 - 2 - flow["not correct"] - 1 - flow.get("near duplicate", 0)
    assert manifest.left_out == {"mine.jsonl: no training problem of this run": 1}
    assert sum(n for fate, n in flow.items() if fate not in {"came in", "judged", "correct"}) == flow["came in"]
    judged = lab.value(VERDICTS)
    again = corpus(lab, settings | {"corpus.per_problem": 7}).manifest
    assert (manifest.added["mine.jsonl"], again.added["mine.jsonl"]) == (7, 0)
    assert again.flow == manifest.flow
    assert lab.value(VERDICTS) == judged


def test_programs_from_elsewhere_have_known_verdicts_the_policys_own_tokens_and_end(
    prepared: Lab, tmp_path: Path
) -> None:
    lab = prepared
    corpus(lab, ONLY_FILES | {"corpus.sources": ["human"]})
    judged, known = lab.value(VERDICTS), solutions(lab)
    foreign = {"token_ids": [1, 2, 3], "tokenizer_hash": "another"}
    rows = [{"problem_id": name, "text": program, "model": "m"} | foreign for name, program in known.items()]
    (name, program), *_ = known.items()
    rows.append({"problem_id": name, "text": program, "finish_reason": "length"})
    manifest = corpus(lab, ONLY_FILES | {"corpus.files": [write(tmp_path / "mine.jsonl", rows)]}).manifest
    assert manifest.flow["other_model"]["kept"] == len(known)
    assert lab.value(VERDICTS) == judged
    with lab.store() as store:
        asked = "SELECT token_ids, verdict FROM trajectories WHERE source = 'other_model' AND problem_id = ?"
        cut_off, whole = store.rows(f"{asked} ORDER BY finish_reason", [name])
        reference = store.value("SELECT path FROM policies LIMIT 1")
        assert store.value("SELECT count(*) FROM run_events WHERE kind = 'retokenized'") == 1
    assert whole["token_ids"] == [*cut_off["token_ids"], load_tokenizer(Path(reference)).eos_token_id]
    assert cut_off["verdict"] == "cut_off"


def solver(lab: Lab) -> Callable[[dict[str, Any]], str]:
    """Answers as another model does: with the correct program of the problem that it is asked for."""
    with lab.store() as store:
        statements = store.rows("SELECT problem_id, statement FROM problems")
    known = solutions(lab)

    def write(body: dict[str, Any]) -> str:
        asked = body["messages"][0]["content"]
        (name,) = {row["problem_id"] for row in statements if asked.endswith(row["statement"])}
        return f"Hm.\n```python\n{known[name]}\n```"

    return write


def test_another_models_answers_are_topped_up_and_survive_its_failure(
    prepared: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, problems = prepared, len(solutions(prepared))
    monkeypatch.setattr("tasks.corpus.stage.PROBLEMS_PER_BATCH", 2)
    with serving() as server:
        server.write, server.most = solver(lab), 4
        model = {"name": "big", "endpoint": server.address, "model": "big-1", "samples": 2}

        def newly_asked(overrides: dict[str, Any]) -> int:
            server.asked.clear()
            corpus(lab, ONLY_FILES | overrides)
            return len(server.asked)

        run_id = begun(lab, ONLY_FILES | {"corpus.other_models": [model]})
        with pytest.raises(OtherModelError):
            lab.run(run_id, "corpus")
        assert lab.value("SELECT count(*) FROM trajectories") == 4
        server.most, server.status = None, 200
        server.asked.clear()
        flow = lab.run(run_id, "corpus")["corpus"].manifest.flow["other_model"]
        assert len(server.asked) == 2 * problems - 4
        assert (flow["came in"], flow["kept"], flow["duplicate"]) == (2 * problems, problems, problems)
        assert newly_asked({"corpus.other_models": [model | {"samples": 3}]}) == problems
        with lab.store() as store:
            batches = "SELECT batch_id, count(*) AS n FROM trajectories GROUP BY 1 ORDER BY min(arrival)"
            first = store.rows(batches)[0]
        aside(lab, first["batch_id"])
        assert newly_asked({"corpus.other_models": [model], "corpus.per_problem": 5}) == first["n"]
    assert lab.value("SELECT count(*) FROM trajectories") == 3 * problems


def test_another_model_is_sampled_here_when_it_has_no_address(prepared: Lab) -> None:
    lab = prepared
    model = {"name": "here", "model": lab.value("SELECT path FROM policies LIMIT 1"), "samples": 2, "max_tokens": 24}
    manifest = corpus(lab, ONLY_FILES | {"corpus.other_models": [model]}).manifest
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


def test_samples_of_pi_0_at_q0s_settings_count_for_q0_wherever_they_are_drawn(prepared: Lab) -> None:
    lab = prepared
    like_q0 = {"corpus.behaviour": {"weights": "reference", "temperature": [1.0, 1.0], "top_p": 1.0}}
    run_id = begun(lab, like_q0 | {"corpus.reference_samples": 5, "corpus.sources": ["reference"]})
    lab.run(run_id, "corpus")
    assert lab.value("SELECT sum(n) FROM reference_counts") == 6 * 5
    assert lab.run(run_id, "q0")["q0"].rows == 6 * (24 - 5)
    assert lab.value("SELECT count(*) - count(DISTINCT (prompt_id, seed)) FROM trajectories") == 0


def test_more_corpus_samples_are_drawn_on_top_of_the_known_ones_and_those_put_aside_again(prepared: Lab) -> None:
    lab = prepared
    only = {"corpus.sources": ["reference"], "corpus.reference_logprobs": False}
    for samples in (4, 8):
        assert corpus(lab, only | {"corpus.reference_samples": samples}).manifest.added["reference"] == 6 * 4
    aside(lab, lab.value("SELECT arg_min(batch_id, arrival) FROM trajectories"))
    again = only | {"corpus.reference_samples": 8}
    assert corpus(lab, again | {"train.steps": 3}).manifest.added["reference"] == 6 * 4
    each = "SELECT count(DISTINCT trajectory_id) AS n FROM trajectories GROUP BY problem_id"
    assert lab.value(f"SELECT list(DISTINCT n) FROM ({each})") == [8]
    assert corpus(lab, again | {"train.steps": 4}).skipped


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


def test_a_problem_never_solved_is_kept_with_what_pi_0_thinks_of_its_known_programs(prepared: Lab) -> None:
    lab = prepared
    few = {"q0.samples": 2, "corpus.sources": ["human"], "corpus.reference_samples": 0, "train.steps": 1}
    run_id = begun(lab, few | {"q0.zero_successes": "corpus"})
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
    kept = lab.run(begun(lab, few | {"q0.zero_successes": "keep"}), "q0", "corpus")["corpus"]
    assert not kept.skipped
    assert kept.manifest.known_shares == {}


def test_solutions_that_are_added_to_a_file_of_problems_join_the_corpus(prepared: Lab, tmp_path: Path) -> None:
    lab, path = prepared, tmp_path / "mine.jsonl"
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


def test_a_later_runs_corpus_holds_what_an_earlier_run_found_online_where_it_asks_for_that(
    copied: Callable[[], Lab],
) -> None:
    lab, without = copied(), {"corpus.sources": ["reference", "human"]}
    lab.run(lab.start("second", without), "prepare", "q0", "corpus")
    with lab.store() as store:
        row = store.rows("SELECT * FROM trajectories WHERE source = 'human' AND reward = 0 LIMIT 1")[0]
        text = "unheard_of = [n ** 3 for n in range(99)]\nprint(sum(unheard_of))"
        found = online(row, text=text, normal_hash="new")
        store.append("rollout/micro-1/9/0", {"trajectories": [found]}, run_id="micro-1")
    judged = lab.value(VERDICTS)
    assert lab.run(lab.start("third", without), "prepare", "q0", "corpus")["corpus"].skipped
    results = lab.run(run_id := lab.start("fourth"), "prepare", "q0", "corpus")
    assert results["q0"].skipped
    asked = f"SELECT source FROM corpus WHERE trajectory_id = 'found' AND run_id = '{run_id}'"
    assert lab.value(asked) == "prior_spo"
    assert lab.value(VERDICTS) == judged


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
