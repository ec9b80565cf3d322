"""What is wrong with a checkpoint folder, found without loading its weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks.engines import checkpoint
from tasks.engines.protocol import MissingModel

HEADER_LENGTH = 8
"""Bytes before a safetensors header that say how long it is."""
LONGEST_HEADER = 100 << 20
GGUF_MAGIC = b"GGUF"


def faults(folder: Path) -> Iterator[str]:
    """Everything that would keep the checkpoint in `folder` from being loaded and sampled, in words."""
    try:
        checkpoint.require_checkpoint(folder)
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
        begins = stream.read(HEADER_LENGTH)
        length = struct.unpack("<Q", begins)[0] if len(begins) == HEADER_LENGTH else LONGEST_HEADER + 1
        if length > min(LONGEST_HEADER, size):
            return f"{path} is no safetensors file or was cut off in its header ({size:,} bytes); fetch it again"
        try:
            header: dict[str, Any] = json.loads(stream.read(length))
            ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            return f"{path} has no readable safetensors header ({error}); fetch it again"
    wanted = HEADER_LENGTH + length + max(ends, default=0)
    if size != wanted:
        return f"{path} has {size:,} bytes and needs {wanted:,}: it was cut off or changed; fetch it again"
    return ""


def weight_bytes(folder: Path) -> int:
    """Size of the folder's weights."""
    return sum(path.stat().st_size for path in checkpoint.weight_files(folder))


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
