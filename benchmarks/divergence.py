"""How far the arms of a study end from pi_0: KL(pi_theta, pi_0) in nats a response.

    python -m benchmarks.divergence methods --samples 4

Of every run of the study in this warehouse, or those of `--warehouse`, the last policy answers the evaluation
problems at temperature 1 and top-p 1. Along each response the divergence of the two distributions over the whole
vocabulary is summed; the mean of these sums is an unbiased estimate of the divergence over responses, with less noise
than the log-ratio of what was drawn.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from flows.settings import warehouse_location
from tasks.engines.checkpoint import load_weights
from tasks.engines.protocol import Request, ScoredSequence
from tasks.engines.transformers_engine import TransformersEngine
from tasks.estimators import mean_interval
from tasks.run.manifests import PrepareManifest, TrainManifest
from tasks.run.stage import finished
from warehouse import Warehouse

RUNS = """
SELECT run_id, split_part(message, '/', 3) AS arm
FROM run_events WHERE kind = 'created' AND starts_with(message, 'study/' || ? || '/') ORDER BY ALL
"""
PROMPTS = """
SELECT DISTINCT prompts.token_ids FROM prompts JOIN problems USING (problem_id)
WHERE prompts.batch_id = ? AND problems.split = 'evaluation' ORDER BY token_ids
"""


@torch.inference_mode()
def divergence(policy: Any, reference: Any, sequence: ScoredSequence) -> float:
    """The sum over the response's tokens of KL(policy, reference), in nats."""
    prompt, response = sequence
    ids_1L = torch.tensor([[*prompt, *response]])
    own_nV, other_nV = (
        model(ids_1L).logits[0, len(prompt) - 1 : -1].double().log_softmax(dim=1) for model in (policy, reference)
    )
    return float((own_nV.exp() * (own_nV - other_nV)).sum())


def drawn(folder: Path, prompts: Sequence[Sequence[int]], samples: int, most: int) -> list[ScoredSequence]:
    """Responses of the policy at temperature 1."""
    engine = TransformersEngine(folder, dtype="float32")
    requests = [Request(tuple(prompt), samples, seed=number, max_tokens=most) for number, prompt in enumerate(prompts)]
    return [(prompts[done.request], done.token_ids) for done in engine.sample(requests)]


def divergences(location: str, study: str, samples: int, most: int) -> Iterator[tuple[str, float]]:
    """Arm and divergence of each run of the study in a warehouse."""
    with closing(Warehouse.open(location, read_only=True)) as store:
        for run in store.rows(RUNS, [study]):
            prepared = finished(store, PrepareManifest, run_id=run["run_id"])
            trained = finished(store, TrainManifest, run_id=run["run_id"])
            if prepared is None or trained is None:
                print(f"{run['run_id']}: not trained")
                continue
            last = trained.policies[-1].path
            prompts = [row["token_ids"] for row in store.rows(PROMPTS, [prepared.prompts_batch])]
            policy, reference = (load_weights(folder, "float32") for folder in (last, prepared.reference))
            sequences = drawn(last, prompts, samples, most)
            yield run["arm"], fmean(divergence(policy, reference, sequence) for sequence in sequences)


def main() -> None:
    """Print a row for each arm: mean over seeds with its 95% interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--warehouse", action="append", help="may be given several times")
    asked = parser.parse_args()
    found: dict[str, list[float]] = defaultdict(list)
    for location in asked.warehouse or [warehouse_location()]:
        for arm, value in divergences(location, asked.study, asked.samples, asked.max_tokens):
            found[arm].append(value)
    print("| arm | seeds | KL to pi_0, nats a response |\n|---|---|---|")
    for arm, values in found.items():
        mean, low, high = mean_interval(values)
        interval = f" [{low:.2f}, {high:.2f}]" if len(values) > 1 else ""
        print(f"| {arm} | {len(values)} | {mean:.2f}{interval} |")


if __name__ == "__main__":
    main()
