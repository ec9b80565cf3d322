"""What a trainer and a judging process keep in memory over 1,000 scripted steps, with and without their bounds.

    python -m benchmarks.memory [--steps 1000] [--tokens 300] [--mb 4]

Every step brings 128 trajectories that are new and the verdicts of 128 programs of one problem in 1,000. The warehouse
is an object that answers nothing, so that only what the process itself keeps is counted (tracemalloc).
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

from sandbox import Judgement, Verdict
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.scoring.reference import ReferenceStore

BATCH = 128
PROBLEMS = 1000
UNBOUNDED_MB = 1_000_000


class Nothing:
    """A warehouse without rows."""

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:  # noqa: ARG002
        """No rows."""
        return []


def reference_step(store: ReferenceStore, tokens: int) -> Callable[[int], object]:
    """One step's log-probabilities of new trajectories."""
    return lambda step: store.add({_name("t", step, i): [-0.5 - step / 7] * tokens for i in range(BATCH)})


def verdict_step(known: KnownVerdicts) -> Callable[[int], object]:
    """One batch's verdicts of new programs."""

    def step(number: int) -> None:
        suite = _name("suite", number % PROBLEMS)
        known.read([suite])
        for i in range(BATCH):
            known.put((_name("p", number, i), suite), Judgement(Verdict.accepted, 10, 10))

    return step


def _name(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def grown(step: Callable[[int], object], steps: int) -> list[float]:
    """MB in memory after a tenth, half and all of the steps."""
    gc.collect()
    tracemalloc.start()
    before, found = tracemalloc.get_traced_memory()[0], list[float]()
    for number in range(1, steps + 1):
        step(number)
        if number in (steps // 10, steps // 2, steps):
            gc.collect()
            found.append((tracemalloc.get_traced_memory()[0] - before) / 1e6)
    tracemalloc.stop()
    return found


def main() -> None:
    """Print one line per store and bound."""
    parser = argparse.ArgumentParser(description="Memory of the stores over scripted steps.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--mb", type=int, default=4)
    given = parser.parse_args()
    print(f"| store | bound | after {given.steps // 10} steps | {given.steps // 2} | {given.steps} | bytes an entry |")
    print("|---|---|---|---|---|---|")
    for most in (UNBOUNDED_MB, given.mb):
        bound = "none" if most == UNBOUNDED_MB else f"{most} MB"
        store = ReferenceStore(Nothing(), "f", most_mb=most)
        known = KnownVerdicts(Nothing(), most_mb=most)
        for name, counted, step in (
            (f"log pi_0, {given.tokens} tokens", store, reference_step(store, given.tokens)),
            ("verdicts", known, verdict_step(known)),
        ):
            sizes = grown(step, given.steps)
            figures = " | ".join(f"{size:.1f} MB" for size in sizes)
            print(f"| {name} | {bound} | {figures} | {1e6 * sizes[-1] / counted.count:.0f} |")


if __name__ == "__main__":
    main()
