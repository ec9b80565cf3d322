"""Tiny random models on disk; every test computes with one thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tasks.engines.transformers_engine import TransformersEngine

VOCABULARY = 60
SAME_BITS = torch.backends.mkl.is_available() and torch.backends.cpu.get_cpu_capability() == "AVX512"
"""Whether sums come out the same, to the last bit, in batches of any size."""
END = 1


def tiny_settings(**changes: Any) -> dict[str, Any]:
    """Settings of a two-layer model with grouped query heads."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "bos_token_id": 0,
        "eos_token_id": END,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    } | changes


def save(model: Any, folder: Path) -> Path:
    """`model` as a checkpoint folder."""
    model.save_pretrained(folder)
    return folder


def build(kind: str, seed: int = 0) -> Any:
    """A tiny random model of an architecture."""
    torch.manual_seed(seed)
    builders = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**tiny_settings())),
        "llama_untied": lambda: LlamaForCausalLM(LlamaConfig(**tiny_settings(tie_word_embeddings=False))),
        "llama_wide": lambda: LlamaForCausalLM(LlamaConfig(**tiny_settings(hidden_size=128, initializer_range=0.1))),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**tiny_settings())),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**tiny_settings(head_dim=16))),
        "mistral": lambda: MistralForCausalLM(MistralConfig(**tiny_settings(sliding_window=None))),
        "mistral_sliding": lambda: MistralForCausalLM(MistralConfig(**tiny_settings(sliding_window=8))),
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=END)
        ),
    }
    return builders[kind]().eval()


def write_adapter(folder: Path, base: Path, seed: int, *, rank: int = 4) -> Path:
    """A random adapter of every linear layer of the attention of the model in `base`, as peft writes it."""
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_pretrained(base)
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if name.endswith(("_proj", "c_attn")) and getattr(layer, "weight", None) is not None
    }
    tensors: dict[str, torch.Tensor] = {}
    for name, layer in layers.items():
        inputs, outputs = layer.weight.shape if type(layer).__name__ == "Conv1D" else layer.weight.shape[::-1]
        tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, inputs) * 0.1
        tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(outputs, rank) * 0.1
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": sorted({name.rpartition(".")[2] for name in layers}),
        "bias": "none",
        "fan_in_fan_out": any(type(layer).__name__ == "Conv1D" for layer in layers.values()),
    }
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def save_tokenizer(folder: Path) -> Any:
    """A tokenizer of `VOCABULARY` characters beside the model; token 0 starts and token 1 ends a text."""
    characters = ["<start>", "<end>", "\n", *map(chr, range(32, 32 + VOCABULARY - 3))]
    whole = Tokenizer(models.BPE(vocab={character: number for number, character in enumerate(characters)}, merges=[]))
    whole.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    whole.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=whole, bos_token="<start>", eos_token="<end>")
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(build("llama"), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same architecture with other weights."""
    return save(build("llama", seed=1), tmp_path_factory.mktemp("other"))


@pytest.fixture
def engine(llama_folder: Path) -> TransformersEngine:
    return TransformersEngine(llama_folder, dtype="float32", max_batch=16)
