"""Tokens a second on one GPU: the embedded engine, transformers' `generate` and its continuous batching, and the limit.

    python -m benchmarks.sampling_gpu [--shape smollm2-135m llama-3.2-1b] [--rows 128 512] [--peers generate continuous]

The models have the shapes of published ones and random weights, so nothing is downloaded and no response ends early:
every engine draws `--tokens` tokens for every response. The limit of a step is the larger of two times: reading every
weight and every stored key and value once, at the rate of a large copy, and the products of all rows, at the rate of a
large product; both are measured in the same run. Seconds are of the wall, on a CPU of the processor.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainer_step import clock, median_s, product_rate
from tasks.config.sampling import EngineConfig
from tasks.engines import SamplingEngine, open_here
from tasks.engines.protocol import Request

COMMON = {"max_position_embeddings": 8192, "tie_word_embeddings": True, "bos_token_id": None, "pad_token_id": 0}
SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "llama-3.2-1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
}
PROMPT, SHARED = 386, 300
"""Tokens of a prompt, and how many of them all prompts begin with."""
SAMPLES = 4
Prompt = tuple[int, ...]


def main() -> None:
    """Print one line for each shape, number of rows and engine."""
    options = parsed()
    copied, multiplied = ceilings(options.device)
    print(
        f"copy {copied / 1e9:.0f} GB/s (read and written), bfloat16 products {multiplied / 1e12:.1f} TFLOP/s",
        flush=True,
    )
    for shape in options.shape:
        with tempfile.TemporaryDirectory() as folder:
            made = written(Path(folder), shape, options.device)
            for rows in options.rows:
                prompts = drawn_prompts(rows // SAMPLES, made.config.vocab_size)
                limit = limit_s(made, rows, options.tokens, copied, multiplied)
                rate = rows * options.tokens / limit
                print(f"{shape}, {rows} rows of {options.tokens} tokens; limit {rate:.0f} tokens/s", flush=True)
                compared(Path(folder), made, prompts, limit, options)


def compared(folder: Path, model: Any, prompts: Sequence[Prompt], limit: float, options: argparse.Namespace) -> None:
    """The engine and each peer; a peer that fails says why."""
    rows = len(prompts) * SAMPLES
    config = EngineConfig(max_batch=rows)
    engine = open_here(config, folder, dtype="bfloat16")
    run = lambda tokens: embedded(engine, prompts, tokens)  # noqa: E731
    ours = report("embedded engine", rows, limit, run, options)
    engine.close()
    for peer in options.peers:
        called = {"generate": generated, "continuous": continuously}[peer]
        try:
            theirs = report(peer, rows, limit, lambda tokens: called(model, prompts, tokens), options)  # noqa: B023
        except Exception as error:  # noqa: BLE001
            print(f"  {peer} failed: {error!r:.300}")
            continue
        print(f"  embedded engine / {peer}: {ours / theirs:.2f}x", flush=True)


def report(name: str, rows: int, limit: float, run: Callable[[int], int], options: argparse.Namespace) -> float:
    """Print and return tokens a second; a first run of few tokens is not timed."""
    run(4)
    cuda = options.device == "cuda"
    began = clock(cuda)
    found = run(options.tokens)
    seconds = clock(cuda) - began
    assert found == rows * options.tokens, f"{name} drew {found} tokens instead of {rows * options.tokens}"
    step_ms = 1000 * seconds / options.tokens
    print(
        f"  {name:16} {found / seconds:9.0f} tokens/s, {step_ms:.1f} ms a step, {limit / seconds:.1%} of the limit",
        flush=True,
    )
    return found / seconds


def ceilings(device: str) -> tuple[float, float]:
    """Bytes a second of a large copy, and operations a second of a large bfloat16 product."""
    size = 8192 if device == "cuda" else 512
    source = torch.randn(4 * size * size, device=device)
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / median_s(lambda: target.copy_(source), cuda=device == "cuda")
    return copied, product_rate(size, "bfloat16", device)


def written(folder: Path, shape: str, device: str) -> Any:
    """A random model of that shape in bfloat16 on `device`, saved to `folder`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    no_token = SHAPES[shape]["vocab_size"]  # so that no response ends early
    with torch.device(device):
        made: Any = LlamaForCausalLM(LlamaConfig(**COMMON, **SHAPES[shape], eos_token_id=no_token)).eval()
    torch.set_default_dtype(torch.float32)
    made.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return made


def drawn_prompts(count: int, vocabulary: int) -> list[Prompt]:
    """Distinct prompts with a common beginning."""
    chance = random.Random(0)
    shared = [chance.randrange(vocabulary) for _ in range(SHARED)]
    return [(*shared, *(chance.randrange(vocabulary) for _ in range(PROMPT - SHARED))) for _ in range(count)]


def limit_s(model: Any, rows: int, tokens: int, copied: float, multiplied: float) -> float:
    """Seconds of all steps at the measured ceilings; prompts are computed once and not counted."""
    config = model.config
    parameters = sum(weight.numel() for weight in model.parameters())
    per_token = (
        2
        * 2
        * config.num_hidden_layers
        * config.num_key_value_heads
        * (config.hidden_size // config.num_attention_heads)
    )
    distinct = SHARED + (rows // SAMPLES) * (PROMPT - SHARED)
    total = 0.0
    for step in range(tokens):
        stored = per_token * (distinct + rows * step)
        total += max((2 * parameters + stored) / copied, 2 * parameters * rows / multiplied)
    return total


def embedded(engine: SamplingEngine, prompts: Sequence[Prompt], tokens: int) -> int:
    """Tokens drawn by the embedded engine."""
    requests = [Request(prompt, SAMPLES, seed=number, max_tokens=tokens) for number, prompt in enumerate(prompts)]
    return sum(len(completion.token_ids) for completion in engine.sample(requests))


@torch.inference_mode()
def generated(model: Any, prompts: Sequence[Prompt], tokens: int) -> int:
    """Tokens drawn by `generate`, all rows at once."""
    ids = torch.tensor([prompt for prompt in prompts for _ in range(SAMPLES)], device=model.device)
    settings = {"do_sample": True, "top_k": 0, "min_new_tokens": tokens, "max_new_tokens": tokens, "pad_token_id": 0}
    out = model.generate(ids, attention_mask=torch.ones_like(ids), eos_token_id=None, **settings)
    return int(out[:, ids.shape[1] :].numel())


def continuously(model: Any, prompts: Sequence[Prompt], tokens: int) -> int:
    """Tokens drawn by transformers' continuous batching."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    inputs = [list(prompt) for prompt in prompts for _ in range(SAMPLES)]
    drawing = GenerationConfig(max_new_tokens=tokens, do_sample=True, top_k=0, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(max_requests_per_batch=len(inputs))
    found = model.generate_batch(
        inputs=inputs, generation_config=drawing, continuous_batching_config=batching, warmup=False
    )
    return sum(len(output.generated_tokens) for output in found.values())


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=tuple(SHAPES), default=tuple(SHAPES))
    parser.add_argument("--rows", nargs="+", type=int, default=[128, 512], help="responses decoded at once")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of every response")
    parser.add_argument("--peers", nargs="*", choices=("generate", "continuous"), default=("generate",))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser.parse_args()


if __name__ == "__main__":
    main()
