"""Linear layers whose weights are kept in the layout that Intel's matrix libraries work in.

A decoding step multiplies a thin matrix with every weight; without this the library lays the weights out anew in each
step. Results are the same bits as those of the plain layer, and a row's do not depend on how many rows there are.
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
MOST_ROWS = 256
"""Above this many rows the plain product is as fast."""


def pack(model: nn.Module) -> None:
    """Let the linear layers of `model` multiply with packed copies of their weights, where that is possible.

    It is for float32 on a CPU with Intel's library, and for bfloat16 on a CPU that multiplies in it; it takes the
    weights' memory once more. Call it again after weights have changed.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and (form := _packed_form(module.weight)) is not None:
            module.__dict__["forward"] = form(module)


@contextmanager
def unpacked(model: nn.Module) -> Generator[None]:
    """Inside, the layers compute with their own weights again."""
    taken = [(module, module.__dict__.pop("forward")) for module in model.modules() if _is_packed(module)]
    try:
        yield
    finally:
        for module, forward in taken:
            module.__dict__["forward"] = forward


class _Float32:
    def __init__(self, module: nn.Linear) -> None:
        self._weight, self._bias = module.weight.detach(), module.bias
        self._packed: Any = torch.ops.mkl._mkl_reorder_linear_weight(self._weight, _PACKED_FOR)

    def __call__(self, rows: Tensor) -> Tensor:
        count = rows.numel() // rows.shape[-1]
        if count > MOST_ROWS or torch.is_grad_enabled():
            return linear(rows, self._weight, self._bias)
        return torch.ops.mkl._mkl_linear(rows, self._packed, self._weight, self._bias, count)


class _Bfloat16:
    def __init__(self, module: nn.Linear) -> None:
        self._weight, self._bias = module.weight.detach(), module.bias
        self._packed: Any = torch.ops.mkldnn._reorder_linear_weight(self._weight, _PACKED_FOR)

    def __call__(self, rows: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return linear(rows, self._weight, self._bias)
        return torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")


def _is_packed(module: nn.Module) -> bool:
    return isinstance(module.__dict__.get("forward"), (_Float32, _Bfloat16))


def _packed_form(weight: Tensor) -> type[_Float32 | _Bfloat16] | None:
    """What the layer's forward pass becomes; None where there is no packed product for its weights."""
    if weight.device.type != "cpu":
        return None
    if weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return _Bfloat16
    return _Float32 if weight.dtype == torch.float32 and torch.backends.mkl.is_available() else None
