"""A linear layer with its adapter, W x + scale * B A x, summed before it is rounded.

In bfloat16 peft rounds W x and then adds the adapter's part, so to a number that bfloat16 holds: a part of less than
half the distance to the next one is lost, not blurred, which is most of what a young adapter says
(docs/decisions/0019-small-changes-in-bfloat16.md). A matrix product that starts from the adapter's part adds both up
in float32 and rounds once; it costs no more.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear as PeftLinear
from torch import Tensor, nn

from tasks.scoring.logprobs import WIDE


class SummedLinear(nn.Linear):
    """W x + change, rounded once, and the bias."""

    def forward(self, input: Tensor, change: Tensor | None = None) -> Tensor:
        """Shapes (..., inputs) and (..., outputs) in, (..., outputs) out; without a change as with one of zeros."""
        rows = input.reshape(-1, self.in_features)
        if change is None:
            change = rows.new_zeros(len(rows), self.out_features)  # the same kernel, so the same bits
        summed = torch.addmm(change.reshape(-1, self.out_features), rows, self.weight.t())
        output = summed.view(*input.shape[:-1], self.out_features)
        bias: Any = self.bias
        return output if bias is None else output + bias


class SummedAdapter(PeftLinear):
    """Peft's layer with one adapter, which is not merged while it is trained."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """The base's layer alone where adapters are disabled."""
        if self.disable_adapters:
            return self.base_layer(x)
        (name,) = self.active_adapters
        return self.base_layer(x, self.lora_B[name](self.lora_A[name](x)) * self.scaling[name])


def round_once(layer: Any) -> None:
    """Let an adapted layer of peft's sum before it rounds, if its numbers are narrow and it is an ordinary one."""
    ordinary = type(layer) is PeftLinear and type(layer.base_layer) is nn.Linear
    if ordinary and layer.base_layer.weight.dtype not in WIDE:
        layer.__class__ = SummedAdapter
        layer.base_layer.__class__ = SummedLinear
