"""The folder of the reference policy: found, fetched from the hub, converted, merged or tempered as a recipe asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.checkpoints import adapter, packaged_models
from tasks.checkpoints.checkpoint import (
    companions_hash,
    compute_policy_id,
    make_once,
    policy_id,
    record_policy_id,
    require_checkpoint,
    write_merged,
)
from tasks.checkpoints.errors import MissingModel
from tasks.checkpoints.gguf_conversion import converted
from tasks.checkpoints.tempered import tempered
from tasks.config import ReferenceConfig

HUB_PATIENCE_S = 5.0
"""Seconds the hub has for its answer whether it has a model."""
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]


def resolve(reference: ReferenceConfig, cache: Path) -> Path:
    """The reference policy as an ordinary checkpoint folder; what must be converted for it is, into `cache`, once.

    Raises MissingModel for a model that is neither a folder nor in reach on the hub nor installed, and for
    "miniature", which the prepare stage trains.
    """
    if reference.model == "miniature":
        raise MissingModel(
            "the miniature reference is trained by the stage `prepare`: `spo run tiny --stage prepare` makes it and "
            "says where it is",
            code="NotPrepared",
        )
    folder = _ordinary(_model_folder(reference, cache), cache, reference.dtype)
    if reference.temperature == 1:
        return folder
    return tempered(folder, compute_policy_id(folder), reference.temperature, cache)


def _model_folder(reference: ReferenceConfig, cache: Path) -> Path:
    """The model itself: converted, found, or fetched."""
    if reference.model in packaged_models.PACKAGED:
        file = packaged_models.located(reference.model)
        return converted(file.parent, file.name, cache)
    folder = Path(reference.model).expanduser()
    if not folder.is_dir():
        folder = _from_hub(reference)
    if reference.gguf_file is None:
        require_checkpoint(folder)
        return folder
    return converted(folder, reference.gguf_file, cache)


def _ordinary(folder: Path, cache: Path, dtype: str) -> Path:
    """The folder, or a copy of an adapter's base with the adapter merged in; it keeps the adapter's policy id.

    It is merged in the `dtype` that it will be read in, so that it has the weights that an engine has which merges the
    adapter (`adapted_weights`).
    """
    if not adapter.is_adapter(folder):
        return folder
    require_checkpoint(folder)
    identity = policy_id(folder)

    def write(unfinished: Path) -> None:
        write_merged(folder, dtype, unfinished)
        record_policy_id(unfinished, identity)

    return make_once(cache / f"merged-{dtype}-{identity}-{companions_hash(adapter.base_of(folder))}", write)


def require_reachable(reference: ReferenceConfig) -> None:
    """Raise MissingModel unless the hub's model is in the cache, or the hub, asked once, has it."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    transport: Any = HfHubHTTPError.__bases__[0]
    try:
        for name in filter(None, ("config.json", reference.gguf_file)):
            if isinstance(try_to_load_from_cache(reference.model, name, revision=reference.revision), str):
                return
        HfApi().model_info(reference.model, revision=reference.revision, timeout=HUB_PATIENCE_S)
    except (HFValidationError, OSError, transport) as error:
        raise _unreachable(reference, error) from error


def _unreachable(reference: ReferenceConfig, error: Exception) -> MissingModel:
    return MissingModel(
        f"reference.model {reference.model!r} is no folder here and cannot be fetched from the hub "
        f"({type(error).__name__}); set it to a checkpoint folder, or fetch it once with network access: "
        f"`hf download {reference.model}`",
        code="Unreachable",
    )


def _from_hub(reference: ReferenceConfig) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    require_reachable(reference)
    wanted = [*_HUB_FILES, *([reference.gguf_file] if reference.gguf_file else [])]
    try:
        found = snapshot_download(reference.model, revision=reference.revision, allow_patterns=wanted)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise _unreachable(reference, error) from error
    return Path(found)
