"""Cost of an SPO step: ours, ours with stored reference log-probabilities, and the straightforward one.

    python -m benchmarks.trainer_step [--vocabulary 128256] [--sequences 8] [--steps 3] [--hidden 64]

Each variant runs in a process of its own on the same model and data: CPU seconds and wall seconds per step (median),
and the largest resident memory beyond what the process held before its first step. `plain torch` is our step with
torch's optimizer in place of DeepSpeed: the difference is DeepSpeed's overhead.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

VARIANTS = ("ours", "ours, stored reference", "ours, plain torch", "padded, full logits")


def data(sequences: int, vocabulary: int) -> list[Any]:
    """Sequences of uneven length: most short, some ten times longer."""
    from tasks.trainer.batch import Example

    chance = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(vocabulary) for _ in range(count))

    return [
        Example(
            trajectory_id=str(i),
            problem_id="p",
            source="online",
            prompt_ids=ids(chance.randint(20, 60)),
            response_ids=ids(int(20 * 10 ** chance.random())),
            terminal=0.0 if i % 2 else -11.5,
            y0=-2.0,
            stopped=True,
        )
        for i in range(sequences)
    ]


def model(vocabulary: int, hidden: int) -> Any:
    """A random Llama; pi_theta and pi_0 start equal."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=hidden,
            intermediate_size=4 * hidden,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    ).eval()


def padded_step(options: argparse.Namespace, batch: list[Any]) -> Callable[[], float]:
    """The straightforward way: right-padded rows, all logits, log-softmax over all of them."""
    import torch

    from tasks.objectives import spo
    from tasks.trainer.packing import lay_out

    policy, reference = model(options.vocabulary, options.hidden), model(options.vocabulary, options.hidden)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    pack = lay_out(batch, "padded")
    longest = pack.ids.shape[1]
    mask = torch.zeros(len(batch), longest - 1, dtype=torch.bool)
    for row, example in enumerate(batch):
        mask[row, len(example.prompt_ids) - 1 : example.length - 1] = True

    def logprobs(causal_lm: Any) -> Any:
        logits = causal_lm(input_ids=pack.ids, attention_mask=pack.attention_mask, use_cache=False).logits
        return logits[:, :-1].log_softmax(-1).gather(2, pack.ids[:, 1:, None])[..., 0]

    def step() -> float:
        with torch.no_grad():
            ref = logprobs(reference)
        a = spo.advantage(logprobs(policy), ref, mask)
        y0 = torch.tensor([e.y0 for e in batch])
        r = torch.tensor([e.terminal for e in batch])
        loss = spo.terminal_q_regression_cross_entropy(y0, a, r, epsilon=0.1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


class PlainTorch:
    """The trainer's engine without DeepSpeed."""

    def __init__(self, policy: Any, config: Any) -> None:
        import torch

        self.policy = policy
        self.device = torch.device("cpu")
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=config.optimizer.learning_rate)

    def forward(self, pack: Any) -> Any:
        return self.policy(pack)

    def backward(self, loss: Any) -> None:
        loss.backward()

    def step(self) -> None:
        import torch

        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def our_step(options: argparse.Namespace, batch: list[Any]) -> Callable[[], float]:
    """The trainer's own step."""
    import torch

    from tasks.config import SourceConfig, TrainConfig
    from tasks.trainer.engine import Engine
    from tasks.trainer.packing import lay_out
    from tasks.trainer.policy import Policy
    from tasks.trainer.reference import Reference
    from tasks.trainer.step import accumulate, shares

    train = TrainConfig(
        sources={"online": SourceConfig(share=1.0)}, batch_size=len(batch), logprob_chunk_tokens=options.chunk
    )
    policy = Policy(model(options.vocabulary, options.hidden), layout="packed", chunk=options.chunk)
    frozen = Policy(model(options.vocabulary, options.hidden), layout="packed", chunk=options.chunk)
    reference = Reference(frozen.requires_grad_(False))
    stored: dict[str, Any] = {}
    if options.variant == "ours, stored reference":
        stored = reference.logprobs(lay_out(batch), {})[1]
    plain = options.variant == "ours, plain torch"
    engine: Any = (
        PlainTorch(policy, train) if plain else Engine(policy, train, dtype="float32", device=torch.device("cpu"))
    )

    def step() -> float:
        result = accumulate(engine, reference, shares(batch, stored, train, 1)[0], train)
        engine.step()
        return statistics.mean(record.loss for record in result.records)

    return step


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One variant, in this process."""
    import torch

    torch.set_num_threads(1)
    batch = data(options.sequences, options.vocabulary)
    build = padded_step if options.variant == "padded, full logits" else our_step
    step = build(options, batch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    first = step()
    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(options.steps):
        started = (time.process_time(), time.monotonic())
        step()
        cpu.append(time.process_time() - started[0])
        wall.append(time.monotonic() - started[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tokens = sum(example.length for example in batch)
    return {
        "variant": options.variant,
        "cpu_s": statistics.median(cpu),
        "wall_s": statistics.median(wall),
        "memory_mib": (peak - before) / 1024,
        "tokens": tokens,
        "first_loss": first,
    }


def main() -> None:
    """Run every variant and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--variant", choices=VARIANTS)
    options = parser.parse_args()
    if options.variant:
        print(json.dumps(measure(options)))
        return
    print(f"{'variant':26} {'CPU s/step':>10} {'wall s':>8} {'tokens/CPU s':>13} {'memory MiB':>11} {'first loss':>11}")
    for variant in VARIANTS:
        command = [sys.executable, "-m", "benchmarks.trainer_step", *sys.argv[1:], "--variant", variant]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{variant:26} {found['cpu_s']:10.2f} {found['wall_s']:8.2f} {found['tokens'] / found['cpu_s']:13.0f} "
            f"{found['memory_mib']:11.0f} {found['first_loss']:11.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
