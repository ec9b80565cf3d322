"""A training step on sequences that begin alike: shared beginnings against whole sequences, and TRL's nearest trainer.

    python -m benchmarks.shared_prefix_training --model FOLDER       # a checkpoint, e.g. of SmolLM2-135M-Instruct
        [--trl-python ENV/bin/python]   # an environment with: pip install torch==2.13.0 trl==1.16.0 datasets
    python -m benchmarks.shared_prefix_training --llama-8b-layers 2 --problems 1 --prompt 700 --response 300
        --optimizer sgd --vocabulary 8192 --common 0
    python -m benchmarks.shared_prefix_training --model FOLDER --common 0 100 200 300 350 --problems 4

A batch is `--problems` prompts with `--responses` responses each; all prompts begin with the same `--common` tokens.
Each variant runs in a process of its own: forward, backward, clipping and update of the SPO step. `stored` means that
the reference's log-probabilities are known already. Printed are seconds a step (median; CPU seconds of the process with
one thread, wall seconds with more), trained tokens (prompts and responses, each as often as it occurs) a second, and
the largest resident memory beyond what the process held before its first step. With `--device cuda` the seconds are
of the wall and the memory is what the device allocated; the last column is the rate of 6 operations a parameter and
trained token, as a share of the rate of a large matrix product: with shared beginnings it may exceed 100%.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.trainer_step import PlainTorch, clock, last_line, peak_bytes, product_rate

VARIANTS = ("packed, stored", "shared, stored", "padded, stored", "packed", "shared")
TRL = "TRL A2PO"
TRL_MICRO_BATCH = 8
"""Sequences, as many as the packed layout has in a pass of 4096 tokens."""
WARM_UP = 2
"""Sequences of the step that is not timed."""


def data(options: argparse.Namespace, vocabulary: int) -> list[Any]:
    """Random sequences of the wanted lengths."""
    from tasks.scoring.example import Example

    chance = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(vocabulary) for _ in range(count))

    common = ids(options.common[0])
    prompts = [(*common, *ids(options.prompt - len(common))) for _ in range(options.problems)]
    return [
        Example(
            trajectory_id=f"{number}-{turn}",
            problem_id=str(number),
            source="online",
            prompt_ids=prompt,
            response_ids=ids(options.response),
            terminal=0.0 if turn % 2 else -11.5,
            y0=-2.0,
            stopped=True,
            behaviour_logprobs=(-math.log(vocabulary),) * options.response,
        )
        for number, prompt in enumerate(prompts)
        for turn in range(options.responses)
    ]


def model(options: argparse.Namespace) -> Any:
    """The checkpoint, or some layers of Llama-3.1-8B's widths with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if options.model:
        from tasks.engines.checkpoint import load_weights

        return load_weights(Path(options.model), options.dtype).to(options.device).eval()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=options.llama_8b_layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )
    torch.set_default_dtype(getattr(torch, options.dtype))
    with torch.device(options.device):
        made: Any = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return made.eval()


def our_step(options: argparse.Namespace) -> tuple[Callable[[Sequence[Any]], float], list[Any]]:
    """The trainer's SPO step in the variant's layout, and its batch."""
    import torch

    from tasks.config import SourceConfig, TrainConfig
    from tasks.scoring.policy import Policy
    from tasks.scoring.reference import Reference
    from tasks.train.trainer.spo_step import accumulate_spo, shares

    layout: Any = options.variant.split(",")[0]
    train = TrainConfig(
        sources={"online": SourceConfig(share=1.0)},
        batch_size=options.problems * options.responses,
        packing=layout,
        micro_batch_tokens=options.micro_batch_tokens,
        gradient_checkpointing=options.checkpointing,
    )
    policy = Policy(model(options), layout=layout, chunk=train.logprob_chunk_tokens)
    if options.checkpointing:
        policy.causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
        policy.causal_lm.train()
    batch = data(options, policy.head.weight.shape[0])
    stored = options.variant.endswith("stored")
    frozen = policy if stored else Policy(model(options), layout=layout, chunk=1024).requires_grad_(False)
    known = {e.trajectory_id: [-10.0] * len(e.response_ids) for e in batch} if stored else {}
    engine: Any = PlainTorch(policy, train, torch.device(options.device))
    if options.optimizer == "sgd":
        engine.optimizer = torch.optim.SGD(policy.parameters(), lr=1e-6)

    def step(members: Sequence[Any]) -> float:
        result = accumulate_spo(engine, Reference(frozen), shares(members, known, train, 1)[0], train)
        engine.step()
        return statistics.mean(record.loss for record in result.records)

    return step, batch


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One variant, in this process."""
    import torch

    cuda = options.device == "cuda"
    torch.set_num_threads(options.threads)
    now = time.monotonic if options.threads > 1 and not cuda else lambda: clock(cuda)
    step, batch = our_step(options)
    before = peak_bytes(cuda)
    step(batch if cuda else batch[:WARM_UP])  # kernels are compiled for the shapes that are timed
    losses: list[float] = []
    seconds: list[float] = []
    for _ in range(options.steps):
        began = now()
        losses.append(step(batch))
        seconds.append(now() - began)
    return {
        "seconds": statistics.median(seconds),
        "tokens": sum(e.length for e in batch),
        "memory_mib": (peak_bytes(cuda) - before) / (1 << 20),
        "first_loss": losses[0],
        "share": utilisation(options, statistics.median(seconds), batch) if cuda else None,
    }


def utilisation(options: argparse.Namespace, seconds: float, batch: Sequence[Any]) -> float:
    """6 operations a parameter and trained token, over what a large matrix product does in the same time."""
    parameters = sum(weight.numel() for weight in model(options).parameters())
    return 6 * parameters * sum(e.length for e in batch) / seconds / product_rate(8192, options.dtype, "cuda")


def trl_result(options: argparse.Namespace) -> dict[str, Any]:
    """TRL's step on the same sequences and model, in its own environment."""
    config = json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))
    batch = data(options, config["vocab_size"])
    task = {
        "folder": options.model,
        "steps": options.steps,
        "micro_batch": TRL_MICRO_BATCH,
        "warm_up": WARM_UP,
        "sequences": [[e.prompt_ids, e.response_ids, e.y0, e.terminal] for e in batch],
    }
    script = Path(__file__).with_name("trainer_step_trl.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        return last_line([options.trl_python, str(script), str(path)]) | {"tokens": sum(e.length for e in batch)}


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="checkpoint folder")
    parser.add_argument("--llama-8b-layers", type=int, default=0)
    parser.add_argument("--vocabulary", type=int, default=8192, help="of --llama-8b-layers")
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--responses", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=386)
    parser.add_argument("--common", type=int, nargs="+", default=[300])
    parser.add_argument("--response", type=int, default=60)
    parser.add_argument("--micro-batch-tokens", type=int, default=4096)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--trl-python", help="interpreter of an environment with TRL; without it that row is left out")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if bool(options.model) == bool(options.llama_8b_layers):
        parser.error("give either --model or --llama-8b-layers")
    return options


def main() -> None:
    """Run every variant and print the table."""
    options = arguments()
    if options.variant:
        print(json.dumps(measure(options)))
        return
    print(
        "| common tokens | variant | s a step | tokens/s | memory MiB | loss | of the limit |\n" + "|---" * 7 + "|",
        flush=True,
    )
    everything = list(options.common)
    for common in everything:
        options.common = [common]
        for variant in (*options.variants, *([TRL] if options.trl_python else [])):
            command = [sys.executable, "-m", "benchmarks.shared_prefix_training", *sys.argv[1:]]
            command += ["--common", str(common), "--variant", variant]
            found = trl_result(options) if variant == TRL else last_line(command)
            share = f"{found['share']:.0%}" if found.get("share") else ""
            print(
                f"| {common} | {variant} | {found['seconds']:.3g} | {found['tokens'] / found['seconds']:.0f} "
                f"| {found['memory_mib']:.0f} | {found['first_loss']:.5f} | {share} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
