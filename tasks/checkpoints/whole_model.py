"""A model loaded whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.checkpoints.errors import MissingModel


def whole_model(folder: Path, dtype: Any) -> Any:
    """The causal model of a folder that is no adapter. Raises MissingModel where weights of it are not there.

    Settings of generation that contradict each other are left out: transformers reads such, and would not save them.
    """
    from transformers import AutoModelForCausalLM, GenerationConfig

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, local_files_only=True, output_loading_info=True
    )
    model, info = loaded
    if missing := sorted(info["missing_keys"]):
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise MissingModel(
            f"{folder} lacks weights of {type(model).__name__} ({named}), which would be random numbers: it is "
            f"damaged, or no model that writes text",
            code="WeightsMissing",
        )
    settings = model.generation_config
    try:
        settings.validate(strict=True)
    except ValueError:
        kept = {name: getattr(settings, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        model.generation_config = GenerationConfig(**kept)
    return model
