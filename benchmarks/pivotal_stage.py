"""Seconds of the pivotal stage as it is run: sampling, judging and committing, all searches at once or one by one.

    python -m benchmarks.pivotal_stage [--trajectories 64] [--peer-trajectories 12] [--models FOLDER]

Both orders use the same engine, sandbox and warehouse on the miniature problems, each in a warehouse of its own where
the corpus is ready; the slower one searches the first of the trajectories only. CPU seconds are those of the stage's
process (planning, sampling, committing); the sandbox judges the same programs in both orders. `--models`: the folder
`models` of a home in which the reference policy has been made already; else it is made first, which takes minutes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tasks import config
from tasks.estimators import difference_p_value
from tasks.pivotal import stage as pivotal
from tasks.pivotal.search import Ledger, Rule, examine
from tasks.run import prompt_set, runs
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context, run_stage
from tasks.sampling.reference_counts import REFERENCE_BEHAVIOUR
from tasks.stages import STAGES
from warehouse import Warehouse

RECIPES = Path(__file__).parent.parent / "flows" / "recipes"


def main() -> None:
    """Print seconds, rollouts and pivotal tokens of both orders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--peer-trajectories", type=int, default=12)
    parser.add_argument("--models", type=Path)
    options = parser.parse_args()
    overrides: dict[str, Any] = {
        "q0.samples": 50,
        "corpus.reference_samples": 0,
        "pivotal.trajectories": options.trajectories,
    }
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        if options.models:
            shutil.copytree(options.models, ready / "models")
        prepare(ready, overrides)
        each: list[tuple[float, float]] = []
        for name, most in (("all at once", options.trajectories), ("one by one", options.peer_trajectories)):
            home = Path(folder) / name.replace(" ", "-")
            shutil.copytree(ready, home)
            wall, cpu, rollouts, pivots = search(home, most, at_once=not each)
            each.append((1000 * wall / rollouts, 1000 * cpu / rollouts))
            print(
                f"{name:<12} {most:3} trajectories, {rollouts} rollouts, {pivots} pivotal tokens: {wall:6.1f} s, "
                f"{each[-1][0]:6.2f} ms a rollout, {each[-1][1]:6.2f} of them CPU of the stage",
                flush=True,
            )
    (wall_a, cpu_a), (wall_b, cpu_b) = each
    print(f"all at once takes {wall_b / wall_a:.1f} times fewer seconds, {cpu_b / cpu_a:.1f} times fewer CPU seconds")


def prepare(home: Path, overrides: dict[str, Any]) -> None:
    """A run whose corpus is ready, in `home`."""
    with Warehouse.open(home / "warehouse") as store:
        run_id = runs.create(store, config.load("tiny", overrides, folder=RECIPES), origin="benchmark")
        context = Context(run_id, runs.load_config(store, run_id), store, home)
        for stage in ("prepare", "q0", "corpus"):
            run_stage(STAGES[stage], context)


def search(home: Path, most: int, *, at_once: bool) -> tuple[float, float, int, int]:
    """(wall seconds, CPU seconds, rollouts, pivotal tokens) of the run's first `most` searches in `home`."""
    with Warehouse.open(home / "warehouse") as store:
        run_id = runs.latest(store)
        context = Context(run_id, runs.load_config(store, run_id), store, home)
        prompts = prompt_set.load(context, "train")
        planned = pivotal.plan(context, prompts)
        searches = planned.searches[:most]
        ledger, rule = Ledger(), Rule.from_config(context.config.pivotal, difference_p_value)
        groups = [searches] if at_once else [[one] for one in searches]
        with open_sampler(context, prompts.reference, REFERENCE_BEHAVIOUR) as sampler:
            began = time.monotonic(), time.process_time()
            paid = sum(
                pivotal.advance(context, prompts, pivotal.Plan(group, planned.tokens), ledger, rule, sampler)
                for group in groups
            )
            wall, cpu = time.monotonic() - began[0], time.process_time() - began[1]
        return wall, cpu, paid, sum(len(examine(one, ledger, rule).pivots) for one in searches)


if __name__ == "__main__":
    main()
