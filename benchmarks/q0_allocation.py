"""Q0's adaptive allocation beside the uniform one: error of the soft value y_0 (nats) at the same total of samples.

    python benchmarks/q0_allocation.py                        populations of success probabilities, three sizes
    python benchmarks/q0_allocation.py --shares 0.1,0.002,0   shares measured elsewhere, as the truth

Every repetition draws 48 true success probabilities and then samples from them under both allocations. `mse` is the
mean squared error of y_0 over all prompts (a prompt without a success counts with the prior, as `q0.zero_successes =
"keep"` does), `bias` its mean error, `unsolved` the share of prompts without a success. `ratio` is adaptive mse over
uniform mse with its 95% interval over repetitions. `narrow`: the same with early stopping at intervals of 0.2 nats;
`used` says what share of the samples it drew.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tasks.config import PAPER_BETA, Q0Config
from tasks.estimators import soft_value, soft_value_of_share
from tasks.q0 import allocation

PROMPTS = 48
POPULATIONS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "Beta(0.3, 1.5)": lambda r: r.beta(0.3, 1.5, PROMPTS),
    "Beta(1, 4)": lambda r: r.beta(1, 4, PROMPTS),
    "1e-3 to 1": lambda r: 10 ** r.uniform(-3, 0, PROMPTS),
    "1e-4 to 1": lambda r: 10 ** r.uniform(-4, 0, PROMPTS),
    "1 in 4 hopeless": lambda r: np.where(np.arange(PROMPTS) % 4 == 0, 0.0, r.beta(0.5, 2, PROMPTS)),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Errors of every prompt (nats), and what was drawn."""

    errors: np.ndarray
    unsolved: float
    used: float


def simulated(shares: np.ndarray, config: Q0Config, generator: np.random.Generator) -> Outcome:
    """Draw under `config` from prompts with these success probabilities until nothing is planned any more."""
    counts = {f"{i:04d}": (0, 0) for i in range(len(shares))}
    while work := allocation.plan(counts, config, PAPER_BETA):
        for name, number in work.items():
            n, k = counts[name]
            counts[name] = (n + number, k + int(generator.binomial(number, shares[int(name)])))
    estimates = [soft_value(n, k, PAPER_BETA, prior=config.prior) for n, k in counts.values()]
    truth = [soft_value_of_share(float(share), PAPER_BETA) for share in shares]
    used = sum(n for n, _ in counts.values()) / (config.samples * len(shares))
    return Outcome(np.subtract(estimates, truth), float(np.mean([k == 0 for _, k in counts.values()])), used)


def main() -> None:
    """Print a line for each population and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[100, 200, 800])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--shares", help="comma-separated true shares, instead of the populations")
    arguments = parser.parse_args()
    populations = POPULATIONS
    if arguments.shares:
        fixed = np.array([float(share) for share in arguments.shares.split(",")])
        populations = {"given": lambda _: fixed}
    print(f"{'true shares':<16}{'samples':>8}{'':>10}{'mse':>8}{'bias':>8}{'unsolved':>10}{'used':>7}  ratio (95%)")
    for name, population in populations.items():
        for samples in arguments.samples:
            _show(name, samples, population, arguments.repetitions)


def _show(name: str, samples: int, population: Callable[[np.random.Generator], np.ndarray], repetitions: int) -> None:
    ways = {
        "uniform": Q0Config(samples=samples),
        "adaptive": Q0Config(samples=samples, adaptive=True, narrow_nats=1e-9),
        "narrow": Q0Config(samples=samples, adaptive=True),
    }
    found: dict[str, list[Outcome]] = {way: [] for way in ways}
    for repetition in range(repetitions):
        shares = population(np.random.default_rng([repetition, 0]))
        for number, (way, config) in enumerate(ways.items(), start=1):
            found[way].append(simulated(shares, config, np.random.default_rng([repetition, number])))
    squares = {way: np.array([np.mean(o.errors**2) for o in outcomes]) for way, outcomes in found.items()}
    for way, outcomes in found.items():
        bias = np.mean([o.errors.mean() for o in outcomes])
        unsolved, used = (float(np.mean([getattr(o, field) for o in outcomes])) for field in ("unsolved", "used"))
        ratio = "" if way == "uniform" else _ratio(squares[way], squares["uniform"])
        figures = f"{squares[way].mean():>8.3f}{bias:>+8.3f}{unsolved:>10.3f}{used:>7.2f}"
        print(f"{name:<16}{samples:>8}{way:>10}{figures}  {ratio}", flush=True)


def _ratio(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Ratio of the means and its interval by the delta method on paired repetitions."""
    ratio = ours.mean() / theirs.mean()
    error = np.std(ours - ratio * theirs) / math.sqrt(len(ours)) / theirs.mean()
    return f"{ratio:.2f} ({ratio - 1.96 * error:.2f} to {ratio + 1.96 * error:.2f})"


if __name__ == "__main__":
    main()
