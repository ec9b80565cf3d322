"""Adapters on disk: folders as peft writes them, whose policy is a base model and a low-rank change of its layers.

A folder with adapter_config.json and without config.json is an adapter; base_model_name_or_path names its base, an
ordinary checkpoint folder. Nothing here loads weights (`adapted_weights` does).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

from tasks.checkpoints.errors import MissingModel

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
BASE_FIELD = "base_model_name_or_path"
_VOLATILE = {BASE_FIELD, "peft_version", "inference_mode", "revision", "auto_mapping"}
"""What does not change results; the base counts by its content."""


def is_adapter(folder: Path) -> bool:
    """Whether the folder is an adapter and not a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def settings(folder: Path) -> dict[str, Any]:
    """The adapter's configuration. Raises MissingModel."""
    try:
        found: Any = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise MissingModel(f"{folder / CONFIG} is not valid JSON ({error}); fetch it again") from error
    return cast("dict[str, Any]", found)


def base_of(folder: Path) -> Path:
    """The folder whose weights are loaded: the adapter's base; `folder` itself where it is no adapter.

    Raises MissingModel where the base is not there.
    """
    if not is_adapter(folder):
        return folder
    named = str(settings(folder).get(BASE_FIELD) or "")
    base = Path(named).expanduser()
    if not named or not (base / "config.json").is_file():
        raise MissingModel(
            f"{folder} is an adapter of {named or 'a model that it does not name'}, which is no checkpoint folder "
            f"here; set {BASE_FIELD} in its {CONFIG} to the folder of that model",
            code="BaseMissing",
        )
    return base


def fingerprint(folder: Path, base_id: str) -> str:
    """sha256 over base, settings and weights (16 hex digits): the policy id of an adapter."""
    kept = {name: _ordered(value) for name, value in settings(folder).items() if name not in _VOLATILE}
    digest = hashlib.sha256(json.dumps([base_id, kept], sort_keys=True).encode())
    with (folder / WEIGHTS).open("rb") as stream:
        digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def _ordered(value: Any) -> Any:
    """Lists of names are sets to peft, which writes them in any order."""
    return sorted(cast("list[Any]", value), key=str) if isinstance(value, list) else value
