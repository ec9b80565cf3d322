"""Published weights: complete checkpoint folders, each with its policy id, and a pointer to the newest."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.engines.checkpoint import record_policy_id
from tasks.trainer import atomic

if TYPE_CHECKING:
    from torch import Tensor

PREFIX = "step-"
LATEST = "LATEST"
OWN_FILE = "published.json"
KEPT = 3
"""Newest folders kept for workers that are still loading one."""
_WEIGHTS = (".safetensors", ".bin", ".gguf", ".pt", ".h5", ".msgpack")
_OWN = {"config.json", "policy.json", "model.safetensors.index.json", "pytorch_model.bin.index.json", OWN_FILE}


@dataclass(frozen=True, slots=True)
class Published:
    """A set of weights on disk."""

    step: int
    policy_id: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Canary:
    """A fixed sequence with the trainer's log-probabilities (nats), for whoever loads the weights to check itself."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


def publish(
    root: Path, step: int, model: Any, state: dict[str, Tensor], *, like: Path, canary: Canary | None = None
) -> Published:
    """Write the weights of `step` as an ordinary checkpoint folder and point LATEST at it.

    Tokenizer, chat template and generation settings are copied from the folder `like`.
    """
    target = root / f"{PREFIX}{step:08d}"
    with atomic.new_folder(target) as building:
        model.save_pretrained(building, state_dict=state)
        for path in sorted(like.iterdir()):
            if path.is_file() and path.suffix not in _WEIGHTS and path.name not in _OWN:
                shutil.copyfile(path, building / path.name)
        identity = record_policy_id(building)
        content = {"step": step, "policy_id": identity, "canary": None if canary is None else asdict(canary)}
        (building / OWN_FILE).write_text(json.dumps(content), encoding="utf-8")
    atomic.write_text(root / LATEST, target.name)
    return Published(step, identity, target)


def read(folder: Path) -> Published:
    """The published weights in `folder`."""
    content = json.loads((folder / OWN_FILE).read_text(encoding="utf-8"))
    return Published(int(content["step"]), str(content["policy_id"]), folder)


def read_canary(folder: Path) -> Canary | None:
    """The canary published with the weights in `folder`, if any."""
    found = json.loads((folder / OWN_FILE).read_text(encoding="utf-8"))["canary"]
    return (
        None if found is None else Canary(*(tuple(found[name]) for name in ("prompt_ids", "response_ids", "logprobs")))
    )


def latest(root: Path) -> Published | None:
    """The newest published weights; None when there are none yet."""
    pointer = root / LATEST
    return read(root / pointer.read_text(encoding="utf-8").strip()) if pointer.is_file() else None


def prune(root: Path, keep_steps: set[int]) -> list[Path]:
    """Delete all but the newest folders and those of `keep_steps`; returns what was deleted."""
    folders = atomic.complete_folders(root, PREFIX)
    doomed = [folder for folder in folders[:-KEPT] if int(folder.name.removeprefix(PREFIX)) not in keep_steps]
    for folder in doomed:
        shutil.rmtree(folder)
    return doomed
