"""What asynchrony is worth: seconds per 1,000 trajectories trained, by how sampling and training take turns.

    python -m benchmarks.async_speedup --home FOLDER --seeds 3

The same recipe (`tiny`, every trajectory online, one worker, one trainer) in four modes: weights published every 10
steps, weights published every step, strict alternation (sample a batch, train on it, publish, sample the next), and
the same with two threads for whoever's turn it is. CPU seconds stand beside the clock's, since only they compare
on a machine that does other work too. Every measurement starts from a copy of one prepared warehouse; the first steps,
during which processes start, are left out. A measurement in the folder is not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import psutil

from flows.settings import RECIPES
from tasks import config
from tasks.estimators import mean_interval
from tasks.run import runs
from tasks.run.stage import Context, run_stage
from tasks.stages import STAGES
from tasks.train import stage as training
from tasks.train import supervisor
from tasks.train.shared.child import Child
from warehouse import Warehouse

BEFORE = ("prepare", "q0", "corpus", "pivotal")
SKIPPED = 4
"""Steps before the clock starts."""
RECIPE: dict[str, Any] = {
    "problems": {"train": 24},
    "reference": {"pretrain": {"steps": 200}},
    "q0": {"samples": 60, "zero_successes": "keep"},
    "corpus": {"reference_samples": 2},
    "pivotal": {"trajectories": 0},
    "train": {
        "batch_size": 64,
        "rollout_batch": 64,
        "max_batches_ahead": 3,
        "checkpoint_interval": 1000,
        "snapshot_interval": 1000,
        "sources": {"online": {"share": 1.0}, "offline": {"share": 0.0}, "pivotal": {"share": 0.0}},
        "report_to": [],
    },
}
MODES: dict[str, dict[str, Any]] = {
    "published every 10 steps": {"train.model_update_interval": 10},
    "published every step": {"train.model_update_interval": 1},
    "alternation": {"train.model_update_interval": 1, "train.max_batches_ahead": 0},
    "alternation, 2 threads": {"train.model_update_interval": 1, "train.max_batches_ahead": 0, "engine.threads": 2},
}
STEPS = "SELECT step, name, value FROM train_steps WHERE run_id = ? AND step > ? AND name IN ('wait_s', 'publish_s')"
BATCHES = "SELECT payload_json FROM run_events WHERE run_id = ? AND kind = 'rollout' ORDER BY created_at"


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--most", type=int, default=0, help="measurements to make now (0: all); the table needs all")
    options = parser.parse_args()
    prepared = prepare(options.home / "prepared")
    results = options.home / "results"
    results.mkdir(exist_ok=True)
    missing = [(s, m) for s in range(options.seeds) for m in MODES if not (results / name(s, m)).exists()]
    now = missing[: options.most] if options.most else missing
    for seed, mode in now:
        found = measure(prepared, options.home / "running", seed, mode, options.steps)
        (results / name(seed, mode)).write_text(json.dumps(found), encoding="utf-8")
        print(seed, mode, {part: round(value, 2) for part, value in found.items()}, flush=True)
    if len(now) == len(missing):
        report([{m: json.loads((results / name(s, m)).read_text()) for m in MODES} for s in range(options.seeds)])


def name(seed: int, mode: str) -> str:
    """File of a measurement."""
    return f"{mode.replace(' ', '-').replace(',', '')}-{seed}.json"


def prepare(home: Path) -> Path:
    """A home whose warehouse holds everything that training reads."""
    if not (home / "done").exists():
        home.mkdir(parents=True, exist_ok=True)
        started(home, "prepared", {})
        (home / "done").touch()
    return home


def started(home: Path, origin: str, changes: dict[str, Any]) -> Context:
    """A run in `home` with every stage before training done."""
    tree = config.load("tiny", RECIPE, folder=RECIPES).model_dump(mode="json")
    config.merge(tree, changes)
    loaded = config.validate(tree)
    with Warehouse.open(home / "warehouse") as store:
        context = Context(runs.create(store, loaded, origin=origin), loaded, store, home)
        for stage in BEFORE:
            run_stage(STAGES[stage], context)
    return context


def measure(prepared: Path, home: Path, seed: int, mode: str, steps: int) -> dict[str, float]:
    """Seconds per 1,000 trajectories trained in one run of `mode`, and where they went."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(prepared, home)
    os.environ["OMP_NUM_THREADS"] = str(MODES[mode].get("engine.threads", 1))
    context = started(home, mode, MODES[mode] | {"seed": seed, "train.steps": steps})
    with Warehouse.open(home / "warehouse") as store:
        job = training.make_job(Context(context.run_id, context.config, store, home))
    at: dict[int, dict[str, float]] = {}

    def clock(line: dict[str, Any]) -> None:
        if "done" in line:
            at[line["done"]] = {"total": time.monotonic()} | {
                f"{child.name.split('-')[0]} CPU": cpu_seconds(child) for child in run.running.values()
            }

    run = supervisor.TrainingProcesses(job, job.write(job.run_dir / "job.json"), clock)
    run.supervise(lambda: False)
    found = {name: at[steps][name] - at[SKIPPED][name] for name in at[steps]}
    found |= parts(home, context.run_id, found["total"])
    thousands = (steps - SKIPPED) * job.train.batch_size / 1000
    return {name: value / thousands for name, value in found.items()}


def cpu_seconds(child: Child) -> float:
    """CPU seconds of a process of the run and of all below it, the sandbox's included, so far."""
    try:
        root = psutil.Process(child.process.pid)
        below = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return math.nan
    total = 0.0
    for process in (root, *below):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def parts(home: Path, run_id: str, total: float) -> dict[str, float]:
    """Where the trainer's and the worker's seconds after the first steps went."""
    with Warehouse.open(home / "warehouse", read_only=True) as store:
        rows = store.rows(STEPS, [run_id, SKIPPED])
        batches = [json.loads(row["payload_json"]) for row in store.rows(BATCHES, [run_id])]
    trainer = {which: sum(r["value"] for r in rows if r["name"] == which) for which in ("wait_s", "publish_s")}
    worker = {which: sum(b["seconds"][which] for b in batches[SKIPPED:]) for which in batches[0]["seconds"]}
    return {
        "trainer waits": trainer["wait_s"],
        "trainer publishes": trainer["publish_s"],
        "trainer computes": total - trainer["wait_s"] - trainer["publish_s"],
        **{f"worker {which}": seconds for which, seconds in worker.items()},
    }


def report(found: list[dict[str, dict[str, float]]]) -> None:
    """The table: means over seeds, and the ratio to strict alternation with an interval over seeds."""
    columns = list(found[0]["alternation"])
    print("\nSeconds per 1,000 trajectories, means over", len(found), "seeds\n")
    print("| mode | " + " | ".join(columns) + " | alternation / this |")
    print("|---" * (len(columns) + 2) + "|")
    for mode in MODES:
        means = [statistics.mean(one[mode][column] for one in found) for column in columns]
        ratios = [one["alternation"]["total"] / one[mode]["total"] for one in found]
        print(f"| {mode} | " + " | ".join(f"{mean:.1f}" for mean in means) + f" | {interval(ratios)} |")
    every = [one["published every step"]["total"] / one["published every 10 steps"]["total"] for one in found]
    print(f"\npublished every step / published every 10 steps: {interval(every)}")


def interval(values: list[float]) -> str:
    """Mean and 95% interval over seeds."""
    mean, low, high = mean_interval(values)
    return f"{mean:.2f}" if len(values) < 2 else f"{mean:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
