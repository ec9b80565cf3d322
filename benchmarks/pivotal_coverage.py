"""Do the stored estimates of a pivotal search agree with independent ones? Re-estimates from many more rollouts.

    python -m benchmarks.pivotal_coverage [--home .spo] [--run RUN] [--positions 80] [--rollouts 200]

Takes positions of the run's annotated trajectories at random, rolls each out again with fresh seeds, judges, and
prints how often the stored 95% interval holds the new estimate, and how often an exact test finds the two different
at 5%. Stores nothing.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks.estimators import beta_interval, difference_p_value
from tasks.run import prompt_set, runs
from tasks.run.manifests import PivotalManifest
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context
from tasks.sampling.assignment import Assignment
from tasks.sampling.reference_counts import REFERENCE_BEHAVIOUR
from tasks.sampling.sampler import Sampler
from warehouse import Warehouse

STORED = """
-- The estimates of a search, with the tokens before each position.
SELECT v.trajectory_id, v.position, v.n, v.k, v.pivotal, t.problem_id, t.token_ids[:v.position] AS prefix
FROM token_values v
JOIN (SELECT DISTINCT ON (trajectory_id) * FROM trajectories) t USING (trajectory_id)
WHERE v.search_id = ? AND v.position > 0 ORDER BY v.trajectory_id, v.position
"""
PER_BATCH = 16


def main() -> None:
    """Print the agreement, over all positions and by the number of stored rollouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path(".spo"))
    parser.add_argument("--run")
    parser.add_argument("--positions", type=int, default=80)
    parser.add_argument("--rollouts", type=int, default=200)
    options = parser.parse_args()
    with Warehouse.open(options.home / "warehouse", read_only=True) as store:
        run_id = options.run or runs.latest(store)
        context = Context(run_id, runs.load_config(store, run_id), store, options.home)
        stored = store.rows(STORED, [context.manifest(PivotalManifest).search_id])
        chosen = random.Random(0).sample(stored, min(options.positions, len(stored)))
        again = estimate(context, chosen, options.rollouts)
    print(f"run {run_id}: {len(chosen)} of {len(stored)} positions, {options.rollouts} new rollouts each")
    found = list(zip(chosen, again, strict=True))
    show("all", found)
    for n in sorted({row["n"] for row in chosen}):
        show(f"{n} stored rollouts", [(row, k) for row, k in found if row["n"] == n])
    show("after a pivotal token", [(row, k) for row, k in found if row["pivotal"]])


def estimate(context: Context, rows: Sequence[dict[str, Any]], rollouts: int) -> list[tuple[int, int]]:
    """(scored rollouts, successes) of each row's prefix."""
    prompts = prompt_set.load(context, "train")
    found: list[tuple[int, int]] = []
    with open_sampler(context, prompts.reference, REFERENCE_BEHAVIOUR) as sampler:
        for start in range(0, len(rows), PER_BATCH):
            shard = rows[start : start + PER_BATCH]
            asked = [
                replace(
                    prompts.assignment(row["problem_id"], rollouts, "coverage", row["trajectory_id"], row["position"]),
                    prefix_ids=tuple(row["prefix"]),
                )
                for row in shard
            ]
            found += tally(sampler, asked)
    return found


def tally(sampler: Sampler, asked: Sequence[Assignment]) -> list[tuple[int, int]]:
    """(scored rollouts, successes) of each assignment."""
    counts = [[0, 0] for _ in asked]
    for item in sampler.run(asked, source="pivotal_rollout"):
        if item.row["reward"] is not None:
            counts[item.assignment][0] += 1
            counts[item.assignment][1] += item.row["reward"] == 0
    return [(n, k) for n, k in counts]


def show(name: str, found: Sequence[tuple[dict[str, Any], tuple[int, int]]]) -> None:
    """One line: how often the stored interval holds the new share, and how often a test tells the two apart."""
    if not found:
        return
    inside = different = 0
    shift = 0.0
    for row, (n, k) in found:
        low, high = beta_interval(row["n"], row["k"])
        inside += low <= k / n <= high
        different += difference_p_value((row["n"], row["k"]), (n, k)) <= 0.05
        shift += row["k"] / row["n"] - k / n
    total = len(found)
    print(
        f"{name:<30} {total:4} positions  interval holds the new estimate {inside / total:6.1%}  "
        f"told apart at 5% {different / total:6.1%}  mean difference {shift / total:+.3f}"
    )


if __name__ == "__main__":
    main()
