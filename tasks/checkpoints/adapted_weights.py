"""A base model's weights with an adapter's change in them: W + scale * B A, layer by layer, summed in float32.

Merged weights cost nothing while sampling. Each layer's own weights are kept when it is first changed, so that the
next adapter starts from them and no rounding adds up. In bfloat16 the sum is rounded at random, up or down with
chances that keep its mean: rounded to the nearest, a change of less than half the distance to the next number is
lost, which is most of a young adapter (docs/decisions/0019-small-changes-in-bfloat16.md).
Legend: R rank, I inputs, O outputs of a layer.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.checkpoints import adapter as adapters
from tasks.checkpoints.errors import MissingModel, UnsupportedArchitecture

_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
_PREFIX = "base_model.model."
"""What peft puts before the name of a layer."""
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
    "use_qalora": (False, None),
    "alora_invocation_tokens": (None,),
    "layer_replication": (None,),
}
"""Settings of peft, with the values under which an adapter is W + scale * B A. Other initialisations (PiSSA, OLoRA,
CorDA, LoftQ, LoRA-GA) change W as well, in the base that was trained on and not in the adapter."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A low-rank change of some layers; without any, no change."""

    scale: float = 0.0
    factors: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict[str, tuple[Tensor, Tensor]])
    """A (R, I) and B (O, R) by the layer's name in the model."""


def read(folder: Path) -> Adapter:
    """The adapter in `folder`. Raises MissingModel, or UnsupportedArchitecture for one that is more than B A."""
    from safetensors.torch import load_file

    settings = adapters.settings(folder)
    for name, plain in _PLAIN.items():
        if name in settings and settings[name] not in plain:
            raise UnsupportedArchitecture(
                f"{folder} is an adapter with {name} = {settings[name]!r}, which cannot be exchanged while sampling; "
                f"merge it into its base with peft (`merge_and_unload`), and use that folder",
                code="NotExchangeable",
            )
    if not (folder / adapters.WEIGHTS).is_file():
        raise MissingModel(
            f"{folder} has no {adapters.WEIGHTS}; save the adapter with save_pretrained first", code="NoWeights"
        )
    tensors = load_file(folder / adapters.WEIGHTS)
    names = [name.removesuffix(_DOWN) for name in tensors if name.endswith(_DOWN)]
    unknown = sorted(tensors.keys() - {name + part for name in names for part in (_DOWN, _UP)})
    if unknown:
        raise UnsupportedArchitecture(
            f"{folder} changes {unknown[0]}, which is no low-rank change of a linear layer", code="NotLinear"
        )
    rank, alpha = int(settings["r"]), float(settings["lora_alpha"])
    scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
    pairs = {name.removeprefix(_PREFIX): (tensors[name + _DOWN], tensors[name + _UP]) for name in names}
    return Adapter(scale, pairs)


class AdaptedWeights:
    """A model whose adapter can be exchanged for another one of the same base."""

    def __init__(self, model: Any) -> None:
        """`model` has the weights of the base."""
        self._model = model
        self._own: dict[str, Tensor] = {}
        self._present = Adapter()

    @torch.no_grad()
    def put(self, adapter: Adapter) -> Adapter:
        """Change the base by `adapter` instead of the present one, which is returned.

        Raises UnsupportedArchitecture, and then nothing is changed.
        """
        layers = {name: _layer(self._model, name, *factors) for name, factors in adapter.factors.items()}
        for name in self._own.keys() - layers.keys():
            self._model.get_submodule(name).weight.copy_(self._own[name])
        for name, layer in layers.items():
            own = self._own.setdefault(name, layer.weight.detach().clone())
            layer.weight.copy_(_changed(layer, own, adapter, name))
        present, self._present = self._present, adapter
        return present


@torch.no_grad()
def merge(model: Any, adapter: Adapter) -> None:
    """Change the model's weights by `adapter`, for good.

    Raises UnsupportedArchitecture, and then nothing is changed.
    """
    layers = {name: _layer(model, name, *factors) for name, factors in adapter.factors.items()}
    for name, layer in layers.items():
        layer.weight.copy_(_changed(layer, layer.weight, adapter, name))


def _changed(layer: Any, own: Tensor, adapter: Adapter, name: str) -> Tensor:
    """The layer's `own` weights changed by the adapter, in their dtype."""
    down_RI, up_OR = (factor.to(own.device).float() for factor in adapter.factors[name])
    change_OI = (up_OR @ down_RI) * adapter.scale
    changed = own.float() + (change_OI.T if _transposed(layer) else change_OI)
    if own.dtype != torch.bfloat16:
        return changed.to(own.dtype)
    return rounded_at_random(changed, seed=zlib.crc32(name.encode()))


def rounded_at_random(values: Tensor, seed: int) -> Tensor:
    """The float32 `values` in bfloat16: of a value's two neighbours the nearer one more often, so that means are kept.

    What bfloat16 holds stays as it is. The same seed and shape draw the same on every CPU, whatever the values, so
    that values that grow are never rounded further down than before.
    """
    generator = torch.Generator(values.device).manual_seed(seed)
    draws = torch.randint(1 << 16, values.shape, generator=generator, dtype=torch.int32, device=values.device)
    bits = values.contiguous().view(torch.int32)  # its upper half is the bfloat16 number below in magnitude
    return draws.add_(bits).bitwise_and_(-(1 << 16)).view(torch.float32).to(torch.bfloat16)


def _layer(model: Any, name: str, down_RI: Tensor, up_OR: Tensor) -> Any:
    """The layer of that name, if the change fits it."""
    try:
        layer = model.get_submodule(name)
        shape = tuple(layer.weight.shape)
    except AttributeError as error:
        raise UnsupportedArchitecture(
            f"the adapter changes {name}, which {type(model).__name__} has not", code="UnknownLayer"
        ) from error
    wanted = (up_OR.shape[0], down_RI.shape[1])
    if shape != (wanted[::-1] if _transposed(layer) else wanted):
        raise UnsupportedArchitecture(
            f"the adapter's change of {name} is for weights of {wanted}, not {shape}", code="WrongShape"
        )
    return layer


def _transposed(layer: Any) -> bool:
    """Whether the layer keeps its weights as (I, O): GPT-2's kind."""
    return type(layer).__name__ == "Conv1D"
