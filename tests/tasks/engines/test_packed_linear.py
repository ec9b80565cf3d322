from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.engines import packed_linear


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 100, 300])
def test_a_packed_layer_computes_what_the_plain_one_does(rows: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(300, 1100), nn.Linear(1100, 257, bias=False))
    given = torch.randn(1, rows, 300)
    with torch.inference_mode():
        expected = layers(given)
        packed_linear.pack(layers)
        assert all("forward" in layer.__dict__ for layer in layers)
        assert torch.allclose(layers(given), expected, atol=1e-5)
        with packed_linear.unpacked(layers):
            assert torch.equal(layers(given), expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(576, 192), (576, 1536), (1536, 576), (2048, 513)])
def test_a_row_in_float32_has_the_same_bits_in_any_company(shape: tuple[int, int], threads: int) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(*shape, bias=False)
    given = torch.randn(700, shape[0])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            packed_linear.pack(layer)
            together = layer(given)
            for rows in (*range(1, 20), 63, 64, 100, 257, 512):
                assert torch.equal(layer(given[:rows]), together[:rows])
                assert torch.equal(layer(given[7 : 7 + rows]), together[7 : 7 + rows])
    finally:
        torch.set_num_threads(before)


def test_weights_that_changed_are_packed_again() -> None:
    layer = nn.Linear(256, 256, bias=False)
    packed_linear.pack(layer)
    with torch.inference_mode():
        layer.weight.zero_()
        assert layer(torch.ones(4, 256)).any()
        packed_linear.pack(layer)
        assert not layer(torch.ones(4, 256)).any()


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
    layer = nn.Linear(256, 256, dtype=dtype)
    packed_linear.pack(layer)
    assert "forward" not in layer.__dict__


def test_small_layers_in_float32_stay_as_they_are() -> None:
    layer = nn.Linear(64, 64)
    packed_linear.pack(layer)
    assert "forward" not in layer.__dict__
