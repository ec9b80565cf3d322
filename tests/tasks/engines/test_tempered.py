"""A model at a temperature as a checkpoint of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tasks.checkpoints import checkpoint, model_sources
from tasks.config import ReferenceConfig, validate
from tests.refusals import refused
from tests.tasks.engines.conftest import build, save, save_tokenizer


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder).eval()(torch.tensor([[5, 9, 14, 30]])).logits


@pytest.mark.parametrize("kind", ["llama", "llama_untied", "qwen2", "qwen3", "mistral"])
def test_its_logits_are_the_models_divided_by_the_temperature(kind: str, tmp_path: Path) -> None:
    folder = save(build(kind), tmp_path / "model")
    save_tokenizer(folder)
    found = model_sources.resolve(ReferenceConfig(model=str(folder), temperature=0.7), tmp_path / "cache")
    assert torch.allclose(logits(found), logits(folder) / 0.7, rtol=1e-5, atol=1e-5)
    assert checkpoint.policy_id(found) != checkpoint.policy_id(folder)
    assert checkpoint.tokenizer_hash(found) == checkpoint.tokenizer_hash(folder)
    assert checkpoint.stop_ids(found) == checkpoint.stop_ids(folder)


def test_it_is_made_once_and_at_temperature_one_it_is_the_model_itself(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path / "model")
    save_tokenizer(folder)
    assert model_sources.resolve(ReferenceConfig(model=str(folder)), tmp_path / "cache") == folder
    half = ReferenceConfig(model=str(folder), temperature=0.5)
    first = model_sources.resolve(half, tmp_path / "cache")
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert model_sources.resolve(half, tmp_path / "cache") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.name]


def test_another_chat_template_or_end_token_makes_another_copy(tmp_path: Path) -> None:
    folder = save(build("llama"), tmp_path / "model")
    save_tokenizer(folder)
    half = ReferenceConfig(model=str(folder), temperature=0.5)
    first = model_sources.resolve(half, tmp_path / "cache")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    second = model_sources.resolve(half, tmp_path / "cache")
    assert checkpoint.load_tokenizer(first).chat_template is None
    assert checkpoint.load_tokenizer(second).chat_template == "{{ messages[0].content }}"
    assert checkpoint.policy_id(second) == checkpoint.policy_id(first)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 5]}', encoding="utf-8")
    assert checkpoint.stop_ids(model_sources.resolve(half, tmp_path / "cache")) == (1, 5)


def test_a_last_norm_with_a_bias_is_refused(tmp_path: Path) -> None:
    folder = save(build("gpt2"), tmp_path / "model")
    save_tokenizer(folder)
    with refused("NoPlainNorm", "GPT2LMHeadModel"):
        model_sources.resolve(ReferenceConfig(model=str(folder), temperature=0.5), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_miniature_model_has_no_temperature_of_its_own() -> None:
    with refused("InvalidConfig", "reference", "temperature"):
        validate({"reference": {"model": "miniature", "temperature": 0.5}})
