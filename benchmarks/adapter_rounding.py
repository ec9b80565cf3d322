"""What is left of an adapter when it is merged into bfloat16 weights: rounded to the nearest, and at random.

    python -m benchmarks.adapter_rounding RUN/train/weights/step-00000050 [...]

For weights that a run with `train.lora` has published, and whose canaries hold the trainer's log-probabilities.
"Left" is the part of the change that the rounded weights have, along the change: 1 where nothing is lost. "Exact" are
the base's bfloat16 weights and the adapter, both computed with in float32.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.engines import adapted_weights, adapter, checkpoint
from tasks.train.shared.published_weights import Canary, read_canaries


def left(found: Any, base: Any, exact: Any, layers: list[str]) -> float:
    """The part of the exact change that the model `found` has, along the change."""
    whole = had = 0.0
    for name in layers:
        own, wanted, got = (model.get_submodule(name).weight.data.float() for model in (base, exact, found))
        had += float(((got - own) * (wanted - own)).sum())
        whole += float((wanted - own).pow(2).sum())
    return had / whole


@torch.no_grad()
def logprobs(model: Any, canaries: list[Canary]) -> Tensor:
    """Log-probabilities of all the canaries' response tokens, one after the other."""
    found = []
    for canary in canaries:
        ids_1T = torch.tensor([canary.prompt_ids + canary.response_ids])
        after_TV = model(ids_1T).logits[0].float().log_softmax(-1)[len(canary.prompt_ids) - 1 : -1]
        found.append(after_TV.gather(1, torch.tensor(canary.response_ids)[:, None])[:, 0])
    return torch.cat(found)


@torch.no_grad()
def show(folder: Path) -> None:
    """Print the table of the published weights in `folder`."""
    canaries = read_canaries(folder)
    of_trainer = torch.tensor([value for canary in canaries for value in canary.logprobs])
    change = adapted_weights.read(folder)
    base = checkpoint.load_weights(adapter.base_of(folder), "bfloat16")
    exact = copy.deepcopy(base).float()
    adapted_weights.merge(exact, change)
    models = {
        "not (float32)": exact,
        "nearest": copy.deepcopy(exact).bfloat16(),
        "at random": checkpoint.load_weights(folder, "bfloat16"),  # as engines do
    }
    truth = logprobs(exact, canaries)
    print(f"{folder}: nats a token over {len(truth)} tokens of {len(canaries)} canaries")
    print(f"  {'rounded':22} {'left':>6} {'to trainer':>10} {'to exact':>10}")
    for label, model in models.items():
        found = logprobs(model, canaries)
        to_trainer, to_exact = (float((found - other).abs().mean()) for other in (of_trainer, truth))
        part = left(model, base, exact, list(change.factors))
        print(f"  {label:22} {part:6.3f} {to_trainer:10.4f} {to_exact:10.4f}", flush=True)


def main() -> None:
    """Print a table for each folder of published weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="+", type=Path)
    for folder in parser.parse_args().folder:
        show(folder)


if __name__ == "__main__":
    main()
