"""Seconds of sampling for the same pivotal searches: all at once, one trajectory at a time, one node at a time.

    python -m benchmarks.pivotal_wavefront [--trajectories 64] [--prompt 60] [--length 48]

The two slower orders run on some of the trajectories. A random model of the miniature task's size samples every rollout
to the length limit; whether a rollout passes is drawn from a success curve with two jumps, by prefix, so that all
orders do the same work on the same trajectories.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from benchmarks.sampling import SIZES, saved_model
from tasks.engines.protocol import Request
from tasks.engines.transformers_engine import TransformersEngine
from tasks.estimators import difference_p_value
from tasks.pivotal.search import Node, PrefixCounts, Search, SearchConfig, wavefront

RULE = SearchConfig(difference_p_value, looks=(10, 20, 40), method="change_points")


def main() -> None:
    """Print CPU seconds per rollout for each order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=64)
    parser.add_argument("--peer-trajectories", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=60)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--size", choices=SIZES, default="0.5M")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draws = random.Random(0)
    tokens = {f"t{i:03}": [draws.randrange(2, 300) for _ in range(options.length)] for i in range(options.trajectories)}
    searches = [Search.start(name, ids, (800, 40), group=name) for name, ids in tokens.items()]
    with tempfile.TemporaryDirectory() as folder:
        saved_model(SIZES[options.size], Path(folder))
        engine = TransformersEngine(Path(folder), dtype="float32")
        some = [[search] for search in searches[: options.peer_trajectories]]
        orders = [("all at once", [searches], False), ("one trajectory at a time", some, False)]
        ours = 0.0
        for name, groups, single in [*orders, ("one node at a time", some, True)]:
            seconds, rollouts = run(engine, groups, tokens, options.prompt, single=single)
            each = 1000 * seconds / rollouts
            ours = ours or each
            print(f"{name:<26} {each:6.2f} s per 1,000 rollouts ({rollouts} made)  {each / ours:5.1f}x", flush=True)


def run(
    engine: TransformersEngine,
    groups: Iterable[Sequence[Search]],
    tokens: dict[str, list[int]],
    prompt: int,
    *,
    single: bool,
) -> tuple[float, int]:
    """CPU seconds and rollouts of searching one group after the other; `single`: every node in a call of its own."""
    began, rollouts = time.process_time(), 0
    for searches in groups:
        seen = PrefixCounts()
        while nodes := wavefront(searches, seen, RULE):
            for batch in [[node] for node in nodes] if single else [nodes]:
                rollouts += sample(engine, batch, tokens, prompt)
            for node in nodes:
                seen.absorb(node.prefix, node.rollouts, successes(node, seen.get(node.prefix).n, tokens))
    return time.process_time() - began, rollouts


def sample(engine: TransformersEngine, nodes: Sequence[Node], tokens: dict[str, list[int]], prompt: int) -> int:
    """Draw every node's rollouts in one call; how many came back."""
    requests = [
        Request(
            tuple(range(2, 2 + prompt)) + tuple(tokens[node.trajectory_id][: node.position]),
            n=node.rollouts,
            seed=node.position,
            max_tokens=max(1, len(tokens[node.trajectory_id]) - node.position),
        )
        for node in nodes
    ]
    return sum(1 for _ in engine.sample(requests))


def successes(node: Node, known: int, tokens: dict[str, list[int]]) -> int:
    """Passing rollouts of a node: S is 0.05, then 0.5, then 0.95."""
    length = len(tokens[node.trajectory_id])
    first = random.Random(node.trajectory_id).randrange(2, length // 2)
    share = 0.05 if node.position < first else 0.5 if node.position < first + length // 3 else 0.95
    draws = random.Random(f"{node.prefix}/{known}")
    return sum(draws.random() < share for _ in range(node.rollouts))


if __name__ == "__main__":
    main()
