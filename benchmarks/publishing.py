"""Handing weights over: through a folder on disk or in shared memory, whole or as adapters. Medians.

python -m benchmarks.publishing --disk FOLDER                                # seconds to publish and to take up
python -m benchmarks.publishing --disk FOLDER --model CHECKPOINT --ranks 4 8 16    # bytes, too: whole against adapters
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.sampling import SIZES, saved_model
from tasks.config import AdapterConfig
from tasks.engines.checkpoint import load_weights, policy_id
from tasks.engines.transformers_engine import TransformersEngine
from tasks.scoring import lora
from tasks.train.shared import published_weights

LARGER = {"30M": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 4096}}


def main() -> None:
    """Measure every size on both paths and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disk", type=Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--model", type=Path, help="checkpoint to publish whole and as adapters")
    parser.add_argument("--ranks", type=int, nargs="+", default=[16], help="ranks of adapters of all linear layers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model is not None:
        compare_adapters(options.model, options.disk, options.ranks, options.rounds)
        return
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


def compare_adapters(model: Path, disk: Path, ranks: list[int], rounds: int) -> None:
    """Print bytes of a publication, and seconds to publish and to take up, of the whole model and of adapters."""
    print("| published | bytes | fewer | publish, s | take up, s |\n|---|---|---|---|---|")
    engine, base, whole = TransformersEngine(model, dtype="float32"), policy_id(model), 0
    for rank in (None, *ranks):
        policy = load_weights(model, "float32")
        config = None if rank is None else AdapterConfig(rank=rank)
        if config is not None:
            lora.add_adapters(policy, config)
        found = [round_trip(engine, policy, model, config, base, disk, step) for step in range(rounds)]
        size, publishing, loading = (statistics.median(column) for column in zip(*found, strict=True))
        whole = whole or size
        name = "whole" if rank is None else f"adapter, rank {rank}"
        print(f"| {name} | {size:,.0f} | {whole / size:.1f} | {publishing:.2f} | {loading:.2f} |", flush=True)


def round_trip(
    engine: TransformersEngine, policy: Any, model: Path, config: AdapterConfig | None, base: str, disk: Path, step: int
) -> tuple[float, float, float]:
    """Bytes on disk, seconds to publish and seconds until the engine has the changed weights of one step."""
    with torch.no_grad():
        changed = [p for n, p in policy.named_parameters() if ("lora_B" in n if config else n.endswith("norm.weight"))]
        for parameter in changed:
            parameter.add_(1e-3 * torch.randn_like(parameter))
    with tempfile.TemporaryDirectory(dir=disk) as name:
        root, began = Path(name), time.monotonic()
        if config is None:
            published_weights.publish(root, step, policy, policy.state_dict(), like=model)
        else:
            state = {n: value for n, value in policy.state_dict().items() if lora.is_adapters(n)}
            published_weights.publish_adapter(
                root,
                step,
                lambda folder: lora.save_adapter(policy, state, config, model.resolve(), folder),
                base=base,
            )
        published = time.monotonic()
        size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
        with published_weights.newest_held(root) as held:
            assert held is not None
            engine.refresh(held.folder)
        return size, published - began, time.monotonic() - published


if __name__ == "__main__":
    main()
