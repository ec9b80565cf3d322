"""Handing weights over: through a folder on disk or in shared memory. Seconds to publish and to take up, medians.

python -m benchmarks.publishing --disk FOLDER
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.sampling import SIZES, saved_model
from tasks.engines.transformers_engine import TransformersEngine
from tasks.train.shared import published_weights

LARGER = {"30M": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 4096}}


def main() -> None:
    """Measure every size on both paths and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disk", type=Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | publish: disk | memory | ratio | take up: disk | memory | ratio |\n|---|---|---|---|---|---|---|")
    for name, sizes in (SIZES | LARGER).items():
        found = [measured(sizes, parent, options.rounds) for parent in (options.disk, published_weights.SHARED_MEMORY)]
        cells = [f"{a:.3f} | {b:.3f} | {a / b:.2f}" for a, b in zip(*found, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def measured(sizes: dict[str, int], parent: Path, rounds: int) -> tuple[float, float]:
    """Median seconds to publish, and to load what was published into a running engine."""
    with tempfile.TemporaryDirectory() as like, tempfile.TemporaryDirectory(dir=parent) as name:
        model = saved_model(sizes, Path(like))
        engine = TransformersEngine(Path(like), dtype="float32")
        publishing: list[float] = []
        loading: list[float] = []
        for step in range(rounds):
            with torch.no_grad():
                model.lm_head.weight.mul_(1.01)
            began = time.monotonic()
            published_weights.publish(Path(name), step, model, model.state_dict(), like=Path(like))
            published_weights.prune(Path(name), set())
            publishing.append(time.monotonic() - began)
            began = time.monotonic()
            with published_weights.newest_held(Path(name)) as held:
                assert held is not None
                engine.refresh(held.folder)
            loading.append(time.monotonic() - began)
    return statistics.median(publishing), statistics.median(loading)


if __name__ == "__main__":
    main()
