"""A model at a temperature as a model of its own: its logits divided by T, exactly.

The last layer before the output head is a norm whose weight multiplies every feature, so dividing that weight by T
divides all logits by T. What samples the new checkpoint at temperature 1 samples the old one at T.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tasks.checkpoints.checkpoint import POLICY_FILE, companions_hash, make_once
from tasks.checkpoints.errors import UnsupportedArchitecture
from tasks.checkpoints.whole_model import whole_model

TOLERANCE = 1e-3
"""Largest difference between a new logit and the old one divided by T, relative to the largest logit."""


def tempered(folder: Path, identity: str, temperature: float, cache: Path) -> Path:
    """The checkpoint of `folder` at `temperature`, inside `cache`, made on first use and then reused.

    `identity` tells the weights in `folder` from others; another tokenizer or template makes another copy. Raises
    UnsupportedArchitecture where the logits of the new checkpoint are not those of the old one divided by the
    temperature.
    """
    name = f"{identity}-at-{temperature:g}-{companions_hash(folder)}"
    return make_once(cache / name, lambda building: _write(folder, temperature, building))


def _write(folder: Path, temperature: float, target: Path) -> None:
    import torch

    model = whole_model(folder, torch.float32).eval()
    ids_1T = torch.arange(1, min(9, int(model.config.vocab_size)))[None]
    norm = getattr(getattr(model, "model", None), "norm", None)
    if norm is None or getattr(norm, "bias", None) is not None:
        raise UnsupportedArchitecture(
            f"reference.temperature: {type(model).__name__} ends with no norm that is only a weight; set it to 1",
            code="NoPlainNorm",
        )
    with torch.no_grad():
        before_1TV = model(ids_1T).logits
        norm.weight /= temperature
        after_1TV = model(ids_1T).logits
    difference = float((after_1TV * temperature - before_1TV).abs().max() / before_1TV.abs().max())
    if not difference < TOLERANCE:
        raise UnsupportedArchitecture(
            f"reference.temperature: scaling the last norm of {type(model).__name__} does not scale its logits "
            f"(difference {difference:.2g}); set it to 1",
            code="LogitsNotScaled",
        )
    shutil.copytree(folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors*", POLICY_FILE))
    model.save_pretrained(target)
