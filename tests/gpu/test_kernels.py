"""What is computed on a GPU is what is computed on the CPU; skipped where torch sees none."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from tasks.engines.protocol import Request
from tasks.engines.token_sampling import choose
from tasks.engines.transformers_engine import TransformersEngine
from tasks.scoring.attention import row_attention
from tasks.scoring.packing import Layout, lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.prefix_tree import separate_row
from tasks.scoring.reference import load_reference
from tasks.scoring.tree import Tree
from tests.tasks.engines.conftest import build, save
from tests.tasks.scoring.test_tree_attention import dense, inputs, random_tree
from tests.tasks.train.conftest import config, examples, save_reference, tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU (make test-gpu)")
GPU = torch.device("cuda")
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.02}
"""Of the largest deviation, relative to the norm; float32 products may be of tf32 factors."""


def separate_tree() -> Tree:
    return Tree.of(separate_row([tuple(range(length)) for length in (70, 3, 120, 1)]))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shared", [False, True])
def test_attention_over_a_row_has_the_values_and_gradients_of_its_definition(shared: bool, dtype: torch.dtype) -> None:
    """Variable-length flash attention, torch's own in float32, and compiled FlexAttention."""
    tree = random_tree(0) if shared else separate_tree()
    exact = inputs(len(tree.reach_L))
    there = [x.detach().to(GPU, dtype).requires_grad_() for x in exact]
    found, _ = row_attention(torch.nn.Identity(), *there, None, tree=tree.to(GPU), scaling=0.3)
    wanted = dense(*exact, tree, 0.3)
    given_back = torch.randn_like(wanted)
    pairs = [(found, wanted)]
    gradients = torch.autograd.grad(found, there, given_back.to(GPU, dtype))
    pairs += zip(gradients, torch.autograd.grad(wanted, exact, given_back), strict=True)
    for ours, truth in pairs:
        assert (ours.cpu().double() - truth).norm() < TOLERANCE[dtype] * truth.norm()


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", get_args(Layout))
def test_log_probabilities_and_gradients_are_those_of_the_cpu(layout: Layout, dtype: torch.dtype) -> None:
    members = examples(12)

    def computed(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        policy = Policy(tiny_model(), layout=layout, chunk=16).to(device, dtype)
        logp_N, _ = policy(lay_out(members, layout).to(device))
        logp_N.sum().backward()
        weights = policy.causal_lm.model.layers[0].self_attn.q_proj.weight
        return logp_N.detach().cpu().double(), weights.grad.cpu().double()

    for ours, truth in zip(computed(GPU, dtype), computed(torch.device("cpu"), torch.float64), strict=True):
        assert (ours - truth).norm() < 2 * TOLERANCE[dtype] * truth.norm()


def test_layers_in_main_memory_give_the_same_numbers(tmp_path: Path) -> None:
    folder = save_reference(tmp_path / "reference")
    pack = lay_out(examples(4), "packed").to(GPU)
    trains = [config(packing="packed", reference_weights=where).train for where in ("device", "cpu")]
    whole, offloaded = (load_reference(folder, train, "bfloat16", GPU) for train in trains)
    for _ in range(2):
        assert torch.equal(offloaded.evaluate(pack), whole.evaluate(pack))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_the_engine_draws_from_the_distribution_that_it_reports(kind: str, tmp_path: Path) -> None:
    engine = TransformersEngine(save(build(kind), tmp_path), dtype="float32", max_batch=24)
    chance = random.Random(0)
    common = tuple(chance.randrange(2, 60) for _ in range(30))
    prompts = [(*common, *(chance.randrange(2, 60) for _ in range(9))) for _ in range(5)]
    requests = [Request(prompt, 8, seed=number, max_tokens=40) for number, prompt in enumerate(prompts)]
    drawn = list(engine.sample(requests))
    assert len(drawn) == 40
    there = TransformersEngine(tmp_path, dtype="float32", device="cpu")
    again = there.score([(prompts[one.request], one.token_ids) for one in drawn])
    for one, logprobs in zip(drawn, again, strict=True):
        assert one.logprobs == pytest.approx(logprobs, abs=5e-3)


@pytest.mark.parametrize("spread", [1.5, 9.0])
def test_no_token_outside_the_nucleus_is_ever_drawn(spread: float) -> None:
    rows, vocabulary, top_p = 256, 49_152, 0.95
    torch.manual_seed(0)
    outside = 0
    for _ in range(20):
        logits = spread * torch.randn(rows, vocabulary, device=GPU)
        probability = logits.double().softmax(-1)
        settings = (torch.ones(rows, device=GPU), torch.full((rows,), top_p, device=GPU), torch.rand(rows, device=GPU))
        tokens, logprobs = choose(logits, *settings)
        taken = probability.gather(1, tokens[:, None])
        assert torch.allclose(logprobs.double(), taken[:, 0].log(), atol=1e-3)
        outside += int((probability.where(probability > taken, 0.0).sum(-1) > top_p + 1e-4).sum())
    assert outside == 0


def test_drawn_tokens_are_as_frequent_as_they_are_probable() -> None:
    rows = 200_000
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0], device=GPU).expand(rows, -1)
    ones = torch.ones(rows, device=GPU)
    uniform = torch.rand(rows, device=GPU, generator=torch.Generator(GPU).manual_seed(0))
    tokens, _ = choose(logits, ones, ones, uniform)
    share = torch.bincount(tokens, minlength=4).double() / rows
    assert torch.allclose(share.cpu(), logits[0].double().softmax(-1).cpu(), atol=0.005)
