"""Adapters in bfloat16: what a young one says is not lost."""

from __future__ import annotations

from typing import Any

import peft
import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from tasks.config import AdapterConfig
from tasks.scoring import lora
from tasks.scoring.lora_layer import SummedAdapter
from tests.tasks.train.conftest import tiny_model

WIDTH, ROWS = 64, 200


class Model(nn.Module):
    """One linear layer."""

    def __init__(self, *, bias: bool = False, layer: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer or nn.Linear(WIDTH, WIDTH, bias=bias)

    def get_output_embeddings(self) -> None:
        """It has no output head."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def adapted(dtype: torch.dtype, *, up: float, bias: bool = False) -> tuple[Any, Tensor]:
    """A model with an adapter whose B has this size, and what it is given."""
    model: Any = Model(bias=bias).to(dtype)
    lora.add_adapters(model, AdapterConfig(rank=4, alpha=8, modules=("layer",)))
    nn.init.normal_(model.layer.lora_B.default.weight, std=up)
    torch.manual_seed(1)
    return model, torch.randn(ROWS, WIDTH, dtype=dtype)


def left(found: Tensor, base: Tensor, change: Tensor) -> float:
    """The part of the exact change that is in what was found, along the change."""
    return float(((found - base).float() * change).sum() / change.pow(2).sum())


@torch.no_grad()
def test_a_change_smaller_than_what_bfloat16_tells_apart_is_kept() -> None:
    model, x = adapted(torch.bfloat16, up=1e-4)
    layer = model.layer
    down, up = (part.default.weight.float() for part in (layer.lora_A, layer.lora_B))
    change = x.float() @ down.T @ up.T * layer.scaling["default"]
    exact = x.float() @ layer.base_layer.weight.float().T
    base = exact.bfloat16()
    summed_late = base + change.bfloat16()
    assert left(summed_late, base, change) < 0.5, "the change is small enough to be a test"
    assert left(model(x), base, change) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_an_adapter_of_zeros_is_the_layer_without_it_to_the_last_bit(bias: bool) -> None:
    model, x = adapted(torch.bfloat16, up=0.0, bias=bias)
    found = model(x)
    with lora.disabled(lora.adapted(model)):
        assert torch.equal(model(x), found)
    plain = nn.functional.linear(x, model.layer.base_layer.weight, model.layer.base_layer.bias)
    assert torch.allclose(found, plain, rtol=2**-7, atol=0.01)


@pytest.mark.parametrize("bias", [False, True])
def test_values_and_gradients_are_those_of_the_plain_sum(bias: bool) -> None:
    narrow, x = adapted(torch.bfloat16, up=0.1, bias=bias)
    wide, _ = adapted(torch.float32, up=0.1, bias=bias)
    wide.load_state_dict(narrow.state_dict())
    found, wanted = (model(x.to(dtype)) for model, dtype in ((narrow, torch.bfloat16), (wide, torch.float32)))
    assert torch.allclose(found.float(), wanted, rtol=0.02, atol=0.02)
    for output in (found, wanted):
        output.float().pow(2).sum().backward()
    for name in ("lora_A", "lora_B"):
        got, expected = (getattr(model.layer, name).default.weight.grad.float() for model in (narrow, wide))
        assert (got - expected).norm() < 0.02 * expected.norm()
    assert narrow.layer.base_layer.weight.grad is None


def test_adapters_in_float32_and_of_other_layers_are_pefts_own() -> None:
    policy = tiny_model()
    lora.add_adapters(policy, AdapterConfig())
    assert {type(layer) for layer in lora.adapted(policy)} == {peft.tuners.lora.Linear}
    other: Any = Model(layer=Conv1D(WIDTH, WIDTH)).bfloat16()
    lora.add_adapters(other, AdapterConfig(modules=("layer",)))
    assert {type(layer) for layer in lora.adapted(other)} == {peft.tuners.lora.Linear}
    policy = tiny_model().bfloat16()
    lora.add_adapters(policy, AdapterConfig())
    assert {type(layer) for layer in lora.adapted(policy)} == {SummedAdapter}
