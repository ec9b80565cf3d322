"""How often does pi_0 of a recipe solve its problems? Nothing is trained.

    python -m benchmarks.placing --home FOLDER [--recipe regime] [--problems 100] [--samples 100] [--set FIELD=JSON ...]

First the probability that pi_0 gives to the problems' own solutions, which is exact, takes seconds, and is less than S
by what else is right. Then, unless `--samples` is 0, so many samples of each of the first training problems at
temperature 1, as Q0 draws them, and the recipe's evaluation samples of as many evaluation problems. `FOLDER` keeps the
policy and Q0's samples.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch

from flows.settings import RECIPES
from tasks import config as configs
from tasks.engines.checkpoint import load_tokenizer
from tasks.estimators import pass_at_k
from tasks.prepare import stage as prepare
from tasks.problems.problem import Split
from tasks.problems.prompt import encode_response, template_for
from tasks.q0 import stage as q0
from tasks.run import prompt_set, runs
from tasks.run.sampling import counts, open_sampler
from tasks.run.stage import Context, run_stage
from tasks.sampling.assignment import Assignment
from tasks.scoring.policy import full_logprobs, load_policy
from warehouse import Warehouse

BANDS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def solutions(context: Context, split: Split) -> None:
    """Print the probability of the solutions of a split's problems."""
    config, prompts = context.config, prompt_set.load(context, split)
    tokenizer = load_tokenizer(prompts.reference)
    template = template_for(config.reference, tokenizer)
    policy = load_policy(prompts.reference, config.train, config.reference.dtype, trained=False)
    shares: list[float] = []
    for prompt in prompts.prompts.values():
        answers = [encode_response(template, tokenizer, one.program) for one in prompt.problem.solutions]
        logps = [full_logprobs(policy, prompt.token_ids, tuple(answer)).sum() for answer in answers]
        shares.append(sum(math.exp(logp) for logp in logps))
    show(f"probability of the solutions of {split} problems", shares)


def show(what: str, shares: Sequence[float]) -> None:
    """Print median, mean, and how many shares lie where."""
    bands = [sum(low < share <= high for share in shares) for low, high in pairwise(BANDS)]
    print(f"{what}: {len(shares)}, median {statistics.median(shares):.2%}, mean {statistics.mean(shares):.2%}")
    print(f"  none {shares.count(0.0)}, " + ", ".join(f"to {b:g} {n}" for b, n in zip(BANDS[1:], bands, strict=True)))


def training(context: Context) -> None:
    """Print S of the training problems."""
    found = counts(context, prompt_set.load(context, "train"))
    show("S of training problems", [k / n for n, k in found.values()])


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
        "q0": {"samples": max(arguments.samples, 1), "zero_top_up": 0},
    }
    configs.merge(tree, {name: json.loads(value) for name, value in (one.split("=", 1) for one in arguments.set)})
    loaded = configs.load(arguments.recipe, tree, folder=RECIPES)
    with Warehouse.open(arguments.home / "warehouse") as store:
        context = Context(runs.create(store, loaded, origin="placing"), loaded, store, arguments.home)
        print(run_stage(prepare.STAGE, context).manifest.summary, flush=True)
        solutions(context, "train")
        solutions(context, "evaluation")
        if arguments.samples:
            print(run_stage(q0.STAGE, context).manifest.summary, flush=True)
            training(context)
            evaluation(context)


if __name__ == "__main__":
    main()
