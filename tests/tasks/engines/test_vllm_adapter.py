"""vLLM applies published adapters to a base that it loads once; in vLLM's own environment, a process of its own."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tasks.checkpoints.checkpoint import policy_id
from tasks.checkpoints.errors import EngineError
from tasks.engines.protocol import EngineDrift, Request
from tests.tasks.engines.conftest import build, save, save_tokenizer, write_adapter

if importlib.util.find_spec("vllm") is None and os.environ.get("SPO_REQUIRE_VLLM") != "1":
    pytest.skip("vLLM is not installed in this environment (docs/guides/engines.md says how)", allow_module_level=True)

from tasks.engines.vllm_engine import VllmEngine, transformers_scores

PROMPT = tuple(range(3, 43))
REQUESTS = [
    Request(PROMPT, 6, seed=1, max_tokens=20),
    Request(PROMPT, 6, seed=2, temperature=0.5, top_p=0.9, max_tokens=9),
]


def test_adapters_are_applied_one_after_the_other_to_a_base_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, other = (save(build("llama_wide", seed), tmp_path / f"base-{seed}") for seed in (0, 1))
    for folder in (base, other):
        save_tokenizer(folder)
    first, second = (write_adapter(tmp_path / f"step-{seed}", base, seed, rank=4) for seed in (1, 2))
    engine = VllmEngine(first, dtype="float32", max_batch=16)
    try:
        seen: set[tuple[int, ...]] = set()
        for folder in (first, second, base, first):
            engine.refresh(folder)
            assert engine.policy_id == policy_id(folder)
            drawn = list(engine.sample(REQUESTS))
            scores = engine.score([(PROMPT, item.token_ids) for item in drawn])
            for item, score in zip(drawn, scores, strict=True):
                expected = transformers_scores(folder, (PROMPT, item.token_ids))
                assert item.logprobs == pytest.approx(expected, abs=1e-4)
                assert score == pytest.approx(expected, abs=1e-4)
            seen |= {item.token_ids for item in drawn}
        assert len(seen) > 3 * 6, "the adapters draw different responses"
        with pytest.raises(EngineError, match="open another engine"):
            engine.refresh(other)
        monkeypatch.setattr(VllmEngine, "_exchange", lambda *_: None)
        with pytest.raises(EngineDrift, match="off by"):
            engine.refresh(second)
    finally:
        engine.close()
