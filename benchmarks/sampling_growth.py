"""Draws how sampling grows with the number of prompts and with what they share, docs/pictures/sampling-growth.png.

    python -m benchmarks.sampling_growth

A random model of 5M weights, prompts of 386 tokens, 4 responses each, one thread: tokens per CPU second of the embedded
engine, with nothing kept between the calls.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import pyplot
from transformers.utils import logging

from benchmarks.sampling import SIZES, saved_model
from tasks.engines.protocol import Request
from tasks.engines.transformers_engine import TransformersEngine

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "sampling-growth.png"
PROMPT, SAMPLES = 386, 4
COUNTS = (8, 16, 32, 64, 128, 256, 512)
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=32, help="tokens of a response")
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        saved_model(SIZES["5M"], Path(name))
        engine = TransformersEngine(Path(name), dtype="float32", max_batch=128, prefix_store_bytes=0)
        rate(engine, 8, 0.5, 4)
        by_count = {
            share: [rate(engine, count, share, options.tokens) for count in COUNTS] for share in (0.0, 300 / PROMPT)
        }
        by_share = {count: [rate(engine, count, share, options.tokens) for share in SHARES] for count in (32, 128)}
    draw(by_count, by_share, options.out)


def rate(engine: TransformersEngine, prompts: int, share: float, tokens: int) -> float:
    """Tokens per CPU second over `prompts` prompts whose first `share` of tokens is the same."""
    drawing = random.Random(0)
    common = [drawing.randrange(2, 512) for _ in range(round(share * PROMPT))]
    texts = [(*common, *(drawing.randrange(2, 512) for _ in range(PROMPT - len(common)))) for _ in range(prompts)]
    requests = [Request(text, SAMPLES, seed=number, max_tokens=tokens) for number, text in enumerate(texts)]
    engine._store.clear()
    began = time.process_time()
    drawn = sum(len(completion.token_ids) for completion in engine.sample(requests))
    found = drawn / (time.process_time() - began)
    print(f"{prompts:4} prompts, {share:4.0%} shared: {found:8,.0f} tokens/CPU-s", flush=True)
    return found


def draw(by_count: dict[float, Sequence[float]], by_share: dict[int, Sequence[float]], path: Path) -> None:
    """Two panels, from measured rates."""
    mpl.use("Agg")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for share, rates in by_count.items():
        left.plot(COUNTS, rates, marker="o", label=f"{share:.0%} of a prompt shared")
    left.set_xscale("log", base=2)
    left.set_xticks(COUNTS, [str(count) for count in COUNTS])
    left.set_xlabel("prompts")
    left.set_ylabel("tokens per CPU second")
    for count, rates in by_share.items():
        right.plot([100 * share for share in SHARES], rates, marker="o", label=f"{count} prompts")
    right.set_xlabel("% of a prompt that all share")
    for panel in (left, right):
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
