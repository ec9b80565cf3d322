from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.engines import packed_linear


@pytest.mark.parametrize("rows", [2, 3, 16, 100, packed_linear.MOST_ROWS, packed_linear.MOST_ROWS + 1])
def test_a_packed_layer_computes_what_the_plain_one_does(rows: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(96, 40), nn.Linear(40, 30, bias=False))
    given = torch.randn(1, rows, 96)
    with torch.inference_mode():
        expected = layers(given)
        packed_linear.pack(layers)
        assert torch.allclose(layers(given), expected, atol=1e-6)
        with packed_linear.unpacked(layers):
            assert torch.equal(layers(given), expected)


def test_weights_that_changed_are_packed_again() -> None:
    layer = nn.Linear(64, 64, bias=False)
    packed_linear.pack(layer)
    with torch.inference_mode():
        layer.weight.zero_()
        packed_linear.pack(layer)
        assert not layer(torch.randn(4, 64)).any()


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU does not multiply in bfloat16")
@pytest.mark.parametrize("rows", [1, 3, 16, 100, 300])
def test_a_row_in_bfloat16_has_the_same_bits_packed_and_alone(rows: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(96, 64), nn.Linear(64, 32, bias=False)).to(torch.bfloat16)
    given = torch.randn(300, 96).to(torch.bfloat16)
    with torch.inference_mode():
        packed_linear.pack(layers)
        together = layers(given)
        assert torch.equal(layers(given[:rows]), together[:rows])
        with packed_linear.unpacked(layers):
            assert torch.allclose(layers(given), together, atol=2e-2)
    assert layers(given).requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_layers_that_cannot_be_packed_stay_as_they_are(dtype: torch.dtype) -> None:
    layer = nn.Linear(64, 64, dtype=dtype)
    packed_linear.pack(layer)
    assert "forward" not in layer.__dict__
