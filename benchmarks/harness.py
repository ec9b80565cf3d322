"""Parts that benchmarks share: command lines, clocks, medians of interleaved runs, tables, random models, peers.

A benchmark is run as `python -m benchmarks.NAME`. Its docstring is its help. Figures stand in
docs/evidence/benchmarks.md, each beside its command.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

SHAPES = {
    "0.5M": (400, 96, 288, 4, 4, 4),
    "0.9M": (400, 128, 384, 4, 4, 4),
    "5M": (512, 256, 768, 6, 8, 8),
    "30M": (4096, 512, 1536, 8, 8, 8),
    "trainer": (128_256, 64, 256, 4, 4, 2),
    "smollm2-135m": (49_152, 576, 1536, 30, 9, 3),
    "llama-3.2-1b": (128_256, 2048, 8192, 16, 32, 8),
    "llama-3.1-8b-widths": (8192, 4096, 14_336, 4, 32, 8),
}
"""Vocabulary, hidden and intermediate size, layers, heads and key-value heads of Llamas."""


def options(doc: str | None, *given: str | tuple[str, ...], **defaults: Any) -> argparse.Namespace:
    """Parses the command line. `given` are positional: names of paths, or the choices of `part`.

    The default of an option decides its type. False is a switch, a list takes several values, a tuple holds the
    choices, its first the default. None is an optional text. A type in place of a default makes the option required.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in given:
        kind: Any = {"type": Path} if isinstance(name, str) else {"choices": name}
        parser.add_argument(name if isinstance(name, str) else "part", **kind)
    for name, default in defaults.items():
        flag = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, required=True)
        elif isinstance(default, list):
            kind = type(default[0]) if default else str
            parser.add_argument(flag, nargs="*", type=kind, default=default, help=f"default: {default}")
        elif isinstance(default, tuple):
            parser.add_argument(flag, choices=default, default=default[0])
        else:
            kind = str if default is None else type(default)
            parser.add_argument(flag, type=kind, default=default, help=f"default: {default}")
    return parser.parse_args()


def clock(*, wall: bool = False, cuda: bool = False) -> float:
    """CPU seconds of this process, which other programs disturb less; wall seconds with threads or a device."""
    if cuda:
        import torch

        torch.cuda.synchronize()
    return time.perf_counter() if wall or cuda else time.process_time()


def cpu_s() -> float:
    """User and system seconds of this process and of its finished children."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def peak_bytes(*, cuda: bool = False) -> int:
    """Largest memory of this process so far: allocated on the device, or resident."""
    if cuda:
        import torch

        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def seconds(run: Callable[[], object], now: Callable[[], float] = clock) -> float:
    """Duration of one call."""
    began = now()
    run()
    return now() - began


def median_s(run: Callable[[], object], now: Callable[[], float] = clock, repeats: int = 12) -> float:
    """Median duration of `repeats` calls, after two that do not count."""
    return statistics.median([seconds(run, now) for _ in range(repeats + 2)][2:])


def interleaved(ways: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median figure of each way; the ways take turns, so that a busy minute hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return {name: statistics.median(figures) for name, figures in found.items()}


def show(rows: Iterable[Mapping[str, Any]], title: str = "") -> None:
    """Prints a Markdown table, each row as soon as it is there."""
    for number, row in enumerate(rows):
        if not number:
            print(f"\n{title}\n" if title else "", f"| {' | '.join(row)} |", "|---" * len(row) + "|", sep="\n")
        print(f"| {' | '.join(_cell(value) for value in row.values())} |", flush=True)


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def machine() -> str:
    """Processors and load of this machine, for the first line of a result."""
    return f"{os.uname().machine}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"


def last_line(command: Sequence[str], task: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object that a command prints last; `task` is written to a file whose name is appended."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(task, file)
        file.flush()
        done = subprocess.run([*command, *([file.name] if task else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def llama(shape: str, *, dtype: str = "float32", device: str = "cpu") -> Any:
    """A Llama of that shape with random weights, always the same. It draws no end token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary, hidden, inner, layers, heads, kv_heads = SHAPES[shape]
    torch.manual_seed(0)
    sizes = {"vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "max_position_embeddings": 8192}
    marks = {"bos_token_id": None, "pad_token_id": 0, "eos_token_id": vocabulary}
    config = LlamaConfig(**sizes, **marks, tie_word_embeddings=shape != "llama-3.1-8b-widths")
    torch.set_default_dtype(getattr(torch, dtype))
    with torch.device(device):
        made: Any = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return made.eval()


def save(model: Any, folder: Path) -> Path:
    """Writes a random model as a checkpoint that engines open; it has no words."""
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def product_rate(size: int, dtype: str, device: str) -> float:
    """Operations a second of a product of two square matrices."""
    import torch

    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    return 2 * size**3 / median_s(lambda: left @ right, lambda: clock(cuda=device == "cuda"))
