"""What is wrong with a checkpoint folder, found without loading its weights."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tasks.checkpoints import adapter, checkpoint
from tasks.checkpoints.errors import MissingModel

GGUF_MAGIC = b"GGUF"
CHANGED_LOGITS = ("final_logit_softcapping", "logits_scaling", "logit_scale")
"""Settings of models whose logits are not their head's product with the last hidden state."""


def faults(folder: Path) -> Iterator[str]:
    """Everything that would keep the checkpoint in `folder` from being loaded and sampled, in words."""
    try:
        checkpoint.require_checkpoint(folder)
        folder = adapter.base_of(folder)
        _json(folder / "config.json")
        checkpoint.stop_ids(folder)
    except MissingModel as error:
        yield str(error)
        return
    for path in checkpoint.weight_files(folder):
        if fault := weights_fault(path):
            yield fault
    yield from _missing_parts(folder)


def gguf_fault(folder: Path, name: str) -> str:
    """Why `name` in `folder` is no GGUF file; empty when it is one."""
    path = folder / name
    if not path.is_file():
        return f"{folder} holds no {name}; set reference.gguf_file to a file in it"
    with path.open("rb") as stream:
        begins = stream.read(len(GGUF_MAGIC))
    return "" if begins == GGUF_MAGIC else f"{path} is no GGUF file: it begins with {begins!r}; fetch it again"


def weights_fault(path: Path) -> str:
    """Why a safetensors file is not whole; empty when header and size agree."""
    try:
        with safe_open(path, framework="numpy"):
            return ""
    except SafetensorError as error:
        return f"{path} is no whole safetensors file ({path.stat().st_size:,} bytes: {error}); fetch it again"


def weight_bytes(folder: Path) -> int:
    """Size of the folder's weights, of an adapter those of its base."""
    return sum(path.stat().st_size for path in checkpoint.weight_files(adapter.base_of(folder)))


def parameter_count(folder: Path) -> int:
    """Numbers in the folder's weights, of an adapter those of its base."""
    return sum(math.prod(shape) for _, shape in _shapes(folder))


def adapter_bytes(folder: Path, rank: int) -> int:
    """Size of an adapter of that rank of every matrix in the folder's weights, in float32: at least what it takes."""
    return sum(4 * rank * sum(shape) for _, shape in _shapes(folder) if len(shape) == 2)


def layer_matrices(folder: Path) -> set[str]:
    """Names of the modules that are matrices inside numbered layers, such as q_proj: not embeddings, not the head."""
    return {
        name.removesuffix(".weight").rpartition(".")[2]
        for name, shape in _shapes(folder)
        if len(shape) == 2 and re.search(r"\.\d+\.", name)
    }


def head_fault(folder: Path) -> str:
    """Why log-probabilities from a plain linear head, as the trainer takes them, would be wrong; empty: right."""
    if changed := changed_logits(_json(adapter.base_of(folder) / "config.json")):
        return f"config.json of {folder} has {changed}, which changes the logits"
    if any(name.endswith("lm_head.bias") for name, _ in _shapes(folder)):
        return f"the output head of {folder} has a bias"
    return ""


def changed_logits(settings: Mapping[str, Any]) -> str:
    """The setting of a model, `name = value`, that makes its logits more than its head's product; empty: none does."""
    return next((f"{name} = {settings[name]}" for name in CHANGED_LOGITS if settings.get(name) not in (None, 1)), "")


def _shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Name and shape of every weight of the folder, of an adapter those of its base; tied weights come once."""
    for path in checkpoint.weight_files(adapter.base_of(folder)):
        with safe_open(path, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118  (it cannot be iterated over itself)
                yield name, list(tensors.get_slice(name).get_shape())


def _missing_parts(folder: Path) -> Iterator[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            named = set(_json(index).get("weight_map", {}).values())
        except MissingModel as error:
            yield str(error)
            return
        for name in sorted(named - {path.name for path in checkpoint.weight_files(folder)}):
            yield f"{folder} lacks {name}, which {index.name} names; fetch it"


def _json(path: Path) -> dict[str, Any]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MissingModel(f"{path} is not valid JSON ({error}); fetch it again") from error
    if not isinstance(found, dict):
        raise MissingModel(f"{path} is no JSON object; fetch it again")
    return found
