"""Seconds to publish weights and to load them into an engine, through a disk and through shared memory.

    python -m benchmarks.publishing --disk FOLDER [--shape 30M] [--model CHECKPOINT] [--rounds 5]

`publish` is the time that training waits with `train.publish = "waiting"`. With "background" it waits for `copy` alone;
a thread does the rest. `load` is the time until a running engine has the new weights. Wall seconds, medians.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness
from tasks.checkpoints.checkpoint import load_weights
from tasks.engines.transformers_engine import TransformersEngine
from tasks.train.shared import published_weights
from tasks.train.trainer.deepspeed_engine import on_cpu


def rows(options: Any) -> Iterator[dict[str, Any]]:
    """A row for each place."""
    with tempfile.TemporaryDirectory() as scratch:
        like = Path(options.model or harness.save(harness.llama(options.shape), Path(scratch)))
        model, engine = load_weights(like, "float32"), TransformersEngine(like, dtype="float32")
        size = sum(weight.nbytes for weight in model.parameters()) / 1e9
        for place, parent in (("disk", options.disk), ("memory", published_weights.SHARED_MEMORY)):
            with tempfile.TemporaryDirectory(dir=parent) as root:
                took = [round_trip(model, engine, like, Path(root), step) for step in range(options.rounds + 1)][1:]
            copying, publishing, loading = map(statistics.median, zip(*took, strict=True))
            yield {"place": place, "GB": size, "copy, s": copying, "publish, s": publishing, "load, s": loading}


def round_trip(model: Any, engine: TransformersEngine, like: Path, root: Path, step: int) -> tuple[float, float, float]:
    """Seconds to copy, to publish and to load the weights of one step."""
    with torch.no_grad():
        model.lm_head.weight.mul_(1.01)
    began = harness.clock(wall=True)
    state = on_cpu(model.state_dict(), apart=True)
    copied = harness.clock(wall=True)
    published_weights.publish(root, step, model, state, like=like)
    published = harness.clock(wall=True)
    with published_weights.newest_held(root) as held:
        assert held is not None
        engine.refresh(held.folder)
    loaded = harness.clock(wall=True)
    published_weights.prune(root, {step})
    return copied - began, published - copied, loaded - published


if __name__ == "__main__":
    torch.set_num_threads(1)
    harness.show(rows(harness.options(__doc__, disk=Path, shape=("30M", *harness.SHAPES), model=None, rounds=5)))
