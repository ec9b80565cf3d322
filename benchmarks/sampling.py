"""Tokens per CPU second: the embedded engine against transformers' `generate`, and vLLM where it is installed.

    python -m benchmarks.sampling                              # 0.9M parameters, 300-token prompt
    python -m benchmarks.sampling --parameters 5M --prompt 20
    python -m benchmarks.sampling --engine vllm --prompt 40     # in vLLM's environment

Every engine draws from one prompt with the same random model, whose end token is hardly ever drawn, at temperature 1,
one thread, float32. `generate` samples `--peer-samples` in batches of the same size as the engine's.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tasks.engines.protocol import Request, SamplingEngine

SIZES = {
    "0.5M": {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 400},
    "0.9M": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 400},
    "5M": {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 512},
}


def main() -> None:
    """Measure and print one line per engine."""
    options = parsed()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = saved_model(SIZES[options.parameters], folder)
        prompt = tuple((7 * position + 3) % model.config.vocab_size for position in range(options.prompt))
        print(f"{model.num_parameters():,} parameters, prompt {options.prompt}, {options.tokens} tokens a response")
        if options.engine == "vllm":
            report("vLLM", options.samples, measured(lambda: sampled(vllm(folder, options.batch), prompt, options)))
            return
        engine = embedded(folder, options.batch)
        sampled(engine, prompt, options, n=8)()
        ours = measured(lambda: sampled(engine, prompt, options))
        report("embedded engine", options.samples, ours)
        groups = measured(lambda: sampled(engine, prompt, options, prompts=options.prompts))
        report(f"embedded engine, {options.prompts} prompts", options.samples, groups)
        if options.peer_samples:
            peer = measured(lambda: generated(model, prompt, options))
            report("generate", options.peer_samples, peer)
            print(f"embedded engine / generate: {ours / peer:.1f}x")
            if options.continuous:
                paged = measured(lambda: continuously(model, prompt, options))
                report("continuous batching", options.peer_samples, paged)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", choices=SIZES, default="0.9M")
    parser.add_argument("--prompt", type=int, default=300, help="tokens of the prompt")
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--peer-samples", type=int, default=256, help="samples drawn with generate; 0 leaves it out")
    parser.add_argument("--prompts", type=int, default=32, help="distinct prompts of the second measurement")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--continuous", action="store_true", help="transformers' continuous batching as well")
    parser.add_argument("--engine", choices=("embedded", "vllm"), default="embedded")
    return parser.parse_args()


def saved_model(sizes: dict[str, int], folder: Path) -> Any:
    """A random Llama and a tokenizer that vLLM can load."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        **sizes,
        intermediate_size=3 * sizes["hidden_size"],
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    vocabulary = {chr(0x4E00 + number): number for number in range(sizes["vocab_size"])}
    whole = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    PreTrainedTokenizerFast(tokenizer_object=whole, eos_token=chr(0x4E01)).save_pretrained(folder)
    return model


def embedded(folder: Path, batch: int) -> SamplingEngine:
    """The transformers engine."""
    from tasks.engines.transformers_engine import TransformersEngine

    return TransformersEngine(folder, dtype="float32", max_batch=batch)


def vllm(folder: Path, batch: int) -> SamplingEngine:
    """The vLLM engine."""
    from tasks.engines.vllm_engine import VllmEngine

    return VllmEngine(folder, dtype="float32", max_batch=batch)


def sampled(
    engine: SamplingEngine,
    prompt: tuple[int, ...],
    options: argparse.Namespace,
    *,
    n: int | None = None,
    prompts: int = 1,
) -> Callable[[], int]:
    """Draw the samples, evenly over `prompts` prompts that differ in their first token; tokens drawn."""
    share = (n or options.samples) // prompts
    requests = [Request((1 + i, *prompt[1:]), share, seed=i, max_tokens=options.tokens) for i in range(prompts)]
    return lambda: sum(len(item.token_ids) for item in engine.sample(requests))


@torch.inference_mode()
def _generate(model: Any, prompt: tuple[int, ...], count: int, tokens: int) -> int:
    ids = torch.tensor([prompt])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        num_return_sequences=count,
        max_new_tokens=tokens,
    )
    return int((out[:, len(prompt) :] != model.config.pad_token_id).sum())


def generated(model: Any, prompt: tuple[int, ...], options: argparse.Namespace) -> Callable[[], int]:
    """Draw with `generate`; tokens drawn."""
    full, rest = divmod(options.peer_samples, options.batch)
    counts = [options.batch] * full + ([rest] if rest else [])
    return lambda: sum(_generate(model, prompt, count, options.tokens) for count in counts)


def continuously(model: Any, prompt: tuple[int, ...], options: argparse.Namespace) -> Callable[[], int]:
    """Draw with transformers' continuous batching; tokens drawn.

    Its cache is bounded to what the requests need: by default it takes all memory there is.
    """
    from transformers import ContinuousBatchingConfig, GenerationConfig

    count, page = options.peer_samples, 32
    pages = count * (-(-(len(prompt) + options.tokens) // page) + 1)
    drawing = GenerationConfig(
        max_new_tokens=options.tokens, do_sample=True, top_k=0, eos_token_id=1, pad_token_id=model.config.pad_token_id
    )
    batching = ContinuousBatchingConfig(
        page_size=page, num_blocks=pages, max_batch_tokens=512, max_requests_per_batch=options.batch
    )
    arguments = {"generation_config": drawing, "continuous_batching_config": batching, "warmup": False}

    def draw() -> int:
        found = model.generate_batch(inputs=[list(prompt)] * count, **arguments)
        return sum(len(output.generated_tokens) for output in found.values())

    return draw


def measured(prepared: Callable[[], Callable[[], int]]) -> float:
    """Tokens per CPU second of this process, preparation left out."""
    work = prepared()
    start = time.process_time()
    tokens = work()
    return tokens / (time.process_time() - start)


def report(name: str, samples: int, rate: float) -> None:
    """One line of the result."""
    print(f"{name:32} {samples:5} samples {rate:10,.0f} tokens/CPU-s", flush=True)


if __name__ == "__main__":
    main()
