"""What publishing a model of some gigabytes costs, part by part: seconds, and bytes that the process reads and writes.

    python -m benchmarks.publishing_large --disk FOLDER [--gb 2]

The weights are bfloat16 and in this process's memory, as they are for a single trainer process on a CPU: gathering them
from GPUs comes on top. With `train.publish = "background"` training waits for the first part alone, the copy, and the
rest is done by a thread, as here; with "waiting" there is no copy and training waits for the rest.

Bytes are those of /proc/self/io (rchar and wchar: what is asked of the system, cached or not).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.train.shared import atomic, published_weights
from tasks.train.trainer.deepspeed_engine import on_cpu
from tasks.train.trainer.publisher import Publications

WIDTH = 2048


def model_of(gigabytes: float) -> Any:
    """A Llama whose bfloat16 weights take about so much; its numbers are arbitrary."""
    config = LlamaConfig(
        vocab_size=32768, hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=1, num_attention_heads=16,
        num_key_value_heads=16, tie_word_embeddings=True,
    )  # fmt: skip
    layer = 4 * WIDTH * WIDTH + 3 * WIDTH * 4 * WIDTH
    config.num_hidden_layers = max(1, round((gigabytes * 1e9 / 2 - 32768 * WIDTH) / layer))
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(0.01 * (number % 7 - 3))
    model.tie_weights()
    return model


def io_bytes() -> tuple[int, int]:
    """Bytes that this process has read and written so far."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["rchar"]), int(lines["wchar"])


class Parts:
    """Seconds and bytes of named parts."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, int, int]] = {}

    @contextmanager
    def measured(self, name: str) -> Generator[None]:
        """Add what the block takes to part `name`."""
        began, (read, written) = time.monotonic(), io_bytes()
        yield
        seconds, (read_now, written_now) = time.monotonic() - began, io_bytes()
        before = self.found.get(name, (0.0, 0, 0))
        self.found[name] = (before[0] + seconds, before[1] + read_now - read, before[2] + written_now - written)

    def wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, measured as part `name`."""

        def call(*given: Any, **named: Any) -> Any:
            with self.measured(name):
                return function(*given, **named)

        return call


def published(model: Any, root: Path, like: Path, step: int, keep: Path | None) -> Parts:
    """Publish once into `root`, and keep a copy for evaluation in `keep`."""
    parts = Parts()
    own = (model.save_pretrained, published_weights.record_policy_id, atomic.finish_folder)
    model.save_pretrained = parts.wrapped("write the files", own[0])
    published_weights.record_policy_id = parts.wrapped("hash them (policy id)", own[1])
    atomic.finish_folder = parts.wrapped("fsync and rename", own[2])
    publications = Publications()
    try:
        with parts.measured("copy the weights (training waits)"):
            state = on_cpu(model.state_dict(), apart=True)
        with parts.measured("all of the publication, by a thread"):
            publications.begin(step, lambda: published_weights.publish(root, step, model, state, like=like))
            found = publications.taken(wait=True)
    finally:
        publications.close()
        model.save_pretrained, published_weights.record_policy_id, atomic.finish_folder = own
    if keep is not None and found is not None:
        with parts.measured("copy for evaluation, to disk"):
            published_weights.keep(found, keep)
    return parts


def main() -> None:
    """Publish twice by each path and print the second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--disk", type=Path, required=True, help="folder on the disk to measure")
    parser.add_argument("--gb", type=float, default=2.0)
    given = parser.parse_args()
    model = model_of(given.gb)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    print(f"{size / 1e9:.2f} GB of weights\n\n| hand-over | part | s | read, GB | written, GB |\n|---|---|---|---|---|")
    for name, parent in (("disk", given.disk), ("memory", published_weights.SHARED_MEMORY)):
        with tempfile.TemporaryDirectory(dir=parent) as root, tempfile.TemporaryDirectory(dir=given.disk) as beside:
            like, kept = Path(beside) / "like", Path(beside) / "kept"
            like.mkdir()
            parts = Parts()
            for step in (1, 2):
                parts = published(model, Path(root), like, step, kept if name == "memory" else None)
                for path in Path(root).glob("step-*"):
                    if not path.name.endswith(str(step)):
                        atomic.delete_folder(path)
            for part, (seconds, read, written) in parts.found.items():
                print(f"| {name} | {part} | {seconds:.1f} | {read / 1e9:.2f} | {written / 1e9:.2f} |", flush=True)


if __name__ == "__main__":
    main()
