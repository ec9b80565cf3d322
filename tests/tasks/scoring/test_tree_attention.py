"""Attention over a tree equals attention under the mask of the whole row, in values and gradients, on every path."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from tasks.scoring import tree as tree_module
from tasks.scoring.attention import compiled_flex, flex
from tasks.scoring.prefix_tree import separate_row, shared_row
from tasks.scoring.tree import Tree, block_mask
from tasks.scoring.tree_kernel import tree_attention
from tests.tasks.scoring.trees import sequences

HEADS, KEY_HEADS, SIZE = 4, 2, 16


def random_tree(seed: int, count: int = 12) -> Tree:
    chance = random.Random(seed)
    found = [tuple(chance.randrange(9) for _ in range(60))]
    for _ in range(count):
        begun = chance.choice(found)
        found.append((*begun[: chance.randint(0, len(begun))], *(chance.randrange(9) for _ in range(40))))
    return Tree.of(shared_row(found))


def inputs(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, length, n, SIZE, dtype=dtype).transpose(1, 2) for n in (HEADS, KEY_HEADS, KEY_HEADS))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def dense(q: Tensor, k: Tensor, v: Tensor, tree: Tree, scale: float) -> Tensor:
    """Softmax over the whole row under a mask, written out."""
    place = torch.arange(len(tree.reach_L))
    mask = (place[None] <= place[:, None]) & (place[:, None] < tree.reach_L[None])
    k, v = (x.repeat_interleave(HEADS // KEY_HEADS, 1) for x in (k, v))
    weights = (scale * q @ k.transpose(-1, -2)).masked_fill(~mask, -torch.inf).softmax(-1)
    return (weights @ v).transpose(1, 2)


def assert_equal(found: Tensor, wanted: Tensor, leaves: tuple[Tensor, ...], tolerance: float) -> None:
    given_back = torch.randn_like(wanted)
    gradients = (torch.autograd.grad(x, leaves, given_back.to(x.dtype)) for x in (found, wanted))
    assert (found - wanted).abs().max() < tolerance
    assert all((a - b).abs().max() < tolerance for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("call", [0, 200, 10**9])
@given(found=sequences())
def test_however_segments_are_put_together_in_calls(call: int, found: list[tuple[int, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_module, "CALL", call)
        trees = [Tree.of(shared_row(found)), Tree.of(separate_row(found))]
    for tree in trees:
        leaves = inputs(len(tree.reach_L))
        assert_equal(tree_attention(*leaves, tree.blocks, 0.3), dense(*leaves, tree, 0.3), leaves, 1e-12)


def test_short_segments_share_a_call_and_long_ones_have_their_own() -> None:
    short = Tree.of(separate_row([(1, 2, 3)] * 20))
    long = Tree.of(separate_row([(1,) * 300] * 3))
    assert len(short.blocks) < 20
    assert [(b.start, b.stop, b.mask) for b in long.blocks] == [(0, 300, None), (300, 600, None), (600, 900, None)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_flex_attention_under_the_block_mask(dtype: torch.dtype, tolerance: float) -> None:
    """Values alone: on a CPU it has no backward pass."""
    for seed in range(3):
        tree = random_tree(seed)
        q, k, v = (x.detach() for x in inputs(len(tree.reach_L), dtype))
        found = flex(q, k, v, block_mask(tree.reach_L), 0.3, flex_attention)
        assert (found - dense(q, k, v, tree, 0.3)).abs().max() < tolerance


@pytest.mark.slow
def test_compiled_flex_attention_takes_rows_of_any_length_without_compiling_again() -> None:
    """What a GPU runs, compiled for the CPU: it needs a C++ compiler."""
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed in range(3):
            tree = random_tree(seed, count=6 + 4 * seed)
            q, k, v = (x.detach() for x in inputs(len(tree.reach_L), torch.float32))
            found = flex(q, k, v, block_mask(tree.reach_L), 0.3, compiled_flex())
            assert (found - dense(q, k, v, tree, 0.3)).abs().max() < 1e-5


def test_bfloat16_keeps_the_accuracy_of_one_call() -> None:
    """Parts are joined in float32: no further from the truth than attention that never splits."""
    tree = random_tree(0, count=30)
    exact, rounded = inputs(len(tree.reach_L)), inputs(len(tree.reach_L), torch.bfloat16)
    for a, b in zip(exact, rounded, strict=True):
        a.data.copy_(b.data)
    wanted, found = dense(*exact, tree, 0.3), tree_attention(*rounded, tree.blocks, 0.3)
    assert found.dtype == torch.bfloat16
    given_back = torch.randn_like(wanted).bfloat16()
    gradients = torch.autograd.grad(found, rounded, given_back), torch.autograd.grad(wanted, exact, given_back.double())
    for a, b in [(found, wanted), *zip(*gradients, strict=True)]:
        assert (a.double() - b).norm() < 0.01 * b.norm()
