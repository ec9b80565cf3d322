"""Low-rank adapters inside an ordinary model (peft): only they are trained; without them the model is pi_0.

The model keeps its class and its pass; the linear layers named in the recipe get an adapter each. An adapter starts at
exactly 0. Published weights have the adapters merged in, so that workers and evaluation need to know nothing of them;
the adapters alone lie beside them, as peft loads them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from tasks.config import AdapterConfig
from tasks.scoring.errors import AdaptersImpossible

ADAPTER = "default"
FOLDER = "adapter"
"""Beside published weights: the adapters alone."""
_PREFIX = "base_model.model."
"""What peft puts before the name of a layer."""
BASE = ".base_layer."


def add_adapters(causal_lm: Any, config: AdapterConfig) -> None:
    """Put the recipe's adapters into the model; everything else is frozen. Raises AdaptersImpossible."""
    try:
        import peft
    except ImportError as error:
        raise AdaptersImpossible(
            f"train.lora needs the package peft ({error}); `pip install peft`, or take train.lora out of the recipe"
        ) from error
    settings = _settings(peft, config)
    try:
        peft.inject_adapter_in_model(settings, causal_lm)
    except ValueError as error:
        raise AdaptersImpossible(f"train.lora.modules {list(config.modules)} do not fit this model: {error}") from error


def adapted(module: nn.Module) -> list[Any]:
    """The layers with an adapter; none in an ordinary model."""
    return [layer for layer in module.modules() if is_adapted(layer)]


def is_adapted(layer: nn.Module) -> TypeGuard[Any]:
    """Whether the layer has an adapter."""
    return hasattr(layer, "lora_A") and hasattr(layer, "get_delta_weight")


@contextmanager
def disabled(layers: Sequence[Any]) -> Generator[None]:
    """The base model alone, until the block ends."""
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@torch.no_grad()
def merged_state(causal_lm: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """`state` of a model with adapters as that of the ordinary model that computes the same: W + scale * B A."""
    plain = {name.replace(BASE, "."): value for name, value in state.items() if ".lora_" not in name}
    for name, layer in causal_lm.named_modules():
        if is_adapted(layer):
            weight = plain[f"{name}.weight"]
            delta = layer.get_delta_weight(ADAPTER).float().to(weight.device)
            plain[f"{name}.weight"] = (weight.float() + delta).to(weight.dtype)
    return plain


def save_adapter(state: dict[str, Tensor], config: AdapterConfig, folder: Path) -> None:
    """Write the adapters of a model's `state` into `folder`: `PeftModel.from_pretrained(base, folder)` loads them."""
    import peft
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    own = {
        _PREFIX + name.replace(f".{ADAPTER}.", "."): value.detach().cpu().contiguous()
        for name, value in state.items()
        if ".lora_" in name
    }
    save_file(own, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    _settings(peft, config).save_pretrained(str(folder))


def _settings(peft: Any, config: AdapterConfig) -> Any:
    modules = config.modules[0] if config.modules == ("all-linear",) else list(config.modules)
    return peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=modules, lora_dropout=0.0, task_type="CAUSAL_LM"
    )
