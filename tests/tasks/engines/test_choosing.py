from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import TopPLogitsWarper

from tasks.engines.choosing import choose, nucleus_floor
from tasks.engines.randomness import derived_seed, sample_seed, stream_key, uniforms


@pytest.mark.parametrize("vocabulary", [7, 64, 500])
@pytest.mark.parametrize("spread", [0.1, 1.0, 6.0])
def test_the_nucleus_is_the_one_transformers_keeps(vocabulary: int, spread: float) -> None:
    logits = spread * torch.randn(40, vocabulary, generator=torch.Generator().manual_seed(0))
    for top_p in (0.05, 0.5, 0.9, 0.95, 0.999):
        probability = logits.softmax(-1)
        kept = probability >= nucleus_floor(probability, torch.full((40,), top_p))[:, None]
        assert torch.equal(kept, TopPLogitsWarper(top_p)(None, logits).isfinite())


def test_rows_with_top_p_one_keep_everything() -> None:
    probability = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    assert nucleus_floor(probability, torch.tensor([1.0, 0.8])).tolist() == pytest.approx([0.0, 0.2])


def test_the_uniform_number_is_inverted_through_the_distribution() -> None:
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(6, -1)
    uniform = torch.tensor([0.0, 0.0999, 0.1001, 0.59, 0.61, 1 - 2**-24])
    tokens, logprobs = choose(logits, torch.ones(6), torch.ones(6), uniform)
    assert tokens.tolist() == [0, 0, 1, 2, 3, 3]
    assert logprobs.tolist() == pytest.approx(torch.tensor([0.1, 0.1, 0.2, 0.3, 0.4, 0.4]).log().tolist())


def test_a_token_of_probability_zero_is_never_drawn() -> None:
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf"), 0.0, float("-inf")]]).expand(3, -1)
    tokens, _ = choose(logits, torch.ones(3), torch.ones(3), torch.tensor([0.0, 0.5, 1 - 2**-24]))
    assert tokens.tolist() == [1, 3, 3]


def test_temperature_and_nucleus_apply_to_their_own_row_only() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(1)).expand(3, -1)
    uniform = torch.full((3,), 0.73)
    temperature, top_p = torch.tensor([1.0, 0.2, 1.0]), torch.tensor([1.0, 1.0, 0.3])
    together, _ = choose(logits, temperature, top_p, uniform)
    for row in range(3):
        one = slice(row, row + 1)
        alone, _ = choose(logits[one], temperature[one], top_p[one], uniform[one])
        assert alone[0] == together[row]


def test_uniforms_look_uniform_over_keys_and_positions() -> None:
    keys = np.array([stream_key(seed, (1, 2, 3)) for seed in range(200)], dtype=np.uint64)
    numbers = np.array([uniforms(keys, np.full(200, position)) for position in range(100)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=50, range=(0, 1))
    assert ((counts - 400) ** 2 / 400).sum() < 49 + 5 * np.sqrt(98)
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.03


def test_uniforms_stay_below_one_in_float32() -> None:
    assert np.float32(1 - 2**-24) < 1
    numbers = uniforms(np.arange(1000, dtype=np.uint64), np.zeros(1000))
    assert np.array_equal(numbers.astype(np.float32).astype(np.float64), numbers)


def test_the_first_sample_keeps_the_requests_seed_and_others_are_unrelated() -> None:
    assert sample_seed(42, 0) == 42
    assert len({sample_seed(seed, index) for seed in range(50) for index in range(50)}) == 2500
    assert derived_seed(1, 23) != derived_seed(12, 3)
