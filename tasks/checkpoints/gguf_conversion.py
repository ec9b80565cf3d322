"""From a GGUF file to an ordinary checkpoint folder: dequantized weights, plain config, same tokenizer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tasks.checkpoints.checkpoint import make_once
from tasks.checkpoints.errors import MissingModel, UnsupportedArchitecture


def converted(folder: Path, gguf_file: str, cache: Path) -> Path:
    """The converted checkpoint of `folder / gguf_file` inside `cache`, made on first use and then reused.

    Weights are kept in float32. Raises MissingModel when the file is not there, and UnsupportedArchitecture for one
    whose positions are scaled.
    """
    source = folder / gguf_file
    if not source.is_file():
        raise MissingModel(f"reference.gguf_file {gguf_file!r} is not in {folder}", code="NoSuchGguf")
    with source.open("rb") as stream:
        fingerprint = hashlib.file_digest(stream, "sha256").hexdigest()[:12]
    made = cache / f"{source.stem}-{fingerprint}"
    looked_at = cache / f".{made.name}-positions"  # a look takes seconds: the header holds all words of the tokenizer
    if not looked_at.exists():
        _refuse_scaled_positions(source)  # also where an earlier version has converted it
    make_once(made, lambda building: _convert(folder, gguf_file, building))
    looked_at.touch()
    return made


def _convert(folder: Path, gguf_file: str, target: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=gguf_file, dtype=torch.float32, local_files_only=True
    )
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)
    model_type = settings.pop("model_type")
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, gguf_file=gguf_file, local_files_only=True)
    config = AutoConfig.for_model(model_type, **settings)
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    fresh: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config.eos_token_id = tokenizer.eos_token_id
    fresh.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _refuse_scaled_positions(source: Path) -> None:
    """Raise UnsupportedArchitecture where the file scales rotary positions: reading it would drop that in silence."""
    from gguf import GGUFReader

    reader = GGUFReader(source)
    found = [tensor.name for tensor in reader.tensors if tensor.name.startswith("rope_")]
    scaled = (field for name, field in reader.fields.items() if name.endswith(".rope.scaling.type"))
    found += [f"rope.scaling.type {kind}" for field in scaled if (kind := str(field.contents())) != "none"]
    if found:
        raise UnsupportedArchitecture(
            f"{source} scales its rotary positions ({', '.join(found)}), which transformers does not read from GGUF "
            f"files, so that every probability would be another: use the model's own checkpoint in its place",
            code="ScaledRotary",
        )
