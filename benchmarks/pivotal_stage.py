"""Seconds of the pivotal stage as it is run: sampling, judging and committing, all searches at once or one by one.

    python -m benchmarks.pivotal_stage [--trajectories 64] [--models FOLDER]

Both orders make the same searches with the same engine, sandbox and warehouse, on the miniature problems; each gets a
warehouse of its own in which the corpus is ready. `--models`: the folder `models` of a home in which the reference
policy has been made already; else it is made first, which takes minutes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from tasks import config, pivotal, runs
from tasks import material as materials
from tasks.estimators import difference_p_value
from tasks.pivotal_search import Ledger, Rule, examine
from tasks.stage import Context, run_stage
from warehouse import Warehouse

RECIPES = Path(__file__).parent.parent / "flows" / "recipes"


def main() -> None:
    """Print seconds, rollouts and pivotal tokens of both orders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=64)
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
        times: dict[str, float] = {}
        for name in ("all at once", "one trajectory at a time"):
            home = Path(folder) / name.replace(" ", "-")
            shutil.copytree(ready, home)
            times[name], rollouts, pivots = search(home, at_once=name == "all at once")
            each = 1000 * times[name] / rollouts
            print(f"{name:<26} {times[name]:7.1f} s  {rollouts} rollouts, {pivots} pivotal tokens  {each:.2f} ms each")
        print(f"{times['one trajectory at a time'] / times['all at once']:.1f} times fewer seconds")


def prepare(home: Path, overrides: dict[str, Any]) -> None:
    """A run whose corpus is ready, in `home`."""
    with Warehouse.open(home / "warehouse") as store:
        run_id = runs.create(store, config.load("tiny", overrides, folder=RECIPES), origin="benchmark")
        context = Context(run_id, runs.load_config(store, run_id), store, home)
        for stage in ("prepare", "q0", "corpus"):
            run_stage(import_module(f"tasks.{stage}").STAGE, context)


def search(home: Path, *, at_once: bool) -> tuple[float, int, int]:
    """(wall seconds, rollouts, pivotal tokens) of all searches of the run in `home`."""
    with Warehouse.open(home / "warehouse") as store:
        run_id = runs.latest(store)
        context = Context(run_id, runs.load_config(store, run_id), store, home)
        material = materials.load(context, "train")
        planned = pivotal.plan(context, material)
        ledger, rule = Ledger(), Rule.from_config(context.config.pivotal, difference_p_value)
        groups = [planned] if at_once else [pivotal.Plan([one], planned.tokens) for one in planned.searches]
        with materials.open_sampler(context, material.reference, materials.REFERENCE_BEHAVIOUR) as sampler:
            began = time.monotonic()
            paid = sum(pivotal.advance(context, material, group, ledger, rule, sampler) for group in groups)
            seconds = time.monotonic() - began
        return seconds, paid, sum(len(examine(one, ledger, rule).pivots) for one in planned.searches)


if __name__ == "__main__":
    main()
