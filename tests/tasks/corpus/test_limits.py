"""The corpus where runs have different length limits, and what was cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks.config import OtherModelConfig
from tasks.corpus import stage
from tasks.corpus.other_models import Answer, Question
from tests.tasks.conftest import Lab
from tests.tasks.corpus.test_other_models import serving
from tests.tasks.corpus.test_stage import ONLY_FILES, corpus, solver
from warehouse.superseding import content

MODEL = {"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big-1", "samples": 1}


def test_answers_that_were_too_long_are_asked_for_again_where_there_is_more_room(prepared: Lab) -> None:
    with serving() as server:
        server.write = solver(prepared)
        for limit, in_all in ((4, 6), (3, 6), (80, 12)):
            models = [MODEL | {"endpoint": server.address}]
            settings = {"corpus.other_models": models, "engine.max_response_tokens": limit}
            flow = corpus(prepared, ONLY_FILES | settings).manifest.flow
            assert len(server.asked) == in_all
    assert flow["other_model"]["kept"] == 6


def test_what_pi_0_was_cut_off_in_at_another_limit_is_no_failure(copied: Callable[[], Lab]) -> None:
    lab = copied()
    with lab.store() as store:
        (row,) = store.rows("SELECT * FROM trajectories WHERE source = 'reference' AND reward = -1 LIMIT 1")
        cut = content(row) | {"trajectory_id": "cut", "normal_hash": "cut", "finish_reason": "length"}
        store.append("cut", {"trajectories": [cut | {"text": "unheard_of = 1", "verdict": "cut_off"}]}, run_id="other")
    everything = {"corpus.correct_only": False, "corpus.per_problem": 99, "corpus.near_duplicates": 1}
    for limit, members in ((80, 1), (88, 0)):
        run_id = lab.start(f"{limit}", everything | {"engine.max_response_tokens": limit})
        lab.run(run_id, "prepare", "q0", "corpus")
        assert lab.value(f"SELECT count(*) FROM corpus WHERE run_id = '{run_id}' AND trajectory_id = 'cut'") == members


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
