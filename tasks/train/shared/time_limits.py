"""How long parts of training may take, from the bytes that they move and the slowest rate at which they should.

A checkpoint holds what is trained, AdamW's moments and, beside bfloat16, float32 weights: 14 bytes a parameter, seven
times a bfloat16 checkpoint of the model. For 8 billion parameters these are 112 GB: 19 minutes at 100 MB/s. What is
being published when a trainer is to stop is written first, and once more where a copy is kept for evaluation.
"""

from __future__ import annotations

import math
from pathlib import Path

from tasks.checkpoints.checkpoint import weight_files
from tasks.config import TrainConfig

STATE_COPIES = 7
"""A checkpoint in sizes of the reference's files, at most: those have two bytes a parameter or more."""
PUBLISHED_COPIES = 2
"""A publication in sizes of the reference's files, at most."""
LEAST_GRACE_S = 60
"""A stop waits at least that long for the checkpoint of a small model."""
LEAST_GROUP_TIMEOUT_S = 1800
"""Processes of training wait at least that long for each other, whatever the model's size."""
BEAT_S = 20.0
"""Time between two signs of life of the first process while the others wait for its work."""


def checkpoint_s(reference: Path, train: TrainConfig) -> float:
    """Seconds that writing or reading a checkpoint of a model like `reference` takes at `train.disk_mb_s`."""
    models = 2 if train.algorithm == "ppo" else 1  # PPO's value model is as large as its policy
    return models * STATE_COPIES * _size(reference) / (train.disk_mb_s * 1e6)


def publication_s(reference: Path, train: TrainConfig) -> float:
    """Seconds that publishing the weights of a model like `reference` takes at `train.disk_mb_s`."""
    return PUBLISHED_COPIES * _size(reference) / (train.disk_mb_s * 1e6)


def _size(reference: Path) -> int:
    """Bytes of the weights."""
    return sum(path.stat().st_size for path in weight_files(reference))


def grace_s(reference: Path, train: TrainConfig) -> int:
    """Seconds that a trainer gets, once it is asked to stop, to end its step and to write weights and a checkpoint."""
    return LEAST_GRACE_S + math.ceil(publication_s(reference, train) + checkpoint_s(reference, train))


def patience_s(reference: Path, train: TrainConfig) -> int:
    """Seconds after which a trainer that is to end, and still holds its run's lock, is taken as hung."""
    return grace_s(reference, train) + LEAST_GRACE_S


def group_timeout_s(reference: Path, train: TrainConfig) -> int:
    """Seconds after which processes of training take another one that they wait for as hung.

    What they legitimately wait for is the slowest of them at a checkpoint; while only the first one works, it lets the
    others hear from it (tasks/train/trainer/first_process.py).
    """
    return LEAST_GROUP_TIMEOUT_S + math.ceil(2 * checkpoint_s(reference, train))
