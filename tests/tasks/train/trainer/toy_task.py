"""A toy on which online training learns or collapses in seconds.

The policy, pretrained on the spot, answers a prompt of one token with four tokens of eight and the end token; one
answer in eight is right. Trained on its own samples alone, it learns or collapses as real runs do (decision 5).
"""

from __future__ import annotations

import copy
import math
import random
from dataclasses import replace
from typing import Any

import torch

from tasks.config import TrainConfig
from tasks.scoring.example import Example
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.metrics import Figures, summarize
from tasks.train.trainer.replay_buffer import ReplayBuffer
from tasks.train.trainer.spo_step import spo_pack_loss
from tests.tasks.train.conftest import END, tiny_model

LONGEST, BATCH = 10, 32
RIGHT = 1 / 8
"""Success rate of pi_0: the first of its eight tokens among two, the second among four."""
PROMPTS = [20 + number % 4 for number in range(BATCH)]


def right(ids: list[int]) -> bool:
    """Whether a response succeeds."""
    return len(ids) == 5 and ids[-1] == END and ids[0] < 4 and ids[1] % 2 == 0


def pretrained() -> Any:
    """pi_0."""
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


def train(reference: Any, settings: TrainConfig, steps: int, *, rate: float, seed: int = 2) -> list[Figures]:
    """The figures of every step of training on its own samples, new and used again, with weights refreshed every ten
    steps; `settings` says how many of each a batch takes.
    """
    policy = Policy(copy.deepcopy(reference), layout="packed", chunk=1024)
    frozen = Reference(Policy(copy.deepcopy(reference), layout="packed", chunk=1024))
    optimizer = torch.optim.AdamW(policy.parameters(), rate, betas=(0.9, 0.95), weight_decay=0.0)
    generator, behaviour, found = torch.Generator().manual_seed(seed), copy.deepcopy(reference), list[Figures]()
    scorer, buffer = Policy(copy.deepcopy(reference), layout="packed", chunk=1024), ReplayBuffer(settings.replay, seed)
    for step in range(1, steps + 1):
        if step % 10 == 1:
            behaviour.load_state_dict(policy.causal_lm.state_dict())
            scorer.causal_lm.load_state_dict(policy.causal_lm.state_dict())
        counts = settings.counts(step)
        new = fresh(sampled(behaviour, generator)[: counts["online"]], scorer, step)
        batch = [*new, *buffer.draw(step, counts.get("replay", 0))]
        buffer.use(step, batch)
        pack = lay_out(batch)
        logp, entropy = policy(pack)
        loss, records = spo_pack_loss(pack, logp, frozen.logprobs(pack, {})[0], entropy, settings)
        optimizer.zero_grad()
        loss.mean().backward()
        norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0))
        optimizer.step()
        found.append(summarize(records, step) | {"grad_norm": norm})
    return found


def fresh(responses: list[list[int]], scorer: Policy, step: int) -> list[Example]:
    """New responses for `step`, with their log-probabilities under the weights that sampled them."""
    made = [example(f"{step}-{i}", PROMPTS[i], ids) for i, ids in enumerate(responses)]
    with torch.no_grad():
        logp = scorer(lay_out(made))[0].split([len(e.response_ids) for e in made])
    weights = (step - 1) // 10 * 10
    return [replace(e, sampled_logp=float(p.sum()), sampled_step=weights) for e, p in zip(made, logp, strict=True)]


def example(identity: str, prompt: int, ids: list[int]) -> Example:
    """A response with its reward."""
    terminal = 0.0 if right(ids) else -math.log(1e5)
    return Example(identity, "p", "online", (prompt,), tuple(ids), terminal, math.log(RIGHT), stopped=ids[-1] == END)


def mean(found: list[Figures], name: str) -> float:
    """Mean of a figure over the steps that have it."""
    values = [figures[name] for figures in found if name in figures]
    return sum(values) / len(values)
