"""Does SPO learn? pass@k after training minus before, over seeds of a recipe, each in a warehouse of its own.

python benchmarks/learning.py --seeds 3 --home /tmp/learning
"""

from __future__ import annotations

import argparse
import shutil
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from flows.pipeline import MODULES
from flows.settings import RECIPES, STAGES
from tasks import config, runs
from tasks.estimators import mean_interval
from tasks.stage import Context, run_stage
from warehouse import Warehouse


def main() -> None:
    """Run the recipe once per seed and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--home", type=Path, required=True, help="folder for the warehouses; kept, so that it resumes")
    arguments = parser.parse_args()
    found = [one_seed(arguments.recipe, seed, arguments.home) for seed in range(arguments.seeds)]
    names = sorted(found[0], key=lambda name: int(name.removeprefix("pass@")))
    print("\n| metric | before | after, per seed | mean difference | 95% interval over seeds |\n|---|---|---|---|---|")
    for name in names:
        differences = [100 * one[name]["difference"] for one in found]
        after = " ".join(f"{100 * one[name]['after']:.1f}" for one in found)
        mean, low, high = mean_interval(differences)
        before = 100 * found[0][name]["before"]
        print(f"| {name} | {before:.1f} | {after} | {mean:+.1f} | {low:+.1f} to {high:+.1f} |")


def one_seed(recipe: str, seed: int, home: Path) -> dict[str, Any]:
    """`comparison` of the evaluation after the recipe ran with this seed."""
    folder = home / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    if seed and not (folder / "models").exists():
        shutil.copytree(home / "seed-0" / "models", folder / "models")
    loaded = config.load(recipe, {"seed": seed}, folder=RECIPES)
    with Warehouse.open(folder / "warehouse") as store:
        run_id = runs.create(store, loaded, origin=f"seed {seed}")
        for stage in STAGES[:-1]:
            started = time.monotonic()
            definition = import_module(MODULES.get(stage, f"tasks.{stage}")).STAGE
            result = run_stage(definition, Context(run_id, loaded, store, folder))
            print(f"seed {seed} {stage}: {time.monotonic() - started:.0f} s; {result.manifest['summary']}", flush=True)
    return dict(result.manifest["comparison"])


if __name__ == "__main__":
    main()
