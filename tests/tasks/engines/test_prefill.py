"""That prompts are computed once, and to the same bits whatever was computed before or beside them.

The bits agree where matrix products round each row alike whatever the number of rows: with MKL on AVX-512. On AVX2 the
small products of the tests do not.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.engines import shared_prefix
from tasks.engines.prefill import MOST_TOKENS, WORTH_SHARING, prefill, waves
from tasks.engines.prefix_store import PrefixStore, Tokens
from tests.examples import seeds
from tests.tasks.engines.conftest import SAME_BITS, VOCABULARY, build

ROOM = 1 << 30


def model_of(kind: str) -> Any:
    shared_prefix.register()
    model = build(kind)
    model.set_attn_implementation(shared_prefix.IMPLEMENTATION)
    return model


def text(seed: int, length: int) -> Tokens:
    drawing = random.Random(seed)
    return tuple(drawing.randrange(VOCABULARY) for _ in range(length))


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if SAME_BITS:
        return torch.equal(one, other)
    return torch.allclose(one, other, atol=1e-5 if one.dtype == torch.float32 else 0.1)


def computed(model: Any, store: PrefixStore, prompts: list[Tokens]) -> tuple[torch.Tensor, int]:
    """Logits, and tokens that went through the model."""
    tokens = 0

    def counting(_module: Any, _inputs: Any, given: dict[str, Any]) -> None:
        nonlocal tokens
        tokens += given["decoding"].parts[-1].stop

    handle = model.register_forward_pre_hook(counting, with_kwargs=True)
    with torch.inference_mode():
        logits = prefill(model, store, prompts)
    handle.remove()
    return logits, tokens


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_logits_are_those_of_a_whole_forward_pass(kind: str) -> None:
    model, plain = model_of(kind), build(kind)
    common = text(1, 40)
    prompts = [common + text(seed, 5 + seed) for seed in range(2, 7)] + [common[:30], (3,)]
    logits, _ = computed(model, PrefixStore(ROOM), prompts)
    with torch.inference_mode():
        for found, ids in zip(logits, prompts, strict=True):
            assert torch.allclose(found, plain(torch.tensor([ids])).logits[0, -1], atol=1e-5)


def test_every_shared_beginning_is_computed_once() -> None:
    model, store = model_of("llama"), PrefixStore(ROOM)
    preamble, statement = text(1, 50), text(2, 30)
    prompts = [
        preamble + statement,
        preamble + statement + text(3, 20),
        preamble + statement + text(4, 25),
        preamble + text(5, 17),
    ]
    assert computed(model, store, prompts)[1] == 50 + 30 + 20 + 25 + 17
    assert computed(model, store, [preamble + text(6, 9)])[1] == 9
    assert computed(model, store, prompts[:1])[1] == 1


def test_a_prompt_longer_than_a_pass_is_computed_in_parts() -> None:
    plain = build("gpt2")
    model, ids = model_of("gpt2"), text(1, MOST_TOKENS + 77)
    logits, tokens = computed(model, PrefixStore(ROOM), [ids])
    assert tokens == len(ids)
    with torch.inference_mode():
        assert torch.allclose(logits[0], plain(torch.tensor([ids])).logits[0, -1], atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_a_prompt_gives_the_same_bits_cached_or_not_alone_or_in_company(kind: str) -> None:
    model = model_of(kind)
    for seed in seeds(4, 25):
        drawing = random.Random(seed)
        ids = text(seed, 60)
        company = [
            ids[: drawing.randrange(1, 60)] + text(100 * seed + number, drawing.randrange(1, 30)) for number in range(4)
        ]
        alone, others = PrefixStore(ROOM), PrefixStore(ROOM)
        expected = computed(model, alone, [ids])[0][0]
        computed(model, others, company[:2])
        computed(model, others, [ids[: drawing.randrange(1, 60)]])
        found = computed(model, others, list(dict.fromkeys([*company, ids])))[0][-1]
        assert equal(found, expected)
        for one, other in zip(alone.read(ids), others.read(ids), strict=True):
            assert all(equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_long_prompt_gives_the_same_bits_wherever_its_beginning_is_cut(dtype: torch.dtype) -> None:
    """As few-shot prompts are: on an AMD EPYC sums over 192 and over 256 keys were rounded differently."""
    model = model_of("llama_wide").to(dtype)
    ids = text(1, 600)
    for length in (100, 129, 193, 265, 400, 600):
        alone = PrefixStore(ROOM)
        expected = computed(model, alone, [ids[:length]])[0][0]
        for cut in (40, 128, 165, 250, 390):
            if cut < length:
                others = PrefixStore(ROOM)
                company = [ids[:cut] + text(length, 30), ids[:length], ids[: cut - 20] + text(cut, 50)]
                assert equal(computed(model, others, company)[0][1], expected)
                for one, other in zip(alone.read(ids[:length]), others.read(ids[:length]), strict=True):
                    assert all(equal(a, b) for a, b in zip(one, other, strict=True))


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=60).map(tuple), min_size=1, max_size=12, unique=True))
def test_each_prompt_comes_in_one_wave_after_what_it_shares(prompts: list[Tokens]) -> None:
    order = waves(prompts)
    assert all(sum(ids in wave for wave in order) == 1 for ids in prompts)
    for one in prompts:
        for other in prompts:
            shared = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
            if one != other and shared >= WORTH_SHARING and shared < min(len(one), len(other)):
                before = {ids for wave in order for ids in wave if ids == one[: len(ids)] == other[: len(ids)]}
                assert max(map(len, before)) > shared - WORTH_SHARING
