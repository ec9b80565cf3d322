"""Checkpoints on disk: ordinary Hugging Face folders, how to get one, and what identifies it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tasks.config import ReferenceConfig
from tasks.engines.protocol import MissingModel

POLICY_FILE = "policy.json"
_VOLATILE = {"_name_or_path", "transformers_version", "_attn_implementation", "use_cache"}
_TOKENIZER_FILES = ("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt"]


def load_model(folder: Path, dtype: str) -> tuple[Any, Any]:
    """The causal model of `folder` in `dtype`, in evaluation mode, and its tokenizer. Raises MissingModel."""
    return load_weights(folder, dtype), load_tokenizer(folder)


def load_weights(folder: Path, dtype: str) -> Any:
    """The causal model of `folder` in `dtype`, in evaluation mode (no dropout). Raises MissingModel."""
    import torch
    from transformers import AutoModelForCausalLM

    require_checkpoint(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
    return model.eval()


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of `folder`. Raises MissingModel."""
    from transformers import AutoTokenizer

    _tokenizer_files(folder)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def stop_ids(folder: Path) -> tuple[int, ...]:
    """Token ids that end a response: the generation config's, else the config's. Raises MissingModel."""
    for name in ("generation_config.json", "config.json"):
        path = folder / name
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
        if found is not None:
            return tuple(found) if isinstance(found, list) else (int(found),)
    raise MissingModel(f"{folder} names no end token: set eos_token_id in its config.json")


def require_checkpoint(folder: Path) -> None:
    """Raise MissingModel unless `folder` holds a config and safetensors weights."""
    if not folder.is_dir():
        raise MissingModel(f"no checkpoint folder {folder}; set reference.model to a folder or a hub name")
    if not (folder / "config.json").is_file():
        raise MissingModel(f"{folder} has no config.json: it is not a checkpoint folder (for a GGUF, set gguf_file)")
    if not weight_files(folder):
        raise MissingModel(f"{folder} has no *.safetensors weights; save the model with save_pretrained first")


def weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files in name order."""
    return sorted(folder.glob("*.safetensors"))


def policy_id(folder: Path) -> str:
    """Fingerprint of the folder's weights and config (16 hex digits), as recorded at publication or computed now."""
    recorded = folder / POLICY_FILE
    if recorded.is_file():
        return str(json.loads(recorded.read_text(encoding="utf-8"))["policy_id"])
    return compute_policy_id(folder)


def compute_policy_id(folder: Path) -> str:
    """sha256 over the safetensors content and the config without what does not change results. Raises MissingModel."""
    require_checkpoint(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in _VOLATILE}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for path in weight_files(folder):
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def record_policy_id(folder: Path) -> str:
    """Compute the folder's policy id and write it to `policy.json`, for readers of a published folder."""
    found = compute_policy_id(folder)
    (folder / POLICY_FILE).write_text(json.dumps({"policy_id": found}) + "\n", encoding="utf-8")
    return found


def tokenizer_hash(folder: Path) -> str:
    """Fingerprint of how text becomes ids (16 hex digits); the chat template is no part of it. Raises MissingModel."""
    digest = hashlib.sha256()
    for path in _tokenizer_files(folder):
        content = path.read_bytes()
        if path.name == "tokenizer.json":
            tree = json.loads(content)
            kept = {name: value for name, value in tree.items() if name not in ("truncation", "padding")}
            content = json.dumps(kept, sort_keys=True).encode()
        digest.update(path.name.encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def resolve(reference: ReferenceConfig, cache: Path) -> Path:
    """The reference policy as an ordinary checkpoint folder; a GGUF is converted into `cache`, once.

    Raises MissingModel for a model that is neither a folder nor in reach on the hub, and for "miniature", which the
    prepare stage trains.
    """
    if reference.model == "miniature":
        raise MissingModel("the miniature reference is trained by the prepare stage; run `spo run prepare` first")
    folder = Path(reference.model).expanduser()
    if not folder.is_dir():
        folder = _from_hub(reference)
    if reference.gguf_file is None:
        require_checkpoint(folder)
        return folder
    from tasks.engines.gguf_conversion import converted

    return converted(folder, reference.gguf_file, cache)


def _from_hub(reference: ReferenceConfig) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = [*_HUB_FILES, *([reference.gguf_file] if reference.gguf_file else [])]
    try:
        found = snapshot_download(reference.model, revision=reference.revision, allow_patterns=wanted)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise MissingModel(
            f"reference.model {reference.model!r} is no folder here and cannot be fetched from the hub "
            f"({type(error).__name__}); set it to a checkpoint folder, or fetch it once with network access: "
            f"`hf download {reference.model}`"
        ) from error
    return Path(found)


def _tokenizer_files(folder: Path) -> list[Path]:
    whole = folder / "tokenizer.json"
    files = [whole] if whole.is_file() else [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not files:
        raise MissingModel(f"{folder} has no tokenizer files; save the tokenizer beside the weights")
    return files
