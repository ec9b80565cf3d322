"""Cost of a training step: SPO (ours, with stored reference log-probabilities, straightforward), PPO, TRL's nearest.

    python -m benchmarks.trainer_step [--vocabulary 128256] [--sequences 8] [--steps 5] [--hidden 64]
        [--trl-python ENV/bin/python]   # an environment with: pip install torch==2.13.0 trl==1.16.0 datasets

Each variant runs in a process of its own on the same model and the same sequences, with one thread: CPU seconds a step
(median), and the largest resident memory beyond what the process held before its first step. With `--device cuda` the
seconds are wall seconds and the memory is what the device allocated. `SPO, plain PyTorch` is our step with torch's
optimizer in place of DeepSpeed: the difference is DeepSpeed's overhead.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STORED = "SPO, reference stored"
PLAIN = "SPO, plain PyTorch"
PADDED = "SPO, padded, full logits"
PPO = "PPO with value model"
TRL = "TRL A2PO"
VARIANTS = ("SPO", STORED, PLAIN, PPO, PADDED)


def data(sequences: int, vocabulary: int) -> list[Any]:
    """Sequences of uneven length: most short, some ten times longer."""
    from tasks.scoring.example import Example

    chance = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(vocabulary) for _ in range(count))

    pairs = [(ids(chance.randint(20, 60)), ids(int(20 * 10 ** chance.random()))) for _ in range(sequences)]
    return [
        Example(
            trajectory_id=str(i),
            problem_id="p",
            source="online",
            prompt_ids=prompt,
            response_ids=response,
            terminal=0.0 if i % 2 else -11.5,
            y0=-2.0,
            stopped=True,
            behaviour_logprobs=(-math.log(vocabulary),) * len(response),
        )
        for i, (prompt, response) in enumerate(pairs)
    ]


def model(options: argparse.Namespace) -> Any:
    """A random Llama; pi_theta and pi_0 start equal."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    made: Any = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=options.vocabulary,
            hidden_size=options.hidden,
            intermediate_size=4 * options.hidden,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )
    return made.to(device=options.device, dtype=getattr(torch, options.dtype)).eval()


def padded_step(options: argparse.Namespace, batch: list[Any]) -> Callable[[], float]:
    """The straightforward way: right-padded rows, all logits, log-softmax over all of them."""
    import torch

    from tasks.objectives import spo
    from tasks.scoring.packing import lay_out

    policy, reference = (model(options) for _ in range(2))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)
    pack = lay_out(batch, "padded").to(torch.device(options.device))
    longest = pack.ids.shape[1]
    mask = torch.zeros(len(batch), longest - 1, dtype=torch.bool, device=options.device)
    for row, example in enumerate(batch):
        mask[row, len(example.prompt_ids) - 1 : example.length - 1] = True

    def logprobs(causal_lm: Any) -> Any:
        logits = causal_lm(input_ids=pack.ids, attention_mask=pack.attention_mask, use_cache=False).logits
        return logits[:, :-1].float().log_softmax(-1).gather(2, pack.ids[:, 1:, None])[..., 0]

    def step() -> float:
        with torch.no_grad():
            ref = logprobs(reference)
        a = spo.advantage(logprobs(policy), ref, mask)
        y0 = torch.tensor([e.y0 for e in batch], device=options.device)
        r = torch.tensor([e.terminal for e in batch], device=options.device)
        loss = spo.terminal_q_regression_cross_entropy(y0, a, r, epsilon=0.1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    return step


class PlainTorch:
    """The trainer's engine without DeepSpeed."""

    def __init__(self, policy: Any, config: Any, device: Any) -> None:
        import torch

        self.policy = policy
        self.device = device
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=config.optimizer.learning_rate)

    def forward(self, pack: Any) -> Any:
        return self.policy(pack)

    def backward(self, loss: Any) -> None:
        loss.backward()

    def raise_together(self, error: Exception | None) -> None:
        if error is not None:
            raise error

    def step(self) -> None:
        import torch

        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def trainer_parts(options: argparse.Namespace, count: int) -> tuple[Any, Any, Any]:
    """Settings, policy and reference of the trainer."""
    from tasks.config import PPOConfig, SourceConfig, TrainConfig
    from tasks.scoring.policy import Policy
    from tasks.scoring.reference import Reference

    once: dict[str, Any] = {
        "algorithm": "ppo",
        "behaviour": {"temperature": (1.0, 1.0), "top_p": 1.0},
        "ppo": PPOConfig(epochs=1, minibatches=1),
    }
    train = TrainConfig(
        sources={"online": SourceConfig(share=1.0)},
        batch_size=count,
        logprob_chunk_tokens=options.chunk,
        **(once if options.variant == PPO else {}),
    )
    policy, frozen = (Policy(model(options), layout="packed", chunk=options.chunk) for _ in range(2))
    return train, policy, Reference(frozen.requires_grad_(False))


def our_step(options: argparse.Namespace, batch: list[Any]) -> Callable[[], float]:
    """The trainer's own SPO step."""
    import torch

    from tasks.scoring.packing import lay_out
    from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
    from tasks.train.trainer.spo_step import accumulate_spo, shares

    train, policy, reference = trainer_parts(options, len(batch))
    device = torch.device(options.device)
    stored: dict[str, Any] = {}
    if options.variant == STORED:
        stored = reference.logprobs(lay_out(batch).to(device), {})[1]
    plain = options.variant == PLAIN
    engine: Any = (
        PlainTorch(policy, train, device)
        if plain
        else DeepSpeedEngine(policy, train, dtype=options.dtype, device=device)
    )

    def step() -> float:
        result = accumulate_spo(engine, reference, shares(batch, stored, train, 1)[0], train)
        engine.step()
        return statistics.mean(record.loss for record in result.records)

    return step


def ppo_step(options: argparse.Namespace, batch: list[Any]) -> Callable[[], float]:
    """The trainer's PPO update: evaluation of policy, reference and value model, then one pass over the batch."""
    import torch

    from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
    from tasks.train.trainer.ppo_step import ProximalPolicyOptimization
    from tasks.train.trainer.value_model import ActorCritic, ValueModel

    train, policy, reference = trainer_parts(options, len(batch))
    device = torch.device(options.device)
    module = ActorCritic(policy, ValueModel(packed_trunk(options)).to(device))
    engine = DeepSpeedEngine(module, train, dtype=options.dtype, device=device)
    algorithm = ProximalPolicyOptimization(train, seed=0)

    def step() -> float:
        return statistics.mean(record.loss for record in algorithm.update(engine, reference, batch, {}, 1).records)

    return step


def packed_trunk(options: argparse.Namespace) -> Any:
    """A second network for the value model, attending within packed sequences."""
    from tasks.scoring.policy import Policy

    return Policy(model(options), layout="packed", chunk=options.chunk).causal_lm.base_model


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One variant, in this process."""
    import torch

    torch.set_num_threads(1)
    batch = data(options.sequences, options.vocabulary)
    step = {PADDED: padded_step, PPO: ppo_step}.get(options.variant, our_step)(options, batch)
    cuda = options.device == "cuda"
    before = torch.cuda.memory_allocated() if cuda else peak_bytes(cuda)
    first = step()
    seconds: list[float] = []
    for _ in range(options.steps):
        started = clock(cuda)
        step()
        seconds.append(clock(cuda) - started)
    return {
        "seconds": statistics.median(seconds),
        "memory_mib": (peak_bytes(cuda) - before) / 2**20,
        "first_loss": first,
    }


def clock(cuda: bool) -> float:
    """CPU seconds of this process, or wall seconds when the device has finished its work."""
    import torch

    if not cuda:
        return time.process_time()
    torch.cuda.synchronize()
    return time.monotonic()


def peak_bytes(cuda: bool) -> int:
    """Most that this process has held so far: of the device's memory, or resident."""
    import torch

    return torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def median_s(run: Callable[[], Any], *, cuda: bool) -> float:
    """Seconds that `run` takes: the median of twelve calls after three."""
    times: list[float] = []
    for _ in range(15):
        began = clock(cuda)
        run()
        times.append(clock(cuda) - began)
    return statistics.median(times[3:])


def product_rate(size: int, dtype: str, device: str) -> float:
    """Operations a second of a product of two matrices with `size` rows and columns."""
    import torch

    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    return 2 * size**3 / median_s(lambda: left @ right, cuda=device == "cuda")


def trl_result(options: argparse.Namespace) -> dict[str, Any]:
    """TRL's step on the same sequences and model, in its own environment."""
    batch = data(options.sequences, options.vocabulary)
    task = {
        "vocabulary": options.vocabulary,
        "hidden": options.hidden,
        "steps": options.steps,
        "sequences": [[e.prompt_ids, e.response_ids, e.y0, e.terminal] for e in batch],
    }
    script = Path(__file__).with_name("trainer_step_trl.py")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(task), encoding="utf-8")
        return last_line([options.trl_python, str(script), str(path)])


def last_line(command: list[str]) -> dict[str, Any]:
    """The JSON object that a command prints last."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=128_256)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=128)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--trl-python", help="interpreter of an environment with TRL; without it that row is left out")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Run every variant and print the table."""
    options = arguments()
    if options.variant:
        print(json.dumps(measure(options)))
        return
    tokens = sum(example.length for example in data(options.sequences, options.vocabulary))
    print(
        f"{tokens} tokens in {options.sequences} sequences, vocabulary {options.vocabulary}, hidden {options.hidden}\n"
    )
    print(
        "| variant | s a step | against SPO | tokens/s | memory MiB | against SPO | first loss |\n" + "|---" * 7 + "|"
    )
    base: dict[str, Any] | None = None
    for variant in (*VARIANTS, *([TRL] if options.trl_python else [])):
        command = [sys.executable, "-m", "benchmarks.trainer_step", *sys.argv[1:], "--variant", variant]
        found = trl_result(options) if variant == TRL else last_line(command)
        base = base or found
        print(
            f"| {variant} | {found['seconds']:.2f} | {found['seconds'] / base['seconds']:.2f} "
            f"| {tokens / found['seconds']:.0f} | {found['memory_mib']:.0f} "
            f"| {found['memory_mib'] / base['memory_mib']:.2f} | {found['first_loss']:.5f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
