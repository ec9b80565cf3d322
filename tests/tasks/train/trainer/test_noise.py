"""Guards that compare log-probabilities let the noise of other kernels pass and nothing else, in either dtype.

Another kernel is emulated: every linear layer adds up its products in two halves, each rounded, as split-K kernels do.
The model is wide enough for bfloat16 to make the noise that SmolLM2 has: 0.03 nats a token on average.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.engines.canary import MEAN_DRIFT, Drift, check_drift
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.shared.errors import ReferenceDrift
from tasks.train.trainer import guards
from tests.refusals import refused
from tests.tasks.train.conftest import VOCABULARY, examples

DTYPES = ("float32", "bfloat16")


class SplitLinear(nn.Module):
    """A linear layer that another kernel computes: the products are added up in two rounded halves."""

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__()
        self.weight = whole.weight

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        first = functional.linear(x[..., :half], self.weight[:, :half])
        return first + functional.linear(x[..., half:], self.weight[:, half:])


def model(dtype: str) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.1,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()


def other_kernels(whole: Any) -> Any:
    for block in whole.model.layers:
        for part in (block.self_attn, block.mlp):
            for name, layer in list(part.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(part, name, SplitLinear(layer))
    return whole


def stale(whole: Any) -> Any:
    """One matrix of one layer is not what it should be."""
    weight = whole.model.layers[2].mlp.down_proj.weight
    with torch.no_grad():
        weight.copy_(weight.roll(1, 0))
    return whole


def reference_of(whole: Any) -> Reference:
    return Reference(Policy(whole, layout="packed", chunk=64).requires_grad_(False))


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_passes_the_check_of_stored_logprobs_and_a_wrong_weight_does_not(dtype: str) -> None:
    batch = examples(4)
    stored = reference_of(model(dtype)).logprobs(lay_out(batch), {})[1]
    noise = guards.check_stored(reference_of(other_kernels(model(dtype))), batch, stored, MEAN_DRIFT[dtype])
    assert noise > 0, "the emulation computes the same as the model itself"
    with refused("ReferenceDrift"):
        guards.check_stored(reference_of(stale(model(dtype))), batch, stored, MEAN_DRIFT[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_passes_the_canaries_of_a_refresh_and_a_wrong_weight_does_not(dtype: str) -> None:
    (canary,) = examples(1, seed=2)
    own, noisy, wrong = (
        reference_of(one).logprobs(lay_out([canary]), {})[1][canary.trajectory_id]
        for one in (model(dtype), other_kernels(model(dtype)), stale(model(dtype)))
    )
    assert check_drift(noisy, own, MEAN_DRIFT[dtype]) > 0
    with refused("EngineDrift"):
        check_drift(wrong, own, MEAN_DRIFT[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_passes_the_check_of_the_layout(dtype: str) -> None:
    few = examples(4)
    guards.check_layout(Reference(Policy(model(dtype), layout="packed", chunk=64)), few, dtype)


def test_the_noise_in_bfloat16_would_not_pass_for_float32() -> None:
    batch = examples(4)
    stored = reference_of(model("bfloat16")).logprobs(lay_out(batch), {})[1]
    with pytest.raises(ReferenceDrift):
        guards.check_stored(reference_of(other_kernels(model("bfloat16"))), batch, stored, MEAN_DRIFT["float32"])


def test_one_token_far_off_is_noise_where_the_mean_is_small_and_many_are_not() -> None:
    """The largest of many tokens grows with their number; a tenth of the tokens is no outlier."""
    exact = [-1.0] * 100
    assert Drift.between([-1.9, *exact[1:]], exact).within(0.1)
    assert not Drift.between([-1.5] * 10 + exact[10:], exact).within(0.1)
    assert not Drift.between([float("nan"), *exact[1:]], exact).within(0.1)
