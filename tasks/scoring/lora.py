"""Low-rank adapters inside an ordinary model (peft): only they are trained; without them the model is pi_0.

The model keeps its class and its pass; the linear layers named in the recipe get an adapter each. An adapter starts at
exactly 0. The adapters alone are published, as peft writes them; whoever samples merges them into the base that it
holds (tasks/checkpoints/adapted_weights.py).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn

from tasks.checkpoints.adapter import WEIGHTS
from tasks.config import AdapterConfig
from tasks.scoring.errors import AdaptersImpossible

ADAPTER = "default"
_PREFIX = "base_model.model."
"""What peft puts before the name of a layer."""


def add_adapters(causal_lm: Any, config: AdapterConfig) -> None:
    """Put the recipe's adapters into the model; everything else is frozen. Raises AdaptersImpossible."""
    try:
        import peft

        from tasks.scoring.lora_layer import round_once
    except ImportError as error:
        raise AdaptersImpossible(
            f"train.lora needs the package peft ({error}); `pip install peft`, or take train.lora out of the recipe",
            code="PeftMissing",
        ) from error
    settings = _settings(peft, config)
    try:
        peft.inject_adapter_in_model(settings, causal_lm)
    except ValueError as error:
        raise AdaptersImpossible(
            f"train.lora.modules {list(config.modules)} do not fit this model: {error}", code="UnknownLayer"
        ) from error
    _require_trainable(causal_lm)
    for layer in adapted(causal_lm):
        round_once(layer)


def _require_trainable(causal_lm: Any) -> None:
    """Raise AdaptersImpossible where an adapter would get no gradient, or could not be merged by who samples."""
    from transformers.pytorch_utils import Conv1D

    head = causal_lm.get_output_embeddings()
    for name, layer in causal_lm.named_modules():
        if not is_adapted(layer):
            continue
        if layer is head:
            raise AdaptersImpossible(
                f"train.lora.modules names {name!r}, the output head, whose adapter would stay 0: leave it out",
                code="OutputHead",
            )
        if not isinstance(layer.get_base_layer(), (nn.Linear, Conv1D)):
            raise AdaptersImpossible(
                f"train.lora.modules names {name!r}, a {type(layer.get_base_layer()).__name__}: only linear layers can "
                f"have adapters; leave it out",
                code="NotLinear",
            )


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


def is_adapters(name: str) -> bool:
    """Whether a parameter of that name belongs to an adapter."""
    return ".lora_" in name


def save_adapter(
    causal_lm: nn.Module, state: Mapping[str, Tensor], config: AdapterConfig, base: Path, to: Path
) -> None:
    """Write the adapters of a model's `state` into the folder `to`; peft and this project's engines load them.

    `base` is the folder of the model without adapters.
    """
    import peft
    from safetensors.torch import save_file

    own = {
        _PREFIX + name.replace(f".{ADAPTER}.", "."): value.detach().cpu().contiguous()
        for name, value in state.items()
        if is_adapters(name)
    }
    save_file(own, to / WEIGHTS, metadata={"format": "pt"})
    named = {name.rpartition(".")[2]: layer for name, layer in causal_lm.named_modules() if is_adapted(layer)}
    settings = _settings(peft, config)
    settings.target_modules = sorted(named)
    settings.fan_in_fan_out = any(layer.fan_in_fan_out for layer in named.values())
    settings.base_model_name_or_path = str(base)
    settings.inference_mode = True
    settings.save_pretrained(str(to))


def _settings(peft: Any, config: AdapterConfig) -> Any:
    modules = config.modules[0] if config.modules == ("all-linear",) else list(config.modules)
    return peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=modules, lora_dropout=0.0, task_type="CAUSAL_LM"
    )
