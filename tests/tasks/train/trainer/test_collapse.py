"""A run that really collapses is announced before it has, and a sound one is not.

The policy, pretrained on the spot, answers a prompt with four tokens of eight and the end token; one answer in eight
is right. Trained on its own samples alone at a high rate, it collapses or learns, as docs/decisions/0005 explains.
"""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
import torch

from tasks.config import GuardConfig, TrainConfig
from tasks.scoring.example import Example
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.guards import CollapseWatch
from tasks.train.trainer.metrics import Figures, summarize
from tasks.train.trainer.spo_step import spo_pack_loss
from tests.tasks.train.conftest import END, config, tiny_model

LONGEST, BATCH = 10, 32
RIGHT = 1 / 8
"""Success rate of pi_0: the first of its eight tokens among two, the second among four."""
PROMPTS = [20 + number % 4 for number in range(BATCH)]


def right(ids: list[int]) -> bool:
    return len(ids) == 5 and ids[-1] == END and ids[0] < 4 and ids[1] % 2 == 0


@pytest.fixture(scope="module")
def reference() -> Any:
    model, chance = tiny_model().train(), random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(150):
        rows = [[20 + chance.randrange(4), *(chance.randrange(2, 10) for _ in range(4)), END] for _ in range(BATCH)]
        ids = torch.tensor(rows)
        labels = ids.clone()
        labels[:, 0] = -100
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def sampled(model: Any, generator: torch.Generator) -> list[list[int]]:
    """One response per prompt at temperature 0.5."""
    ids = torch.tensor(PROMPTS)[:, None]
    for _ in range(LONGEST):
        logits = model(input_ids=ids).logits[:, -1] / 0.5
        ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1, generator=generator)], dim=1)
    rows = ids[:, 1:].tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


def train(reference: Any, settings: TrainConfig, steps: int, *, rate: float) -> list[Figures]:
    """The figures of every step of purely online training with weights refreshed every ten steps."""
    policy = Policy(copy.deepcopy(reference), layout="packed", chunk=1024)
    frozen = Reference(Policy(copy.deepcopy(reference), layout="packed", chunk=1024))
    optimizer = torch.optim.AdamW(policy.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.0)
    generator, behaviour, found = torch.Generator().manual_seed(2), copy.deepcopy(reference), list[Figures]()
    for step in range(steps):
        if step % 10 == 0:
            behaviour.load_state_dict(policy.causal_lm.state_dict())
        pack = lay_out([example(f"{step}-{i}", PROMPTS[i], ids) for i, ids in enumerate(sampled(behaviour, generator))])
        logp, entropy = policy(pack)
        loss, records = spo_pack_loss(pack, logp, frozen.logprobs(pack, {})[0], entropy, settings)
        optimizer.zero_grad()
        loss.mean().backward()
        norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0))
        optimizer.step()
        found.append(summarize(records) | {"grad_norm": norm})
    return found


def example(identity: str, prompt: int, ids: list[int]) -> Example:
    terminal = 0.0 if right(ids) else -math.log(1e5)
    return Example(identity, "p", "online", (prompt,), tuple(ids), terminal, math.log(RIGHT), stopped=ids[-1] == END)


def warned(found: list[Figures]) -> dict[str, int]:
    """Kind of warning -> first step with it."""
    watch, first = CollapseWatch(GuardConfig()), dict[str, int]()
    for step, figures in enumerate(found, start=1):
        for kind in watch.warnings(figures):
            first.setdefault(kind, step)
    return first


def mean(found: list[Figures], name: str) -> float:
    return sum(figures[name] for figures in found) / len(found)


def test_a_collapse_is_announced_before_every_sample_fails(reference: Any) -> None:
    settings = config(clip_epsilon=0.01, sources={"online": {"share": 1.0}}).train
    found = train(reference, settings, 45, rate=3e-3)
    assert mean(found[-5:], "pass_fraction") == 0
    assert mean(found[-5:], "online/stop_fraction") < mean(found[:5], "online/stop_fraction") / 2
    gone = next(i + 1 for i in range(len(found)) if all(f["pass_fraction"] == 0 for f in found[i:]))
    first = warned(found)
    assert {"pull", "clipped", "stop", "length"} <= set(first)
    assert first["pull"] <= gone - 5


def test_a_run_that_learns_is_not_warned_of(reference: Any) -> None:
    settings = config(clip_epsilon=0.7, sources={"online": {"share": 1.0}}).train
    found = train(reference, settings, 45, rate=1e-3)
    assert mean(found[-5:], "pass_fraction") > 2 * mean(found[:5], "pass_fraction")
    assert warned(found) == {}


def test_where_values_are_not_trained_failures_above_0_are_no_symptom() -> None:
    symptoms = {"grad_norm": 1.0, "online/stop_fraction": 0.1, "clipped_fraction": 0.9}
    for regression, kinds in ((True, {"clipped", "stop"}), (False, {"stop"})):
        watch = CollapseWatch(GuardConfig(), regression=regression)
        assert set([watch.warnings(symptoms) for _ in range(10)][-1]) == kinds
