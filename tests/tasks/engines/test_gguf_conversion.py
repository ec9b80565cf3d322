"""A GGUF file is written with the gguf package, as llama.cpp's converter would, and read back."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor

from tasks.checkpoints import checkpoint, model_sources
from tasks.config import ReferenceConfig
from tasks.engines.transformers_engine import TransformersEngine
from tests.refusals import refused
from tests.tasks.engines.conftest import build

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp's order of the rotary halves of a query or key projection."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def write_gguf(model: Any, path: Path, *, scaling: str | None = None, factors: bool = False) -> None:
    """`model` as an unquantized GGUF with a byte-pair vocabulary of single characters; its positions scaled or not."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if scaling is not None:
        writer.add_string("llama.rope.scaling.type", scaling)
    if factors:
        writer.add_tensor("rope_freqs.weight", torch.ones(config.hidden_size // 2).numpy())
    writer.add_vocab_size(config.vocab_size)
    characters = ["<s>", "</s>", *map(chr, range(33, 33 + config.vocab_size - 3)), '!"']
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(characters)
    writer.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (config.vocab_size - 2))
    writer.add_token_merges(['! "'])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    for name, weight in renamed(model):
        writer.add_tensor(name, weight.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def renamed(model: Any) -> list[tuple[str, Tensor]]:
    """The model's weights under GGUF's names."""
    found: list[tuple[str, Tensor]] = []
    for name, weight in model.state_dict().items():
        weight = weight.detach()
        if name.startswith("model.layers."):
            _, _, number, rest = name.split(".", 3)
            part = rest.removesuffix(".weight")
            if part.endswith(("q_proj", "k_proj")):
                config = model.config
                heads = config.num_attention_heads if part.endswith("q_proj") else config.num_key_value_heads
                weight = interleaved(weight, heads)
            found.append((f"blk.{number}.{NAMES[part]}.weight", weight))
        elif name != "lm_head.weight":
            whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
            found.append((whole[name], weight))
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    write_gguf(build("llama"), folder / "tiny.gguf")
    return folder


def test_a_gguf_becomes_an_ordinary_folder_with_the_same_weights(source: Path, tmp_path: Path) -> None:
    reference = ReferenceConfig(model=str(source), gguf_file="tiny.gguf")
    folder = model_sources.resolve(reference, tmp_path / "cache")
    model, tokenizer = checkpoint.load_weights(folder, "float32"), checkpoint.load_tokenizer(folder)
    ids = torch.tensor([[5, 9, 12, 40, 7]])
    with torch.inference_mode():
        torch.testing.assert_close(model(ids).logits, build("llama")(ids).logits, atol=1e-5, rtol=1e-5)
    assert "quantization_config" not in model.config.to_dict()
    assert checkpoint.stop_ids(folder) == (1,)
    assert tokenizer.eos_token_id == 1
    assert TransformersEngine(folder, dtype="float32").policy_id == checkpoint.policy_id(folder)


def test_a_gguf_is_converted_once_and_leaves_nothing_else_behind(source: Path, tmp_path: Path) -> None:
    reference = ReferenceConfig(model=str(source), gguf_file="tiny.gguf")
    cache = tmp_path / "cache"
    folder = model_sources.resolve(reference, cache)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert model_sources.resolve(reference, cache) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert set(cache.iterdir()) == {folder, cache / f".{folder.name}-positions"}


@pytest.mark.parametrize(
    ("scaled", "named"),
    [({"scaling": "linear"}, "rope.scaling.type linear"), ({"factors": True}, "rope_freqs.weight")],
)
def test_scaled_positions_are_refused_and_not_dropped(scaled: dict[str, Any], named: str, tmp_path: Path) -> None:
    write_gguf(build("llama"), tmp_path / "tiny.gguf", **scaled)
    with refused("ScaledRotary", named):
        model_sources.resolve(ReferenceConfig(model=str(tmp_path), gguf_file="tiny.gguf"), tmp_path / "cache")
    write_gguf(build("llama"), tmp_path / "plain.gguf", scaling="none")
    assert model_sources.resolve(
        ReferenceConfig(model=str(tmp_path), gguf_file="plain.gguf"), tmp_path / "cache"
    ).is_dir()


def test_scaled_positions_are_refused_also_where_an_earlier_version_has_converted_the_file(tmp_path: Path) -> None:
    file, cache = tmp_path / "tiny.gguf", tmp_path / "cache"
    write_gguf(build("llama"), file, scaling="linear")
    earlier = cache / f"tiny-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    earlier.mkdir(parents=True)
    (earlier / "config.json").write_text("{}")
    with refused("ScaledRotary"):
        model_sources.resolve(ReferenceConfig(model=str(tmp_path), gguf_file="tiny.gguf"), cache)
