"""Weights that wait in main memory and are on the device only while their layer computes, without gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def offload(module: nn.Module, device: torch.device) -> None:
    """Keep every weight of `module` in main memory; bring it to `device` for the call of the layer that owns it.

    Whoever reads a weight without calling that layer finds it in main memory. Buffers move to `device` and stay.
    """
    for part in module.modules():
        own = list(part.parameters(recurse=False))
        if own:
            weights = _Weights(own, device)
            part.register_forward_pre_hook(weights.bring)
            part.register_forward_hook(weights.take_back, always_call=True)
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer.to(device))


class _Weights:
    """The weights of one layer."""

    def __init__(self, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        self._device = device
        self._waiting: list[tuple[nn.Parameter, Tensor]] = [(one, one.detach().cpu()) for one in parameters]
        self.take_back()

    def bring(self, *_: Any) -> None:
        for parameter, values in self._waiting:
            parameter.data = values.to(self._device, copy=True)

    def take_back(self, *_: Any) -> None:
        for parameter, values in self._waiting:
            parameter.data = values
