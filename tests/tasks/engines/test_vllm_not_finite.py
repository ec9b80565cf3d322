"""vLLM draws from logits that are no numbers and says nothing of it: the engine does. Without vLLM."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.checkpoints.errors import EngineError
from tasks.engines.protocol import Request
from tasks.engines.vllm_engine import VllmEngine


def drawn(logprob: float) -> Any:
    """An engine whose vLLM draws one response of one token."""
    engine: Any = object.__new__(VllmEngine)
    engine._longest, engine._max_batch = None, 1
    engine._sampling, engine._submit = lambda *_: None, lambda *_: "one"
    output = SimpleNamespace(token_ids=[7], logprobs=[{7: SimpleNamespace(logprob=logprob)}], finish_reason="stop")

    def finished(waiting: dict[str, Any], refill: Any) -> Any:
        refill()
        yield SimpleNamespace(outputs=[output]), waiting.pop("one")

    engine._finished = finished
    return engine


def test_log_probabilities_that_are_no_numbers_end_the_sampling() -> None:
    requests = [Request(prompt_ids=(1,), n=1, seed=0, max_tokens=1)]
    (found,) = drawn(-0.5).sample(requests)
    assert found.logprobs == (-0.5,)
    with pytest.raises(EngineError, match="no finite numbers"):
        list(drawn(math.nan).sample(requests))
