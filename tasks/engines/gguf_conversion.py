"""From a GGUF file to an ordinary checkpoint folder: dequantized weights, plain config, same tokenizer."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tasks.engines.protocol import MissingModel


def converted(folder: Path, gguf_file: str, cache: Path) -> Path:
    """The converted checkpoint of `folder / gguf_file` inside `cache`, made on first use and then reused.

    Weights are kept in float32. Raises MissingModel when the file is not there.
    """
    source = folder / gguf_file
    if not source.is_file():
        raise MissingModel(f"reference.gguf_file {gguf_file!r} is not in {folder}")
    with source.open("rb") as stream:
        fingerprint = hashlib.file_digest(stream, "sha256").hexdigest()[:12]
    target = cache / f"{source.stem}-{fingerprint}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=cache))
    try:
        _convert(folder, gguf_file, building)
        building.chmod(0o755)
        _publish(building, target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


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


def _publish(building: Path, target: Path) -> None:
    """Rename into place; another process may have been first, with the same content."""
    try:
        os.rename(building, target)
    except OSError:
        if not target.is_dir():
            raise
