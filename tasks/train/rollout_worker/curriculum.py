"""What is believed of the problems, and which of them are drawn: hopeless and solved ones teach little.

A rollout of a problem that the policy solves with probability p teaches in proportion to p (1 - p), the variance of its
reward. What is believed of p is a beta distribution: a Jeffreys prior, Q0's success rate as some rollouts at step 0,
and the run's own rollouts, each weighing half as much after every half-life. `learnability` draws in proportion to the
mean of p (1 - p), `thompson` (Thompson 1933) draws a p for every problem and takes the largest p (1 - p).

Evidence is what had arrived with the worker's last batch. So a draw is a function of the seed, worker and number of the
batch, and of what is recorded: a worker that is killed and started again draws the same.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tasks.config import CurriculumConfig, PromptRule
from tasks.engines.randomness import derived_seed
from warehouse import Warehouse
from warehouse.queries import query

EVIDENCE = query(__name__, "evidence")
_SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Belief:
    """A beta distribution of the chance that the policy solves a problem: pseudo-counts of successes and failures."""

    successes: float
    failures: float

    @property
    def mean(self) -> float:
        """Expected chance of success."""
        return self.successes / (self.successes + self.failures)

    @property
    def learnability(self) -> float:
        """Mean of p (1 - p)."""
        total = self.successes + self.failures
        return self.successes * self.failures / (total * (total + 1))


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Successes `k` among `n` rollouts of a problem by weights of one optimizer step."""

    step: int
    n: int
    k: int


def believed(
    rates: Mapping[str, float], rollouts: Mapping[str, Sequence[Rollouts]], config: CurriculumConfig
) -> dict[str, Belief]:
    """What is believed of each problem: `rates` are Q0's, and rollouts count from the newest weights among them."""
    newest = max((found.step for of_one in rollouts.values() for found in of_one), default=0)
    weigh = lambda step: 0.5 ** ((newest - step) / config.half_life)  # noqa: E731
    beliefs: dict[str, Belief] = {}
    for problem, rate in rates.items():
        seen = rollouts.get(problem, ())
        successes = [config.prior * rate * weigh(0), *(found.k * weigh(found.step) for found in seen)]
        failures = [config.prior * (1 - rate) * weigh(0), *((found.n - found.k) * weigh(found.step) for found in seen)]
        beliefs[problem] = Belief(0.5 + math.fsum(successes), 0.5 + math.fsum(failures))
    return beliefs


def rollouts_before(warehouse: Warehouse, run_id: str, worker: str, batch: str) -> dict[str, list[Rollouts]]:
    """The run's rollouts by problem, as of the last batch before `batch` whose id begins with `worker`."""
    found: dict[str, list[Rollouts]] = {}
    for row in warehouse.rows(EVIDENCE, {"run": run_id, "worker": worker, "batch": batch}):
        found.setdefault(str(row["problem_id"]), []).append(Rollouts(int(row["step"]), int(row["n"]), int(row["k"])))
    return found


def choose(rule: PromptRule, beliefs: Mapping[str, Belief], config: CurriculumConfig, seed: int) -> str:
    """The problem that `rule` draws with this seed."""
    problems = list(beliefs)
    chance = random.Random(derived_seed(seed, "prompt"))
    if rule == "uniform" or chance.random() < config.floor:
        return problems[derived_seed(seed, "uniform") % len(problems)]
    if rule == "thompson":
        drawn = {p: chance.betavariate(found.successes, found.failures) for p, found in beliefs.items()}
        return max(problems, key=lambda problem: drawn[problem] * (1 - drawn[problem]))
    reached = list(accumulate(found.learnability for found in beliefs.values()))
    return problems[
        bisect_right(reached, derived_seed(seed, "learnability") / _SEEDS * reached[-1], hi=len(reached) - 1)
    ]
