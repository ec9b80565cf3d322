"""No more tokens than a model has positions for, and no model that the embedded engine would compute wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import (
    BloomConfig,
    CohereConfig,
    CohereForCausalLM,
    GPT2Config,
    NemotronConfig,
    NemotronForCausalLM,
    Phi3Config,
    StableLmConfig,
    StableLmForCausalLM,
)

from tasks.engines.positions import most_positions
from tasks.engines.protocol import Request
from tasks.engines.transformers_engine import TransformersEngine
from tests.refusals import refused
from tests.tasks.engines.conftest import build, save, tiny_settings


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_more_tokens_than_there_are_positions_are_refused_with_what_to_lower(kind: str, tmp_path: Path) -> None:
    model = build(kind)
    most = model.config.max_position_embeddings
    engine = TransformersEngine(save(model, tmp_path / kind), dtype="float32", max_batch=2)
    prompt = tuple(2 + number % 50 for number in range(most - 3))
    (found,) = engine.sample([Request(prompt, 1, seed=0, max_tokens=3)])
    assert engine.score([(prompt, found.token_ids)])[0] == pytest.approx(found.logprobs, abs=1e-4)
    named = most, type(model).__name__, "problems.max_prompt_tokens", "engine.max_response_tokens"
    with refused("InvalidRequest", *named):
        list(engine.sample([Request(prompt, 1, seed=0, max_tokens=4)]))
    with refused("InvalidRequest", *named):
        engine.score([(prompt, (2, 3, 4, 5))])


def test_a_model_that_longrope_stretched_has_the_positions_of_before() -> None:
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 32}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0} | factors
    sizes = tiny_settings(max_position_embeddings=128)
    assert most_positions(Phi3Config(**sizes, rope_parameters=rope, original_max_position_embeddings=32)) == 32
    assert most_positions(Phi3Config(**sizes)) == 128
    assert most_positions(GPT2Config(n_positions=64)) == 64
    assert most_positions(BloomConfig()) is None


@pytest.mark.parametrize(
    ("made", "code", "named"),
    [
        (lambda: StableLmForCausalLM(StableLmConfig(**tiny_settings())), "CannotDecode", "StableLmForCausalLM"),
        (lambda: NemotronForCausalLM(NemotronConfig(**tiny_settings())), "CannotDecode", "NemotronForCausalLM"),
        (lambda: CohereForCausalLM(CohereConfig(**tiny_settings())), "UnsupportedArchitecture", "CohereForCausalLM"),
    ],
    ids=["stablelm", "nemotron", "cohere"],
)
def test_a_model_that_would_be_computed_wrongly_is_refused_by_name(
    made: Callable[[], Any], code: str, named: str, tmp_path: Path
) -> None:
    folder = save(made().eval(), tmp_path / "model")
    with refused(code, named):
        TransformersEngine(folder, dtype="float32", max_batch=4)
