"""The corpus where runs have different length limits, and what was cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks.config import OtherModelConfig
from tasks.corpus import other_models, stage
from tasks.corpus.other_models import Answer, Question
from tests.tasks.conftest import Lab
from tests.tasks.corpus.test_stage import ONLY_FILES, prepared, solutions

MODEL = {"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big-1", "samples": 1}


def test_answers_that_were_too_long_are_asked_for_again_where_there_is_more_room(
    with_models: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, asked = with_models, list[int]()
    prepared(lab, ONLY_FILES)
    known = solutions(lab)

    def answers(_client: Any, _config: Any, questions: list[Question]) -> list[Answer]:
        asked.append(len(questions))
        return [Answer(f"```python\n{known[q.problem.problem_id]}\n```", "stop") for q in questions]

    monkeypatch.setattr(other_models, "_asked", answers)
    for limit, in_all in ((4, [6]), (3, [6]), (80, [6, 6]), (80, [6, 6])):
        settings = {"corpus.other_models": [MODEL], "engine.max_response_tokens": limit}
        flow = lab.run(prepared(lab, ONLY_FILES | settings), "corpus")["corpus"].manifest.flow
        assert asked == in_all
    assert flow["other_model"]["kept"] == 6


@pytest.mark.parametrize("correct_only", [True, False])
def test_what_pi_0_was_cut_off_in_at_another_limit_is_no_failure(correct_only: bool, copied: Callable[[], Lab]) -> None:
    lab = copied()
    limit = lab.value("SELECT max(max_response_tokens) FROM trajectories WHERE source = 'reference'")
    settings = {"engine.max_response_tokens": limit + 8, "corpus.correct_only": correct_only, "corpus.per_problem": 99}
    lab.run(lab.start("longer", settings), "prepare", "q0", "corpus")
    cut = """SELECT DISTINCT t.max_response_tokens AS at FROM corpus c JOIN trajectories t USING (trajectory_id)
             WHERE t.finish_reason = 'length' AND corpus_id = (SELECT arg_max(corpus_id, arrival) FROM corpus)"""
    with lab.store() as store:
        assert {row["at"] for row in store.rows(cut)} <= {limit + 8}


@pytest.mark.parametrize(
    "text, finished, program",
    [
        ("```python\nprint(1)\n```\nIt prints", True, True),
        ("```python\nprint(1)\n", False, False),
        ("```python\nprint(1)\n```\nBetter:\n```python\nprint(2", False, False),
    ],
)
def test_of_an_answer_that_was_cut_off_a_whole_program_is_finished_and_a_part_is_none(
    text: str, finished: bool, program: bool
) -> None:
    model = OtherModelConfig.model_validate(MODEL | {"keep": "program"})
    question: Any = Question(problem=None, seed=1)  # type: ignore[arg-type]
    found = vars(stage)["_answer"](model, "other_model/big", "p", 0, question, Answer(text, "length"))
    assert (found.finished, found.is_program) == (finished, program)
    assert found.content == ("print(1)" if program else text)
