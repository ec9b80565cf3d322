"""Cost of a training step: SPO in several layouts, PPO, padded rows with full logits, and TRL's nearest trainer.

    python -m benchmarks.training_step [--trl-python ENV/bin/python]  # pip install torch==2.13.0 trl==1.16.0 datasets
    python -m benchmarks.training_step --model FOLDER --alike --plain --variants "packed, stored" "shared, stored"
    python -m benchmarks.training_step --shape llama-3.1-8b-widths --alike --plain --device cuda --dtype bfloat16
        --variants packed shared "padded, stored"

Sequences are random and of uneven length, most short and some ten times longer. With `--alike`, a batch has
`--problems` prompts of 386 tokens with `--responses` responses of 60 each; all prompts begin with `--common` tokens.
Each variant runs in its own process: seconds a step (median; CPU seconds with one thread), trained tokens a second, and
the largest memory beyond that of before the first step. `stored`: log-probabilities of pi_0 are known. `--plain` has
torch's AdamW in place of DeepSpeed. The limit is 6 operations a parameter and trained token at the rate of a large
matrix product; shared beginnings may exceed it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import harness
from tasks.checkpoints.checkpoint import load_weights
from tasks.config import PPOConfig, SourceConfig, TrainConfig
from tasks.objectives import spo
from tasks.scoring.example import Example
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
from tasks.train.trainer.ppo_step import ProximalPolicyOptimization
from tasks.train.trainer.spo_step import accumulate_spo, shares
from tasks.train.trainer.value_model import ActorCritic, ValueModel

PPO, FULL, TRL = "PPO with value model", "padded, full logits", "TRL A2PO"
WARM_UP = 2
"""Sequences of the step that is not timed."""
Step = Callable[[Sequence[Example]], float]


def main() -> None:
    """Runs every variant in its own process and prints the table."""
    options = harness.options(
        __doc__, shape=("trainer", *harness.SHAPES), model=None, alike=False, problems=8, responses=4, common=300,
        sequences=8, micro_batch_tokens=4096, steps=3, device=("cpu", "cuda"), dtype=("float32", "bfloat16"),
        plain=False, threads=1, variants=["packed", "packed, stored", PPO, FULL], variant=None, trl_python=None,
    )  # fmt: skip
    if options.variant:
        print(json.dumps(measure(options)))
        return
    tokens = sum(example.length for example in data(options, vocabulary(options)))
    print(f"{harness.machine()}; {options.model or options.shape}, {tokens} tokens a step")
    harness.show(rows(options, tokens))


def rows(options: argparse.Namespace, tokens: int) -> Any:
    """A row for each variant; the first is the base of the ratios."""
    base: dict[str, Any] = {}
    for variant in (*options.variants, *([TRL] if options.trl_python else [])):
        command = [sys.executable, "-m", "benchmarks.training_step", *sys.argv[1:], "--variant", variant]
        found = trl_result(options) if variant == TRL else harness.last_line(command)
        base = base or found
        row = {"variant": variant, "s a step": found["seconds"], "ratio": found["seconds"] / base["seconds"]}
        row |= {"tokens/s": tokens / found["seconds"], "MiB": found["memory_mib"]}
        row |= {"memory ratio": found["memory_mib"] / base["memory_mib"], "first loss": f"{found['first_loss']:.5f}"}
        yield row | {"of limit": f"{found['share']:.0%}" if found.get("share") else ""}


def vocabulary(options: argparse.Namespace) -> int:
    """Number of tokens that the model knows."""
    if options.model:
        return json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    return harness.SHAPES[options.shape][0]


def data(options: argparse.Namespace, tokens: int) -> list[Example]:
    """The batch: sequences that begin alike, or of uneven length."""
    chance = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(tokens) for _ in range(count))

    if options.alike:
        common = ids(options.common)
        prompts = [(*common, *ids(386 - len(common))) for _ in range(options.problems)]
        pairs = [(prompt, ids(60)) for prompt in prompts for _ in range(options.responses)]
    else:
        lengths = [(chance.randint(20, 60), int(20 * 10 ** chance.random())) for _ in range(options.sequences)]
        pairs = [(ids(before), ids(after)) for before, after in lengths]
    examples: list[Example] = []
    for number, (prompt, response) in enumerate(pairs):
        value: dict[str, Any] = {"terminal": 0.0 if number % 2 else -11.5, "y0": -2.0, "stopped": True}
        value["behaviour_logprobs"] = (-math.log(tokens),) * len(response)
        named = {"trajectory_id": str(number), "problem_id": str(prompt[-1]), "source": "online"}
        examples.append(Example(**named, prompt_ids=prompt, response_ids=response, **value))
    return examples


def model(options: argparse.Namespace) -> Any:
    """The checkpoint or the random Llama; pi_theta and pi_0 start equal."""
    if options.model:
        return load_weights(Path(options.model), options.dtype).to(options.device).eval()
    return harness.llama(options.shape, dtype=options.dtype, device=options.device)


class PlainTorch:
    """The trainer's engine without DeepSpeed."""

    def __init__(self, policy: Any, device: str) -> None:
        self.policy, self.device = policy, torch.device(device)
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)

    def forward(self, pack: Any) -> Any:
        """Log-probabilities and entropies."""
        return self.policy(pack)

    def backward(self, loss: Any) -> None:
        """Adds gradients up."""
        loss.backward()

    def raise_together(self, error: Exception | None) -> None:
        """Raises what went wrong in this only process."""
        if error is not None:
            raise error

    def step(self) -> None:
        """Clips and updates."""
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def our_step(options: argparse.Namespace, batch: Sequence[Example]) -> Step:
    """The trainer's own SPO step in the variant's layout, or its PPO update."""
    layout: Any = "packed" if options.variant == PPO else options.variant.partition(",")[0]
    once: dict[str, Any] = {"algorithm": "ppo", "ppo": PPOConfig(epochs=1, minibatches=1)}
    once["behaviour"] = {"temperature": (1.0, 1.0), "top_p": 1.0}
    sizes = {"logprob_chunk_tokens": 1024 if options.alike else 128, "micro_batch_tokens": options.micro_batch_tokens}
    sources = {"online": SourceConfig(share=1.0)}
    given = {"batch_size": len(batch), "packing": layout, **sizes, **(once if options.variant == PPO else {})}
    train = TrainConfig(sources=sources, **given)
    chunk, device = train.logprob_chunk_tokens, torch.device(options.device)
    policy = Policy(model(options), layout=layout, chunk=chunk)
    stored = options.variant.endswith("stored")
    frozen = policy if stored else Policy(model(options), layout=layout, chunk=chunk).requires_grad_(False)
    reference = Reference(frozen)
    if options.variant == PPO:
        trunk = Policy(model(options), layout=layout, chunk=chunk).causal_lm.base_model
        actor_critic = ActorCritic(policy, ValueModel(trunk).to(device))
        both = DeepSpeedEngine(actor_critic, train, dtype=options.dtype, device=device)
        ppo = ProximalPolicyOptimization(train, seed=0)
        return lambda given: _mean_loss(ppo.update(both, reference, list(given), {}, 1))
    known = {e.trajectory_id: [-10.0] * len(e.response_ids) for e in batch} if stored else {}
    engine: Any = PlainTorch(policy, options.device)
    if not options.plain:
        engine = DeepSpeedEngine(policy, train, dtype=options.dtype, device=device)

    def step(given: Sequence[Example]) -> float:
        result = accumulate_spo(engine, reference, shares(given, known, train, 1)[0], train)
        engine.step()
        return _mean_loss(result)

    return step


def _mean_loss(result: Any) -> float:
    return statistics.mean(record.loss for record in result.records)


def padded_step(options: argparse.Namespace) -> Step:
    """The straightforward way: right-padded rows, all logits, log-softmax over all of them."""
    policy, reference = (model(options) for _ in range(2))
    engine = PlainTorch(policy, options.device)

    def step(given: Sequence[Example]) -> float:
        pack = lay_out(given, "padded").to(torch.device(options.device))
        mask = torch.zeros(len(given), pack.ids.shape[1] - 1, dtype=torch.bool, device=options.device)
        for row, example in enumerate(given):
            mask[row, len(example.prompt_ids) - 1 : example.length - 1] = True

        def logprobs(causal_lm: Any) -> Any:
            logits = causal_lm(input_ids=pack.ids, attention_mask=pack.attention_mask, use_cache=False).logits
            return logits[:, :-1].float().log_softmax(-1).gather(2, pack.ids[:, 1:, None])[..., 0]

        with torch.no_grad():
            ref = logprobs(reference)
        advantage = spo.advantage(logprobs(policy), ref, mask)
        y0, r = (torch.tensor([getattr(e, n) for e in given], device=options.device) for n in ("y0", "terminal"))
        loss = spo.terminal_q_regression_cross_entropy(y0, advantage, r, epsilon=0.1).mean()
        loss.backward()
        engine.step()
        return float(loss)

    return step


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """One variant, in this process."""
    torch.set_num_threads(options.threads)
    cuda = options.device == "cuda"
    batch = data(options, vocabulary(options))
    step = padded_step(options) if options.variant == FULL else our_step(options, batch)
    before = harness.peak_bytes(cuda=cuda)
    first_loss = step(batch if cuda else batch[:WARM_UP])  # kernels are compiled for the shapes that are timed
    now = lambda: harness.clock(wall=options.threads > 1, cuda=cuda)  # noqa: E731
    seconds = statistics.median(harness.seconds(lambda: step(batch), now) for _ in range(options.steps))
    found = {"seconds": seconds, "memory_mib": (harness.peak_bytes(cuda=cuda) - before) / (1 << 20)}
    if cuda:
        parameters = sum(weight.numel() for weight in model(options).parameters())
        operations = 6 * parameters * sum(e.length for e in batch)
        found["share"] = operations / seconds / harness.product_rate(8192, options.dtype, "cuda")
    return found | {"first_loss": first_loss}


def trl_result(options: argparse.Namespace) -> dict[str, Any]:
    """TRL's step on the same sequences and model, in its own environment."""
    batch = data(options, vocabulary(options))
    task = {"folder": options.model, "shape": harness.SHAPES[options.shape], "steps": options.steps}
    task |= {"micro_batch": 8, "warm_up": WARM_UP}  # eight sequences: a packed pass of 4096 tokens
    task["sequences"] = [[e.prompt_ids, e.response_ids, e.y0, e.terminal] for e in batch]
    return harness.last_line([options.trl_python, str(Path(__file__).with_name("training_step_trl.py"))], task)


if __name__ == "__main__":
    main()
