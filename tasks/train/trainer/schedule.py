"""The learning rate: linear warm-up, then constant (paper, section 5); where asked for, a linear decay at the end."""

from __future__ import annotations

from tasks.config import TrainConfig


def rate_factor(update: int, train: TrainConfig) -> float:
    """Share of the learning rate in the update after `update` finished ones, of which PPO makes several a step."""
    in_a_step = train.ppo.epochs * train.ppo.minibatches if train.algorithm == "ppo" else 1
    optimizer = train.optimizer
    decay = decay_factor(update, train.steps * in_a_step, optimizer.decay_steps * in_a_step)
    return min(warmup_factor(update, optimizer.warmup_steps), decay)


def warmup_factor(update: int, warmup: int) -> float:
    """From 1/warmup in the first update to 1."""
    return min(1.0, (update + 1) / max(1, warmup))


def decay_factor(update: int, updates: int, decay: int) -> float:
    """1 until the last `decay` of all `updates`, then down to 1/decay in the last; always 1 where `decay` is 0."""
    return min(1.0, max(0, updates - update) / decay) if decay else 1.0
