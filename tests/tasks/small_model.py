"""A run's own problems and a random model, for stages that need no trained policy and no other run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.checkpoints import checkpoint
from tests.tasks.conftest import Lab
from tests.tasks.engines.conftest import save, save_tokenizer, tiny_settings
from tests.tasks.prepare.test_stage import problem, write

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}>"


def small_model(folder: Path, seed: int = 0) -> Path:
    """A random Llama that speaks by a chat template, with room for long prompts."""
    torch.manual_seed(seed)
    save(LlamaForCausalLM(LlamaConfig(**tiny_settings(max_position_embeddings=4096))), folder)
    tokenizer = save_tokenizer(folder)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def with_turns(folder: Path) -> int:
    """Let the model's chat template end every message with a special token of its own; its id."""
    tokenizer = checkpoint.load_tokenizer(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}<turn>{% endfor %}>"
    tokenizer.save_pretrained(folder)
    return int(tokenizer.convert_tokens_to_ids("<turn>"))


def small_run(lab: Lab, model: Path, *, edited: dict[str, Any] | None = None, **overrides: Any) -> str:
    """A new run over six problems, the fourth of them edited so."""
    records = [problem(number, **((edited or {}) if number == 4 else {})) for number in range(1, 7)]
    path = write(lab.home / "problems.jsonl", records)
    settings = {
        "problems": {"source": "jsonl", "path": str(path), "train": 6, "evaluation": 0, "max_prompt_tokens": 2048},
        "reference": {"model": str(model), "template": "chat"},
        "engine.max_response_tokens": 8,
        "q0.samples": 4,
        "q0.zero_successes": "keep",
    }
    return lab.start(f"{model}{edited}{overrides}", settings | overrides)
