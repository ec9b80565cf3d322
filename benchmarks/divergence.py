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
from warehouse import Warehouse

RUNS = """
SELECT run_id, split_part(message, '/', 3) AS arm
FROM run_events WHERE kind = 'created' AND starts_with(message, 'study/' || ? || '/') ORDER BY ALL
"""
POLICIES = """
SELECT arg_max(path, step) AS last,
       (SELECT any_value(path) FROM policies AS first WHERE kind = 'reference' AND first.policy_id IN
           (SELECT parent_policy_id FROM policies WHERE run_id = $run)) AS reference
FROM policies WHERE run_id = $run AND kind <> 'reference'
"""
PROMPTS = """
SELECT DISTINCT prompts.token_ids FROM eval_samples JOIN prompts USING (prompt_id)
WHERE eval_samples.run_id = ? ORDER BY token_ids
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
            paths = store.rows(POLICIES, {"run": run["run_id"]})[0]
            prompts = [row["token_ids"] for row in store.rows(PROMPTS, [run["run_id"]])]
            if not (paths["last"] and paths["reference"] and prompts):
                print(f"{run['run_id']}: not trained or not evaluated")
                continue
            policy, reference = (load_weights(Path(paths[name]), "float32") for name in ("last", "reference"))
            sequences = drawn(Path(paths["last"]), prompts, samples, most)
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
