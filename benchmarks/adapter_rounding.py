"""What is left of an adapter when it is merged into bfloat16 weights: rounded to the nearest, and at random.

    python -m benchmarks.adapter_rounding RUN/train/weights/step-00000050 [...]

For weights that a run with `train.lora` has published, and whose canaries hold the trainer's log-probabilities.
"Left" is the part of the change that the rounded weights have, along the change: 1 where nothing is lost. "Exact" are
the base's bfloat16 weights and the adapter, both computed with in float32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tasks.engines import adapted_weights, adapter, checkpoint
from tasks.train.shared.published_weights import Canary, read_canaries


def changed_base(folder: Path, rounded: Callable[[Tensor, int], Tensor]) -> tuple[Any, float]:
    """The base with the adapter in `folder` merged and `rounded`, in float32; and the part of the change left."""
    base = checkpoint.load_weights(adapter.base_of(folder), "bfloat16").float()
    exact = checkpoint.load_weights(adapter.base_of(folder), "bfloat16").float()
    change = adapted_weights.read(folder)
    adapted_weights.merge(exact, change)
    left = whole = 0.0
    for name in change.factors:
        own, wanted = (model.get_submodule(name).weight.data for model in (base, exact))
        found = rounded(wanted, len(name)).float()
        left += float(((found - own) * (wanted - own)).sum())
        whole += float((wanted - own).pow(2).sum())
        own.copy_(found)
    return base, left / whole


@torch.no_grad()
def logprobs(model: Any, canaries: list[Canary]) -> Tensor:
    """Log-probabilities of all the canaries' response tokens, one after the other."""
    found = []
    for canary in canaries:
        ids_1T = torch.tensor([canary.prompt_ids + canary.response_ids])
        after_TV = model(ids_1T).logits[0].float().log_softmax(-1)[len(canary.prompt_ids) - 1 : -1]
        found.append(after_TV.gather(1, torch.tensor(canary.response_ids)[:, None])[:, 0])
    return torch.cat(found)


def _row(label: str, left: float, found: Tensor, of_trainer: Tensor, exact: Tensor) -> str:
    trainer, truth = (float((found - other).abs().mean()) for other in (of_trainer, exact))
    return f"  {label:22} {left:6.3f} {trainer:10.4f} {truth:10.4f}"


def main() -> None:
    """Print a table for each folder of published weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="+", type=Path)
    ways: dict[str, Callable[[Tensor, int], Tensor]] = {
        "nearest": lambda values, _: values.bfloat16(),
        "at random": adapted_weights.rounded_at_random,
    }
    for folder in parser.parse_args().folder:
        canaries = read_canaries(folder)
        of_trainer = torch.tensor([value for canary in canaries for value in canary.logprobs])
        whole, _ = changed_base(folder, lambda values, _: values)
        exact = logprobs(whole, canaries)
        print(f"{folder}: nats a token over {len(exact)} tokens of {len(canaries)} canaries")
        print(f"  {'rounded':22} {'left':>6} {'to trainer':>10} {'to exact':>10}")
        print(_row("not (float32)", 1.0, exact, of_trainer, exact))
        for label, way in ways.items():
            model, left = changed_base(folder, way)
            print(_row(label, left, logprobs(model.bfloat16(), canaries), of_trainer, exact), flush=True)


if __name__ == "__main__":
    main()
