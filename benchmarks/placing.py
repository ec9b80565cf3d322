"""How often does pi_0 of a recipe solve its problems? A small Q0 and a small evaluation, nothing trained.

    python -m benchmarks.placing --home FOLDER [--recipe regime] [--problems 100] [--samples 100] [--set FIELD=JSON ...]

Draws `--samples` of the first training problems at temperature 1, as Q0 does, and the recipe's evaluation samples of as
many evaluation problems, and prints where pi_0 stands. `FOLDER` keeps the policy and the samples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import torch

from flows.settings import RECIPES
from tasks import config as configs
from tasks.estimators import pass_at_k
from tasks.prepare import stage as prepare
from tasks.q0 import stage as q0
from tasks.run import prompt_set, runs
from tasks.run.sampling import counts, open_sampler
from tasks.run.stage import Context, run_stage
from tasks.sampling.sampler import Assignment
from warehouse import Warehouse

BANDS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def training(context: Context) -> None:
    """Print S of the training problems."""
    found = counts(context, prompt_set.load(context, "train"))
    shares = sorted(k / n for n, k in found.values())
    bands = [sum(low < share <= high for share in shares) for low, high in pairwise(BANDS)]
    middle, mean = statistics.median(shares), statistics.mean(shares)
    print(f"S of {len(shares)} training problems: median {middle:.2%}, mean {mean:.2%}")
    print(f"  none {shares.count(0.0)}, " + ", ".join(f"to {b:g} {n}" for b, n in zip(BANDS[1:], bands, strict=True)))


def evaluation(context: Context) -> None:
    """Print pass@k on the evaluation problems, as the recipe samples them."""
    config, prompts = context.config.evaluate, prompt_set.load(context, "evaluation")
    asked = [Assignment(p.problem, p.prompt_id, p.token_ids, config.samples, 0) for p in prompts.prompts.values()]
    right = dict.fromkeys(prompts.prompts, 0)
    began = time.monotonic()
    with open_sampler(context, prompts.reference, config.behaviour) as sampler:
        for item in sampler.run(asked, source="evaluation"):
            right[item.row["problem_id"]] += item.row["reward"] == 0
    seconds = time.monotonic() - began
    for k in config.ks:
        mean = statistics.mean(pass_at_k(config.samples, count, k) for count in right.values())
        print(f"pass@{k} of {len(right)} evaluation problems: {mean:.1%}")
    print(f"  {config.samples * len(right) / seconds:.0f} samples a second, drawn and judged")


def main() -> None:
    """Prepare, sample, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--recipe", default="regime")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tree = {
        "problems": {"train": arguments.problems, "evaluation": arguments.problems},
        "q0": {"samples": arguments.samples, "zero_top_up": 0},
    }
    configs.merge(tree, {name: json.loads(value) for name, value in (one.split("=", 1) for one in arguments.set)})
    loaded = configs.load(arguments.recipe, tree, folder=RECIPES)
    with Warehouse.open(arguments.home / "warehouse") as store:
        context = Context(runs.create(store, loaded, origin="placing"), loaded, store, arguments.home)
        for stage in (prepare.STAGE, q0.STAGE):
            began = time.monotonic()
            result = run_stage(stage, context)
            print(f"{stage.name}: {result.manifest.summary} ({time.monotonic() - began:.0f} s)", flush=True)
        training(context)
        evaluation(context)


if __name__ == "__main__":
    main()
