"""Responses that were taken in before the chat template's end of an answer was known are taken in anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.corpus import other_models
from tasks.corpus.other_models import Answer, Question
from tests.tasks.conftest import Lab
from tests.tasks.engines.conftest import END
from tests.tasks.small_model import small_model, small_run, with_turns

ENDS = "SELECT DISTINCT token_ids[-1] AS token, count(*) AS n FROM {} WHERE {} GROUP BY ALL ORDER BY token"
NEWEST = "corpus_id = (SELECT arg_max(corpus_id, arrival) FROM corpus)"
MODEL = {"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big-1", "samples": 2}


def answers(asked: list[int]) -> Any:
    def answer(_client: Any, _config: Any, questions: list[Question]) -> list[Answer]:
        asked.append(len(questions))
        added = [question.problem.problem_id.rsplit("-", 1)[1] for question in questions]
        return [Answer(f"```python\nprint(int(input()) + {n} + 0)\n```", "stop") for n in added]

    return answer


def collected(lab: Lab, model: Path, **changes: Any) -> dict[str, dict[str, int]]:
    """What the corpus of a new run of people's and another model's programs took in and what became of it."""
    settings = {
        "engine.max_response_tokens": 200,
        "corpus.sources": ["human", "other_model", "prior_spo"],
        "corpus.reference_samples": None,
        "corpus.near_duplicates": 1,
        "corpus.correct_only": False,  # this tokenizer knows few words: no program survives it
        "corpus.reference_logprobs": False,
        "corpus.other_models": [MODEL],
        "corpus.files": [str(lab.home / "mine.jsonl")],
    }
    results = lab.run(small_run(lab, model, **(settings | changes)), "prepare", "corpus")
    return results["corpus"].manifest.flow


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that stops at the tokenizer's end and at that of its chat template's turns."""
    folder = small_model(tmp_path / "model")
    tokens = {"eos_token_id": [END, with_turns(folder)]}
    (folder / "generation_config.json").write_text(json.dumps(tokens), encoding="utf-8")
    return folder


def test_what_ended_with_the_tokenizers_end_is_taken_in_anew_and_leaves_the_corpus(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, asked = Lab(tmp_path), list[int]()
    monkeypatch.setattr(other_models, "_asked", answers(asked))
    row = {"problem_id": "teapot-4", "program": "x = 4\nprint(x + int(input()))", "source": "prior_spo"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with monkeypatch.context() as before:  # as version 0.1 took them in
        before.setattr("tasks.problems.prompt.end_of", lambda _, tokenizer: tokenizer.eos_token_id)
        before.setattr("tasks.corpus.ingestion.other_end", lambda *_: None)
        first = collected(lab, model)
    again = collected(lab, model, **{"train.steps": 3, "corpus.per_problem": 30})
    assert asked == [12, 12]
    assert again == first
    assert [fates["came in"] for fates in again.values()] == [6, 12, 1]
    with lab.store() as store:
        turn = store.value("SELECT max(token_ids[-1]) FROM trajectories")
        stored = store.rows(ENDS.format("trajectories", "true"))
        kept = store.rows(ENDS.format("corpus JOIN trajectories t USING (trajectory_id)", NEWEST))
    assert [row["n"] for row in stored] == [19, 19]
    assert [row["token"] for row in kept] == [turn]
    third = collected(lab, model, **{"train.steps": 3, "corpus.per_problem": 29})
    assert third == again
    assert asked == [12, 12]
