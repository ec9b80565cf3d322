"""What is wrong with a checkpoint folder, found without loading its weights."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tasks.engines import adapter, checkpoint
from tasks.engines.protocol import MissingModel

HEADER_LENGTH = 8
"""Bytes before a safetensors header that say how long it is."""
LONGEST_HEADER = 100 << 20
GGUF_MAGIC = b"GGUF"


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
    """Why a safetensors file cannot be whole; empty when header and size agree."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = _header_length(stream)
        if length > min(LONGEST_HEADER, size):
            return f"{path} is no safetensors file or was cut off in its header ({size:,} bytes); fetch it again"
        try:
            ends = [one["data_offsets"][1] for one in _tensors(stream, length).values()]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            return f"{path} has no readable safetensors header ({error}); fetch it again"
    wanted = HEADER_LENGTH + length + max(ends, default=0)
    if size != wanted:
        return f"{path} has {size:,} bytes and needs {wanted:,}: it was cut off or changed; fetch it again"
    return ""


def weight_bytes(folder: Path) -> int:
    """Size of the folder's weights, of an adapter those of its base."""
    return sum(path.stat().st_size for path in checkpoint.weight_files(adapter.base_of(folder)))


def parameter_count(folder: Path) -> int:
    """Numbers in the folder's weights, of an adapter those of its base."""
    return sum(math.prod(shape) for shape in _shapes(folder))


def adapter_bytes(folder: Path, rank: int) -> int:
    """Size of an adapter of that rank of every matrix in the folder's weights, in float32: at least what it takes."""
    return sum(4 * rank * sum(shape) for shape in _shapes(folder) if len(shape) == 2)


def _shapes(folder: Path) -> Iterator[list[int]]:
    for path in checkpoint.weight_files(adapter.base_of(folder)):
        with path.open("rb") as stream:
            yield from (one["shape"] for one in _tensors(stream, _header_length(stream)).values())


def layer_matrices(folder: Path) -> set[str]:
    """Names of the modules that are matrices inside numbered layers, such as q_proj: not embeddings, not the head."""
    found: set[str] = set()
    for path in checkpoint.weight_files(folder):
        with path.open("rb") as stream:
            for name, one in _tensors(stream, _header_length(stream)).items():
                if len(one["shape"]) == 2 and re.search(r"\.\d+\.", name):
                    found.add(name.removesuffix(".weight").rpartition(".")[2])
    return found


def _header_length(stream: BinaryIO) -> int:
    """Bytes of the header of a safetensors file, which begins where the stream is then; too many if it has none."""
    begins = stream.read(HEADER_LENGTH)
    return int(struct.unpack("<Q", begins)[0]) if len(begins) == HEADER_LENGTH else LONGEST_HEADER + 1


def _tensors(stream: BinaryIO, length: int) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(stream.read(length))
    return {name: one for name, one in header.items() if name != "__metadata__"}


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
