from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import TopPLogitsWarper

from tasks.engines.randomness import derived_seed, sample_seed, stream_key, uniforms
from tasks.engines.token_sampling import (
    ROW_BY_ROW,
    all_at_once,
    block_sums,
    choose,
    entropies_of,
    last_kept,
    nucleus_floor,
)


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


@pytest.mark.parametrize("vocabulary", [50, ROW_BY_ROW])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.4, 0.9)])
def test_logits_that_are_no_numbers_show_in_the_log_probability(
    vocabulary: int, wrong: float, temperature: float, top_p: float
) -> None:
    logits = torch.zeros(2, vocabulary)
    logits[1, 7] = wrong
    _, logprobs = choose(logits, torch.full((2,), temperature), torch.full((2,), top_p), torch.full((2,), 0.5))
    assert logprobs.isfinite().tolist() == [True, False]


def test_temperature_and_nucleus_apply_to_their_own_row_only() -> None:
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(1)).expand(3, -1)
    uniform = torch.full((3,), 0.73)
    temperature, top_p = torch.tensor([1.0, 0.2, 1.0]), torch.tensor([1.0, 1.0, 0.3])
    together, _ = choose(logits, temperature, top_p, uniform)
    for row in range(3):
        one = slice(row, row + 1)
        alone, _ = choose(logits[one], temperature[one], top_p[one], uniform[one])
        assert alone[0] == together[row]


def by_sorting(logits_V: torch.Tensor, temperature: float, top_p: float, uniform: float) -> tuple[int, float]:
    """The definition in float64: the token, and how far `uniform` is from drawing another one."""
    probability_V = (logits_V.double() / temperature).softmax(-1)
    order = probability_V.argsort(descending=True)
    before_V = probability_V[order].cumsum(0) - probability_V[order]
    floor = probability_V[order][before_V < top_p][-1]
    cumulative_V = torch.where(probability_V >= floor, probability_V, 0.0).cumsum(0)
    share_V = cumulative_V / cumulative_V[-1]
    return int(torch.searchsorted(share_V, uniform, right=True)), float((share_V - uniform).abs().min())


@pytest.mark.parametrize("vocabulary", [ROW_BY_ROW, 49_152, 128_256])
@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0, 12.0])
def test_a_large_vocabulary_is_drawn_from_as_sorting_it_would(vocabulary: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    settings = [(t, p) for t in (1.0, 0.8, 2.0) for p in (1e-6, 0.3, 0.95, 0.999, 1.0)]
    logits = spread * torch.randn(len(settings), vocabulary, generator=generator)
    logits[:, ::7] = logits[:, 3:4]
    temperature, top_p = (torch.tensor(values) for values in zip(*settings, strict=True))
    uniform = torch.rand(len(settings), generator=generator)
    tokens, logprobs = choose(logits, temperature, top_p, uniform)
    for row in range(len(settings)):
        drawing = (float(temperature[row]), float(top_p[row]), float(uniform[row]))
        expected, distance = by_sorting(logits[row], *drawing)
        assert tokens[row] == expected or distance < 1e-6
        assert logprobs[row] == pytest.approx(float(logits[row].log_softmax(-1)[tokens[row]]), abs=1e-4)


def test_rows_of_a_large_vocabulary_are_drawn_as_those_of_a_small_one_are() -> None:
    generator = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(40, ROW_BY_ROW, generator=generator)
    logits[:20, 100:] = float("-inf")
    temperature = torch.tensor([0.0, 1.0, 0.7, 1.3]).repeat(10)
    top_p, uniform = torch.tensor([1.0, 0.9, 0.5, 1.0, 0.99]).repeat(8), torch.rand(40, generator=generator)
    row_by_row, together = (draw(logits, temperature, top_p, uniform) for draw in (choose, all_at_once))
    assert torch.equal(row_by_row[0], together[0])
    assert torch.allclose(row_by_row[1], together[1], atol=1e-4)


@pytest.mark.parametrize("vocabulary", [1, 1000, 1025, 5000, 128_256])
@pytest.mark.parametrize("kinds", [1, 3, 60])
def test_the_last_token_kept_is_the_one_that_sorting_finds_ties_included(vocabulary: int, kinds: int) -> None:
    """With whole numbers every sum is exact."""
    drawing = np.random.default_rng(vocabulary + kinds)
    weights = drawing.integers(1, kinds + 1, vocabulary).astype(np.float32)
    descending = np.sort(weights)[::-1]
    before = descending.cumsum(dtype=np.float64) - descending
    total = float(weights.sum(dtype=np.float64))
    for target in (0.5, 1.0, total * 0.1, float(np.ceil(total * 0.95)), total - 0.5, total, total + 5):
        expected = descending[before < target][-1]
        assert last_kept(weights.view(np.int32).copy(), target) == expected


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 1000])
def test_block_sums_add_up_to_everything(length: int) -> None:
    weights = np.arange(length, dtype=np.float32)
    assert block_sums(weights).sum() == weights.sum(dtype=np.float64)


def test_a_large_vocabulary_never_gives_a_token_of_probability_zero() -> None:
    logits = torch.full((1, ROW_BY_ROW), float("-inf"))
    logits[0, [5, 300, ROW_BY_ROW - 2]] = torch.tensor([0.1, 0.7, 0.3])
    for top_p in (1.0, 0.9):
        for uniform in (0.0, 0.4, 1 - 2**-24):
            token, _ = choose(logits, torch.ones(1), torch.tensor([top_p]), torch.tensor([uniform]))
            assert int(token) in (5, 300, ROW_BY_ROW - 2)


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


@pytest.mark.parametrize("vocabulary", [50, 20_000])
def test_entropies_are_those_of_the_softmax(vocabulary: int) -> None:
    logits = 4 * torch.randn(19, vocabulary, generator=torch.Generator().manual_seed(0))
    logits[3] = 0
    expected = torch.distributions.Categorical(logits=logits.double()).entropy()
    assert entropies_of(logits).tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert torch.equal(entropies_of(logits)[:5], entropies_of(logits[:5])), "whatever stands beside"
    certain = torch.full((1, vocabulary), -torch.inf)
    certain[0, 7] = 1.0
    assert entropies_of(certain.clamp(min=-1e4)).tolist() == [0.0]
