"""Needs vLLM, which has an environment of its own: CI sets SPO_REQUIRE_VLLM=1 there, so that nothing is skipped."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.checkpoints.checkpoint import load_tokenizer
from tasks.checkpoints.errors import EngineError
from tasks.engines.canary import check_drift
from tasks.engines.protocol import EngineDrift, InvalidRequest, Request
from tests.tasks.engines.conftest import END, build, save, write_adapter

if importlib.util.find_spec("vllm") is None and os.environ.get("SPO_REQUIRE_VLLM") != "1":
    pytest.skip("vLLM is not installed in this environment (docs/guides/engines.md says how)", allow_module_level=True)

from tasks.engines.vllm_engine import HeadRefresh, VllmEngine, canary_sequence, transformers_scores

PROMPT = tuple(range(3, 43))
REQUESTS = [
    Request(PROMPT, 6, seed=1, max_tokens=20),
    Request(PROMPT, 6, seed=2, temperature=0.5, top_p=0.9, max_tokens=9),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two sets of weights with tied embeddings, with a tokenizer."""
    from tests.tasks.engines.conftest import save_tokenizer

    made = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    for seed, folder in enumerate(made):
        save(build("llama_wide", seed), folder)
        save_tokenizer(folder)
    return made[0], made[1]


@pytest.fixture(scope="module")
def engine(folders: tuple[Path, Path]) -> Iterator[VllmEngine]:
    engine = VllmEngine(folders[0], dtype="float32", max_batch=32)
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def first_weights(engine: VllmEngine, folders: tuple[Path, Path]) -> None:
    engine.refresh(folders[0])


def test_a_response_that_vllm_would_end_early_is_refused(engine: VllmEngine) -> None:
    with pytest.raises(InvalidRequest, match=r"prompt of 40 tokens.*max_model_len"):
        list(engine.sample([Request(PROMPT, 1, seed=1, max_tokens=300)]))


def test_log_probabilities_are_those_of_transformers(engine: VllmEngine, folders: tuple[Path, Path]) -> None:
    completions = list(engine.sample(REQUESTS))
    scores = engine.score([(PROMPT, item.token_ids) for item in completions])
    for item, score in zip(completions, scores, strict=True):
        expected = transformers_scores(folders[0], (PROMPT, item.token_ids))
        assert item.logprobs == pytest.approx(expected, abs=1e-4)
        assert score == pytest.approx(expected, abs=1e-4)


def test_samples_depend_on_the_request_alone(engine: VllmEngine) -> None:
    together = {(item.request, item.index): item.token_ids for item in engine.sample(REQUESTS)}
    for number, request in enumerate(REQUESTS):
        for item in engine.sample([request]):
            assert together[number, item.index] == item.token_ids


def test_responses_end_with_the_end_token_or_at_the_limit(engine: VllmEngine) -> None:
    reasons = set()
    for item in engine.sample([Request(PROMPT, 200, seed=5, max_tokens=12)]):
        reasons.add(item.finish_reason)
        assert (item.token_ids[-1] == END) == (item.finish_reason == "stop")
        assert END not in item.token_ids[:-1]
    assert reasons == {"stop", "length"}


def test_a_stop_text_ends_a_response_with_the_token_that_completes_it(
    engine: VllmEngine, folders: tuple[Path, Path]
) -> None:
    tokenizer = load_tokenizer(folders[0])
    reasons = set()
    for item in engine.sample([Request(PROMPT, 60, seed=5, max_tokens=25, stop_text="5")]):
        reasons.add(item.finish_reason)
        text = tokenizer.decode(item.token_ids, skip_special_tokens=True)
        assert text.find("5") in (-1, len(text) - 1)
        if "5" in text:
            assert (item.finish_reason, tokenizer.decode(item.token_ids[-1:])) == ("stop", "5")
        assert len(item.logprobs) == len(item.token_ids)
    assert "stop" in reasons


def test_a_refresh_takes_effect_in_weights_head_and_prefix_cache(
    engine: VllmEngine, folders: tuple[Path, Path]
) -> None:
    list(engine.sample(REQUESTS))
    engine.refresh(folders[1])
    for item in engine.sample(REQUESTS):
        assert item.logprobs == pytest.approx(transformers_scores(folders[1], (PROMPT, item.token_ids)), abs=1e-4)


def test_the_canary_catches_a_head_left_stale(
    engine: VllmEngine, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeadRefresh, "refresh_tied_head", lambda _: False)
    with pytest.raises(EngineDrift, match="off by"):
        engine.refresh(folders[1])


def test_an_abandoned_call_leaves_no_request_behind(engine: VllmEngine, folders: tuple[Path, Path]) -> None:
    call = engine.sample(REQUESTS)
    next(call)
    call.close()
    engine.refresh(folders[0])
    canary = canary_sequence(folders[0])
    assert check_drift(engine.score([canary])[0], transformers_scores(folders[0], canary), 1e-4) >= 0


def test_requests_that_come_later_take_the_rows_that_get_free(engine: VllmEngine) -> None:
    wanted = [Request(PROMPT, 1, seed=number, max_tokens=6) for number in range(100)]
    under_way = 0
    most = 0

    def asked() -> Iterator[Request | None]:
        nonlocal under_way, most
        for number, request in enumerate(wanted):
            under_way += 1
            most = max(most, under_way)
            yield request
            if number % 10 == 9:
                yield None

    found: dict[int, tuple[int, ...]] = {}
    for item in engine.sample(asked()):
        found[item.request] = item.token_ids
        under_way -= 1
    assert found == {item.request: item.token_ids for item in engine.sample(wanted)}
    assert most <= 32 + 1


def test_sequences_are_scored_while_samples_are_drawn(engine: VllmEngine, folders: tuple[Path, Path]) -> None:
    canary = canary_sequence(folders[0])
    alone = {(item.request, item.index): item.token_ids for item in engine.sample(REQUESTS)}
    call = engine.sample(REQUESTS)
    found = [next(call)]
    assert engine.score([canary])[0] == pytest.approx(transformers_scores(folders[0], canary), abs=1e-4)
    found += list(call)
    assert {(item.request, item.index): item.token_ids for item in found} == alone


def test_an_adapter_without_room_for_it_is_refused(
    engine: VllmEngine, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = write_adapter(tmp_path / "adapter", folders[0], seed=1)
    with pytest.raises(EngineError, match="without room for adapters"):
        engine.refresh(folder)
