"""Linear layers whose weights are kept in the layout that oneDNN multiplies with.

A decoding step multiplies a thin matrix with every weight; without this the library lays the weights out anew in each
step. A row's result is the same bits however many rows there are.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

_PACKED_FOR = 128
"""Rows the layout is made for; it serves any number."""
LEAST_WEIGHTS = 1 << 16
"""A smaller layer's product takes less than oneDNN's call."""


def pack(model: nn.Module) -> None:
    """Let the linear layers of `model` multiply with packed copies of their weights, where that is possible.

    It is for float32 on a CPU, and for bfloat16 on a CPU that multiplies in it; it takes the weights' memory once more.
    Call it again after weights have changed.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and _can_be_packed(module.weight):
            module.__dict__["forward"] = _Packed(module)


@contextmanager
def unpacked(model: nn.Module) -> Generator[None]:
    """Inside, the layers compute with their own weights again."""
    taken = [(module, module.__dict__.pop("forward")) for module in model.modules() if _is_packed(module)]
    try:
        yield
    finally:
        for module, forward in taken:
            module.__dict__["forward"] = forward


class _Packed:
    def __init__(self, module: nn.Linear) -> None:
        self._weight, self._bias = module.weight.detach(), module.bias
        self._packed: Any = torch.ops.mkldnn._reorder_linear_weight(self._weight, _PACKED_FOR)

    def __call__(self, rows: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return linear(rows, self._weight, self._bias)
        if rows.numel() == rows.shape[-1]:  # a single row is summed in another order
            twice = rows.reshape(1, -1).expand(2, -1)
            return self._product(twice)[0].view(*rows.shape[:-1], -1)
        return self._product(rows)

    def _product(self, rows: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")


def _is_packed(module: nn.Module) -> bool:
    return isinstance(module.__dict__.get("forward"), _Packed)


def _can_be_packed(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32 and weight.numel() >= LEAST_WEIGHTS
