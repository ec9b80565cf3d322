"""pass@k of stored samples: the exact estimator beside two estimators found in use, on one file of executed samples.

    python -m benchmarks.pass_at_k humaneval_codegen16b_samples.jsonl.gz [--ks 1 10 100]

The file is JSON Lines (gzip when it ends in .gz), one problem a line, with `samples: [{passed: bool, ...}]`.
Peers: 1 - (1 - c/n)^k (plugging the share in: biased low) and a bootstrap of k samples with replacement.
The second table asks how often each interval holds the truth: problems are drawn with 20 of their samples each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tasks.estimators import mean_pass_at_k, pass_at_k


def read(path: Path) -> list[list[bool]]:
    """The flags of every problem's samples."""
    raw = path.read_bytes()
    lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode().splitlines()
    return [[bool(sample["passed"]) for sample in json.loads(line)["samples"]] for line in lines]


def plugged_in(flags: Sequence[Sequence[bool]], k: int) -> float:
    """Mean of 1 - (1 - c/n)^k."""
    return float(np.mean([1 - (1 - sum(one) / len(one)) ** k for one in flags]))


def with_replacement(flags: Sequence[Sequence[bool]], k: int, draws: random.Random, repeats: int = 100) -> float:
    """Mean over problems of the share of k-sized draws with replacement that hold a correct sample."""
    hits = [sum(any(draws.choices(one, k=k)) for _ in range(repeats)) / repeats for one in flags]
    return float(np.mean(hits))


def coverage(flags: Sequence[Sequence[bool]], k: int, problems: int, trials: int) -> tuple[float, float]:
    """Share of 95% intervals that hold the whole file's pass@k, and their mean width."""
    draws, hits, width = random.Random(0), 0, 0.0
    truth = float(np.mean([pass_at_k(len(one), sum(one), k) for one in flags]))
    for trial in range(trials):
        counts = [(20, sum(draws.sample(one, 20))) for one in draws.choices(flags, k=problems)]
        estimate = mean_pass_at_k(counts, k, seed=trial)
        hits += estimate.low <= truth <= estimate.high
        width += estimate.high - estimate.low
    return hits / trials, width / trials


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 10, 100])
    arguments = parser.parse_args()
    flags = read(arguments.path)
    counts = [(len(one), sum(one)) for one in flags]
    print(f"{arguments.path.name}: {len(flags)} problems, {sum(n for n, _ in counts)} samples")
    for k in arguments.ks:
        exact = mean_pass_at_k(counts, k)
        print(
            f"  pass@{k:<4} exact {exact.value:7.2%} [{exact.low:.2%}, {exact.high:.2%}]   plugged in "
            f"{plugged_in(flags, k):7.2%}   with replacement {with_replacement(flags, k, random.Random(0)):7.2%}"
        )
    print("coverage of the 95% interval from 20 samples a problem")
    for problems in (32, 100, 164):
        for k in (1, 10):
            share, width = coverage(flags, k, problems, trials=1000)
            print(f"  {problems:>4} problems, pass@{k:<3} coverage {share:6.1%}   mean width {width:6.2%}")


if __name__ == "__main__":
    main()
