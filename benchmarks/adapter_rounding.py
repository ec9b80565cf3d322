"""What is left of an adapter in bfloat16: merged into the weights, and beside them.

    python -m benchmarks.adapter_rounding RUN/train/weights/step-00000050 [...]

For weights that a run with `train.lora` has published, and whose canaries hold the trainer's log-probabilities.
"Weights" is the part of the change that the rounded weights have, along the change: 1 where nothing is lost.
"Says" is the same of what the canaries' log-probabilities change by. "Exact" are the base's bfloat16 weights and the
adapter, both computed with in float32.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.config import AdapterConfig
from tasks.engines import adapted_weights, adapter, checkpoint
from tasks.scoring import lora
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


def beside(base: Any, change: adapted_weights.Adapter, *, once: bool) -> Any:
    """The base with the adapter beside its layers, as the trainer has it; `once`: or as peft does it."""
    model = copy.deepcopy(base) if once else copy.deepcopy(base).float()  # of a float32 model the layers stay peft's
    rank = next(iter(change.factors.values()))[0].shape[0]
    names = sorted({name.rpartition(".")[2] for name in change.factors})
    lora.add_adapters(model, AdapterConfig(rank=rank, alpha=round(change.scale * rank), modules=tuple(names)))
    model.bfloat16()
    for name, (down_RI, up_OR) in change.factors.items():
        layer = model.get_submodule(name)
        layer.lora_A.default.weight.data.copy_(down_RI)
        layer.lora_B.default.weight.data.copy_(up_OR)
    return model


@torch.no_grad()
def show(folder: Path) -> None:
    """Print the table of the published weights in `folder`."""
    canaries = read_canaries(folder)
    of_trainer = torch.tensor([value for canary in canaries for value in canary.logprobs])
    change = adapted_weights.read(folder)
    base = checkpoint.load_weights(adapter.base_of(folder), "bfloat16")
    before = logprobs(base, canaries)
    exact = copy.deepcopy(base).float()
    unchanged = logprobs(exact, canaries)
    adapted_weights.merge(exact, change)
    truth = logprobs(exact, canaries)
    wanted = truth - unchanged
    merged = {
        "merged, to the nearest": copy.deepcopy(exact).bfloat16(),
        "merged, at random": checkpoint.load_weights(folder, "bfloat16"),  # as engines do
    }
    apart = {
        "beside, rounded twice": beside(base, change, once=False),
        "beside, rounded once": beside(base, change, once=True),  # as the trainer does
    }
    print(f"{folder}: nats a token over {len(truth)} tokens of {len(canaries)} canaries")
    print(f"  {'adapter':24} {'weights':>8} {'says':>6} {'to trainer':>10} {'to exact':>10}")
    for label, model in (merged | apart).items():
        found = logprobs(model, canaries)
        to_trainer, to_exact = (float((found - other).abs().mean()) for other in (of_trainer, truth))
        part = f"{left(model, base, exact, list(change.factors)):.3f}" if label in merged else ""
        says = float(((found - before) * wanted).sum() / wanted.pow(2).sum())
        print(f"  {label:24} {part:>8} {says:6.3f} {to_trainer:10.4f} {to_exact:10.4f}", flush=True)


def main() -> None:
    """Print a table for each folder of published weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="+", type=Path)
    for folder in parser.parse_args().folder:
        show(folder)


if __name__ == "__main__":
    main()
