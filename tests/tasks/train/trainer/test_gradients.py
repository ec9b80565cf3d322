"""Losses and gradients do not depend on how a batch is laid out or divided."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from tasks.scoring.example import Example
from tasks.scoring.packing import Layout, lay_out, plan
from tasks.scoring.policy import Policy, load_policy
from tasks.train.trainer.spo_step import shares, spo_pack_loss
from tests.tasks.train.conftest import config, examples, tiny_model

TRAIN = config(
    sources={
        "online": {"share": 0.5, "objectives": [{}, {"kind": "reverse_q", "loss": "squared"}]},
        "offline": {"share": 0.5, "objectives": [{"kind": "advantage", "loss": "sigmoid", "weight": 0.5}]},
    }
).train
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
BATCH = [*examples(5), *examples(4, seed=1, source="offline")]


def gradients(
    batch: list[Example], *, layout: Layout = "packed", tokens: int = 10_000, chunk: int = 7, world: int = 1
) -> dict[str, torch.Tensor]:
    """Gradients of the batch's mean loss, over packs of at most `tokens` tokens, in float64."""
    policy = Policy(tiny_model().double(), layout=layout, chunk=chunk)
    reference = Policy(tiny_model(1).double(), layout=layout, chunk=chunk)
    train = TRAIN.model_copy(update={"packing": layout, "micro_batch_tokens": tokens})
    for share in shares(batch, {}, train, world):
        for members, weight in zip(share.packs, share.weights, strict=True):
            pack = lay_out(members, layout)
            with torch.no_grad():
                ref_logp = reference(pack)[0]
            logp, entropy = policy(pack)
            loss_B, _ = spo_pack_loss(pack, logp, ref_logp, entropy, train)
            (weight * loss_B.sum() / share.sequences).backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def assert_equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, gradient in left.items():
        assert torch.allclose(gradient, right[name], rtol=1e-9, atol=1e-12), name


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return gradients(BATCH)


@pytest.mark.parametrize(
    "change",
    [
        {"layout": "padded"},
        *({"tokens": tokens} for tokens in (1, 30, 50)),
        *({"chunk": chunk} for chunk in (1, 3, 1000)),
        *({"tokens": 40, "world": world} for world in (2, 3, 16)),
        {"batch": BATCH[::-1]},
    ],
    ids=str,
)
def test_gradients_depend_neither_on_layout_packs_chunks_processes_nor_order(
    expected: dict[str, torch.Tensor], change: dict[str, Any]
) -> None:
    assert_equal(gradients(**({"batch": BATCH} | change)), expected)


def test_gradients_equal_those_of_a_left_padded_batch_with_full_logits(expected: dict[str, torch.Tensor]) -> None:
    """The other padding side, computed without any of the trainer's layouts."""
    model, reference = tiny_model().double(), tiny_model(1).double()
    longest = max(e.length for e in BATCH)
    ids, mask = (torch.zeros(len(BATCH), longest, dtype=torch.long) for _ in range(2))
    for row, e in enumerate(BATCH):
        ids[row, longest - e.length :] = torch.tensor((*e.prompt_ids, *e.response_ids))
        mask[row, longest - e.length :] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)

    def logprobs(causal_lm: Any) -> torch.Tensor:
        logits = causal_lm(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
        logp = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        return torch.cat([logp[row, -len(e.response_ids) :] for row, e in enumerate(BATCH)])

    with torch.no_grad():
        ref_logp = logprobs(reference)
    loss_B, _ = spo_pack_loss(lay_out(BATCH), logprobs(model), ref_logp, torch.zeros_like(ref_logp), TRAIN)
    (loss_B.sum() / len(BATCH)).backward()
    found = {f"causal_lm.{name}": p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert_equal(found, expected)


def response_gradients(policy: Policy) -> dict[str, torch.Tensor]:
    policy(lay_out(BATCH))[0].sum().backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


def times_computed(policy: Policy) -> Counter[int]:
    """How often each layer's MLP begins to compute, by layer; counted from now on.

    Begins: recomputation stops at the last activation that the backward pass needs.
    """
    times: Counter[int] = Counter()
    for number, layer in enumerate(policy.causal_lm.model.layers):
        layer.mlp.register_forward_pre_hook(lambda *_, number=number: times.update([number]))
    return times


def test_gradient_checkpointing_computes_every_layer_twice_and_gives_identical_gradients(reference: Path) -> None:
    def loaded(*, checkpointing: bool) -> Policy:
        train = config(gradient_checkpointing=checkpointing).train
        return load_policy(reference, train, "float32", trained=True)

    plain, again = loaded(checkpointing=False), loaded(checkpointing=True)
    once, twice = times_computed(plain), times_computed(again)
    wanted, found = response_gradients(plain), response_gradients(again)
    assert once == {0: 1, 1: 1}
    assert twice == {0: 2, 1: 2}
    assert wanted.keys() == found.keys()
    assert all(torch.equal(gradient, found[name]) for name, gradient in wanted.items())


def test_chunked_gradients_equal_those_of_a_full_softmax() -> None:
    from tasks.scoring.logprobs import token_logprobs

    hidden = torch.randn(13, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(21, 8, dtype=torch.float64, requires_grad=True)
    predictors = torch.cat([torch.randperm(13), torch.randint(0, 13, (7,))])
    targets = torch.randint(0, 21, (20,))
    upstream = torch.randn(20, dtype=torch.float64)
    logp, entropy = token_logprobs(hidden, weight, predictors, targets, chunk=4)
    found = torch.autograd.grad((logp * upstream).sum(), (hidden, weight))
    full = (hidden @ weight.T).log_softmax(1)
    wanted = torch.autograd.grad((full[predictors, targets] * upstream).sum(), (hidden, weight))
    assert torch.allclose(logp, full[predictors, targets])
    assert torch.allclose(entropy, -(full.exp() * full).sum(1)[predictors])
    assert all(torch.allclose(a, b, rtol=1e-6) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_sequence_is_planned_once_and_packs_keep_to_their_size(layout: Layout) -> None:
    lengths = [30, 5, 5, 20, 70, 1, 12, 12]
    batch = [replace(BATCH[0], prompt_ids=(i,), response_ids=(i,) * length) for i, length in enumerate(lengths)]
    groups = plan(batch, layout, most_tokens=40, multiple=3)
    assert sorted(i for group in groups for i in group) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in group) <= 40 or len(group) == 1 for group in groups)
    assert len(groups) % 3 == 0
