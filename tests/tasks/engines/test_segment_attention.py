from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from tasks.engines.segment_attention import attend_segment, bias_of, merged, plain_segment


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_the_fused_kernel_and_the_plain_products_agree() -> None:
    query, key, value = drawn(3, 2, 5, 8), drawn(3, 2, 9, 8), drawn(3, 2, 9, 8)
    bias = bias_of(torch.arange(9) < torch.tensor([3, 9, 1])[:, None], torch.float32)[:, None, None]
    for hidden in (None, bias):
        fused = attend_segment(query, key, value, 0.3, hidden)
        plain = plain_segment(query, key, value, 0.3, hidden)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(fused, plain, strict=True))


def test_segments_add_up_to_attention_over_all_of_them() -> None:
    query, key, value = drawn(2, 3, 4, 8), drawn(2, 3, 30, 8), drawn(2, 3, 30, 8)
    cuts = (slice(0, 11), slice(11, 12), slice(12, 30))
    parts = [attend_segment(query, key[:, :, cut], value[:, :, cut], 0.5) for cut in cuts]
    expected = scaled_dot_product_attention(query, key, value, scale=0.5)
    assert torch.allclose(merged(parts), expected, atol=1e-5)
    assert torch.allclose(merged([attend_segment(query, key, value, 0.5)]), expected, atol=1e-5)
