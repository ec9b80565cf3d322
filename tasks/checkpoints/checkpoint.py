"""Checkpoints on disk: ordinary Hugging Face folders and adapters of them, how to get one, and what identifies it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from tasks.checkpoints import adapter, packaged_models
from tasks.checkpoints.errors import MissingModel
from tasks.checkpoints.whole_model import whole_model
from tasks.config import ReferenceConfig

POLICY_FILE = "policy.json"
_VOLATILE = {"_name_or_path", "transformers_version", "_attn_implementation", "use_cache"}
_TOKENIZER_FILES = ("tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "added_tokens.json")
FileStates = dict[str, tuple[int, int]]
"""Size (bytes) and time of the last change (ns) of files, by path."""
_SETTINGS = (".json", ".jinja", ".model", ".txt")
"""Kinds of the files that say what a model reads and where it ends."""
_WEIGHT_KINDS = (".safetensors", ".bin", ".gguf", ".pt", ".h5", ".msgpack")
PUBLISHED_FILE = "published.json"
"""What the trainer says of weights that it published, beside them."""
_OWN = {"config.json", POLICY_FILE, PUBLISHED_FILE, "model.safetensors.index.json", "pytorch_model.bin.index.json"}


def load_weights(folder: Path, dtype: str) -> Any:
    """The causal model of `folder` in `dtype`, in evaluation mode (no dropout); an adapter is merged into its base.

    `dtype` may be "auto": the folder's own. Raises MissingModel and UnsupportedArchitecture.
    """
    import torch

    require_checkpoint(folder)
    base = adapter.base_of(folder)
    model = whole_model(base, dtype if dtype == "auto" else getattr(torch, dtype))
    if base != folder:
        from tasks.checkpoints import adapted_weights

        _require_same_base(folder, base)
        adapted_weights.merge(model, adapted_weights.read(folder))
    return model.eval()


def _require_same_base(folder: Path, base: Path) -> None:
    require_policy(base, base_id(folder))


def require_policy(base: Path, expected: str) -> None:
    """Raise MissingModel where an adapter's base folder has become another policy than the adapter belongs to."""
    if not is_policy(base, expected):
        raise MissingModel(
            f"{base} is policy {policy_id(base)}, but the adapter belongs to policy {expected}; put that model back",
            code="OtherBase",
        )


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of `folder`, an adapter's being its base's. Raises MissingModel."""
    from transformers import AutoTokenizer

    base = adapter.base_of(folder)
    _tokenizer_files(base)
    return AutoTokenizer.from_pretrained(base, local_files_only=True)


def stop_ids(folder: Path) -> tuple[int, ...]:
    """Token ids that end a response: the generation config's, else the config's. Raises MissingModel."""
    folder = adapter.base_of(folder)
    found = _end_tokens(folder / "generation_config.json") or _end_tokens(folder / "config.json")
    if not found:
        raise MissingModel(f"{folder} names no end token: set eos_token_id in its config.json", code="NoEndToken")
    return found


def _end_tokens(path: Path) -> tuple[int, ...]:
    """The end tokens that a file names; empty where it names none or is not there."""
    found: Any = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id") if path.is_file() else None
    if found is None:
        return ()
    return tuple(cast("list[int]", found)) if isinstance(found, list) else (int(found),)


def require_checkpoint(folder: Path) -> None:
    """Raise MissingModel unless `folder` holds a config and safetensors weights, or an adapter of such a folder."""
    if not folder.is_dir():
        raise MissingModel(f"no checkpoint folder {folder}; set reference.model to a folder or a hub name")
    if adapter.is_adapter(folder):
        if not (folder / adapter.WEIGHTS).is_file():
            raise MissingModel(f"{folder} has no {adapter.WEIGHTS}; save the adapter anew", code="NoWeights")
        folder = adapter.base_of(folder)
    if not (folder / "config.json").is_file():
        raise MissingModel(f"{folder} has no config.json (for a GGUF, set gguf_file)", code="NoConfig")
    if not weight_files(folder):
        raise MissingModel(f"{folder} has no *.safetensors weights; save the model anew", code="NoWeights")


def make_once(folder: Path, write: Callable[[Path], None]) -> Path:
    """The checkpoint `folder`, which `write` fills unless it is there.

    It appears complete or not at all. Two processes may make it at once, of the same content: the first to finish wins.
    """
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        write(unfinished)
        share(unfinished)
        unfinished.chmod(0o755)
        os.rename(unfinished, folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def is_complete(folder: Path) -> bool:
    """Whether a model or an adapter is in `folder`, at a glance."""
    return (folder / "config.json").is_file() or adapter.is_adapter(folder)


def weight_files(folder: Path) -> list[Path]:
    """The folder's safetensors files in name order."""
    return sorted(folder.glob("*.safetensors"))


def share(folder: Path) -> None:
    """Let read the weights who may read their configuration: safetensors writes them for their owner alone."""
    for path in weight_files(folder):
        shutil.copymode(min(folder.glob("*config.json")), path)


def policy_id(folder: Path) -> str:
    """Fingerprint of the folder's weights and config (16 hex digits), as recorded at publication or computed now.

    What was recorded is not believed where weights or config were written later.
    """
    recorded = _recorded(folder)
    return compute_policy_id(folder) if recorded is None else str(recorded["policy_id"])


def _recorded(folder: Path) -> dict[str, Any] | None:
    """What `policy.json` says, while it is of the weights beside it; an id that was given to copied weights stays."""
    path = folder / POLICY_FILE
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    files = [*weight_files(folder), folder / "config.json", folder / adapter.CONFIG]
    newest = max((file.stat().st_mtime_ns for file in files if file.is_file()), default=0)
    return found if found.get("given") or newest <= path.stat().st_mtime_ns else None


def base_id(folder: Path) -> str:
    """Policy id of the weights that are loaded first: of an adapter's base, as recorded with it or computed now."""
    if not adapter.is_adapter(folder):
        return policy_id(folder)
    recorded = _recorded(folder)
    return policy_id(adapter.base_of(folder)) if recorded is None else str(recorded["base"])


def compute_policy_id(folder: Path) -> str:
    """sha256 over the safetensors content and the config without what does not change results. Raises MissingModel.

    End tokens that the generation config has in place of the config's are other results, and count.
    """
    return computed_ids(folder)[0]


def computed_ids(folder: Path) -> tuple[str, ...]:
    """The policy id that the folder's files give, and what it was before end tokens counted. Raises MissingModel."""
    require_checkpoint(folder)
    if adapter.is_adapter(folder):
        return (adapter.fingerprint(folder, base_id(folder)),)
    digest = _digest(folder)
    earlier = digest.hexdigest()[:16]
    ends = _other_ends(folder)
    if not ends:
        return (earlier,)
    digest.update(json.dumps(ends).encode())
    return (digest.hexdigest()[:16], earlier)


def is_policy(folder: Path, identity: str) -> bool:
    """Whether `identity` is the policy id of a folder, or was it before end tokens counted."""
    return policy_id(folder) == identity or (bool(_other_ends(folder)) and identity in computed_ids(folder))


def _other_ends(folder: Path) -> list[int]:
    """The end tokens, where the generation config names others than the config."""
    ends = set(_end_tokens(folder / "generation_config.json"))
    return sorted(ends) if ends and ends != set(_end_tokens(folder / "config.json")) else []


def _digest(folder: Path) -> Any:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in _VOLATILE}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for path in weight_files(folder):
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest


def record_policy_id(folder: Path, identity: str | None = None, *, base: str | None = None) -> str:
    """Write the folder's policy id to `policy.json`, for its readers: `identity`, or as computed now.

    `base` is the policy id of an adapter's base.
    """
    content: dict[str, Any] = {} if base is None else {"base": base}
    if identity is None:
        identity = compute_policy_id(folder) if base is None else adapter.fingerprint(folder, base)
    else:
        content["given"] = True
    content["policy_id"] = identity
    (folder / POLICY_FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")
    return identity


def tokenizer_hash(folder: Path) -> str:
    """Fingerprint of how text becomes ids (16 hex digits); the chat template is no part of it. Raises MissingModel."""
    digest = hashlib.sha256()
    for path in _tokenizer_files(adapter.base_of(folder)):
        content = path.read_bytes()
        if path.name == "tokenizer.json":
            tree = json.loads(content)
            kept = {name: value for name, value in tree.items() if name not in ("truncation", "padding")}
            content = json.dumps(kept, sort_keys=True).encode()
        digest.update(path.name.encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def companions_hash(folder: Path) -> str:
    """Fingerprint (8 hex digits) of what a copy of the folder takes over as it is: tokenizer, template, settings."""
    digest = hashlib.sha256()
    for path in _settings(folder):
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:8]


def _settings(folder: Path) -> list[Path]:
    return [path for path in companions(folder) if path.suffix in _SETTINGS] if folder.is_dir() else []


def companions(folder: Path) -> list[Path]:
    """The folder's files beside weights, config and what the project itself wrote: tokenizer, template, settings."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and path.suffix not in _WEIGHT_KINDS and path.name not in _OWN
    ]


def write_merged(folder: Path, dtype: str, target: Path) -> None:
    """The adapter in `folder` merged into its base, as an ordinary checkpoint in the folder `target`."""
    load_weights(folder, dtype).save_pretrained(target)
    share(target)
    for path in companions(adapter.base_of(folder)):
        shutil.copyfile(path, target / path.name)


def made_of(reference: ReferenceConfig, folder: Path) -> FileStates:
    """The files that the reference policy in `folder` is made of, as they are now.

    They are the recipe's own where it names a folder (an adapter's with those of its base), and else those in `folder`.
    """
    named = Path(reference.model).expanduser()
    own = reference.model != "miniature" and reference.model not in packaged_models.PACKAGED and named.is_dir()
    source = (named if own else folder).resolve()
    if own and reference.gguf_file is not None:
        return _states([source / reference.gguf_file])
    return _states(path for one in {source, adapter.base_of(source)} for path in _deciding(one))


def unchanged(states: FileStates) -> bool:
    """Whether these files are as they were, and nothing that decides what the model does has come beside them."""
    whole = {Path(name).parent for name in states if not name.endswith(".gguf")}
    converted = (Path(name) for name in states if name.endswith(".gguf"))
    return states == _states([*converted, *(path for folder in whole for path in _deciding(folder))])


def _states(files: Iterable[Path]) -> FileStates:
    found = {str(path): path.stat() for path in sorted(files) if path.is_file()}
    return {name: (state.st_size, state.st_mtime_ns) for name, state in found.items()}


def _deciding(folder: Path) -> list[Path]:
    """The files that say what a model computes, what it reads and where it ends."""
    return [*weight_files(folder), folder / "config.json", folder / POLICY_FILE, *_settings(folder)]


def _tokenizer_files(folder: Path) -> list[Path]:
    whole = folder / "tokenizer.json"
    files = [whole] if whole.is_file() else [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not files:
        raise MissingModel(
            f"{folder} has no tokenizer files; save the tokenizer beside the weights", code="NoTokenizer"
        )
    return files
