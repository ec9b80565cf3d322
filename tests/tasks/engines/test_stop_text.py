from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engines.protocol import Request
from tasks.engines.stop_text import StopText
from tasks.engines.transformers_engine import TransformersEngine
from tests.tasks.engines.conftest import build, save, save_tokenizer


@pytest.fixture
def engine(tmp_path: Path) -> TransformersEngine:
    folder = save(build("llama"), tmp_path)
    save_tokenizer(folder)
    return TransformersEngine(folder, dtype="float32", max_batch=16)


def test_only_the_token_that_completes_the_text_ends(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    ends = StopText(tokenizer)
    ids = tokenizer.encode("A+B:\n# C", add_special_tokens=False)
    assert [ends("\n#", ids[: length + 1]) for length in range(len(ids))] == [False] * 5 + [True] + [False] * 2


def test_a_sampled_response_is_the_longer_one_up_to_the_stop_text(engine: TransformersEngine, tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    free = {item.index: item for item in engine.sample([Request((4, 9), 60, seed=1, max_tokens=30)])}
    stopped = {item.index: item for item in engine.sample([Request((4, 9), 60, seed=1, max_tokens=30, stop_text="5")])}
    ended = 0
    for index, item in stopped.items():
        whole = free[index].token_ids
        assert whole[: len(item.token_ids)] == item.token_ids
        if "5" in tokenizer.decode(whole, skip_special_tokens=True):
            ended += 1
            assert item.finish_reason == "stop"
            assert tokenizer.decode(item.token_ids, skip_special_tokens=True).index("5") == len(item.token_ids) - 1
        else:
            assert item.token_ids == whole
    assert 0 < ended < 60
