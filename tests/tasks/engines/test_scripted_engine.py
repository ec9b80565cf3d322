from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest

from tasks.checkpoints.errors import EngineError
from tasks.config import EngineConfig
from tasks.engines import open_engine
from tasks.engines.protocol import Request
from tasks.engines.scripted_engine import DRY_RUN_PROGRAMS, ScriptedEngine
from tests.tasks.engines.conftest import END, build, save, save_tokenizer

RESPONSES = [(5, 6, END), (5, 7, END), (5, 7, 8, END), (9, END)]


def test_responses_are_drawn_evenly() -> None:
    engine = ScriptedEngine(RESPONSES, stop_ids=[END])
    counts = Counter(item.token_ids for item in engine.sample([Request((2, 3), 4000, seed=0)]))
    assert counts.keys() == set(RESPONSES)
    assert all(abs(count - 1000) < 150 for count in counts.values())


def test_log_probabilities_multiply_to_the_share_of_a_response() -> None:
    engine = ScriptedEngine(RESPONSES, stop_ids=[END])
    for item in engine.sample([Request((2, 3), 20, seed=1)]):
        assert math.exp(sum(item.logprobs)) == pytest.approx(0.25)
        assert engine.score([((2, 3), item.token_ids)]) == [list(item.logprobs)]
    assert engine.score([((2, 3), (5, 99))]) == [[pytest.approx(math.log(0.75)), -math.inf]]


def test_entropies_are_those_of_the_shares_at_each_position() -> None:
    engine = ScriptedEngine(RESPONSES, stop_ids=[END])
    first = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    second = -1 / 3 * math.log(1 / 3) - 2 / 3 * math.log(2 / 3)
    third = math.log(2)
    expected = {(5, 6, END): (first, second, 0), (9, END): (first, 0)}
    expected |= {(5, 7, END): (first, second, third), (5, 7, 8, END): (first, second, third, 0)}
    for item in engine.sample([Request((2, 3), 20, seed=1, entropies=True)]):
        assert item.entropies == pytest.approx(expected[item.token_ids])


def test_the_same_request_draws_the_same_whatever_stands_beside_it() -> None:
    engine = ScriptedEngine(RESPONSES, stop_ids=[END])
    wanted = Request((2, 3), 30, seed=4)
    alone = [item.token_ids for item in engine.sample([wanted])]
    beside = [item.token_ids for item in engine.sample([Request((9,), 7, seed=4), wanted]) if item.request == 1]
    assert alone == beside


def test_a_response_longer_than_the_limit_is_cut_off() -> None:
    engine = ScriptedEngine([(5, 6, 7, END)], stop_ids=[END])
    short, whole = engine.sample([Request((2,), 1, seed=0, max_tokens=2), Request((2,), 1, seed=0, max_tokens=4)])
    assert (short.token_ids, short.finish_reason) == ((5, 6), "length")
    assert (whole.token_ids, whole.finish_reason) == ((5, 6, 7, END), "stop")


def test_a_prompt_may_have_responses_of_its_own() -> None:
    engine = ScriptedEngine([(9, END)], {(2, 3): [(4, END)]}, stop_ids=[END])
    items = engine.sample([Request((2, 3), 1, seed=0), Request((3, 2), 1, seed=0)])
    assert [item.token_ids for item in items] == [(4, END), (9, END)]


def test_a_folder_with_a_script_answers_from_it(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path)
    script = {"stop_ids": [END], "default": [[7, END]], "by_prompt": [[[2], [[8, END]]]]}
    (folder / "script.json").write_text(json.dumps(script), encoding="utf-8")
    engine = open_engine(EngineConfig(kind="scripted"), folder, dtype="float32")
    found = [item.token_ids for item in engine.sample([Request((2,), 1, seed=0), Request((3,), 1, seed=0)])]
    assert found == [(8, END), (7, END)]


def test_a_dry_run_answers_with_short_programs_in_the_checkpoints_tokens(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path)
    tokenizer = save_tokenizer(folder)
    engine = open_engine(EngineConfig(kind="scripted"), folder, dtype="float32")
    engine.refresh(folder)
    expected = {tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) for text in DRY_RUN_PROGRAMS}
    found = {item.token_ids for item in engine.sample([Request((2,), 100, seed=0)])}
    assert {ids[-1] for ids in found} == {END}
    assert {tokenizer.decode(ids[:-1]) for ids in found} == expected
    engine.close()


def test_a_script_without_responses_is_refused() -> None:
    with pytest.raises(EngineError, match="at least one"):
        ScriptedEngine([])
