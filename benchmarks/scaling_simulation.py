"""The schedule of Q0 and of online training at the paper's size, with 1 to 512 engines, simulated.

    python -m benchmarks.scaling_simulation [--workers 1 8 64 512] [--catalog folder|LOCATION] [--tokens-per-s 2500]

A worker is one engine (one GPU) with the sandbox beside it. What it waits for: the coordinator (Prefect's server, per
task run), the catalog (one commit lock; whoever holds it commits everybody's waiting batches) and its own sandbox. The
cost of a commit is measured here first, on `--catalog`; the other costs are options whose defaults docs/scaling.md
explains. Events are simulated by simpy; nothing is random, so equal costs print the same table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import simpy

from warehouse import Warehouse

Events = Generator[simpy.Event, Any, None]
GROUP = 64
"""Most batches in one commit (warehouse/commit.py)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, unless the name says otherwise."""

    tokens_per_s: float
    response_tokens: float
    judge_s: float
    """CPU time to judge one response."""
    cores: float
    """Cores for judging beside each engine."""
    start_s: float
    """Loading an engine, once per task."""
    commit_s: float
    """A commit, whatever is in it."""
    batch_s: float
    """Each batch in a commit."""
    task_s: float
    """CPU time of the coordinator per task run."""
    replicas: int
    """API replicas of the coordinator."""
    step_s: float
    """An optimizer step on the training nodes."""

    @property
    def response_s(self) -> float:
        """An engine's time per response; judging overlaps with sampling, so the slower of both counts."""
        return max(self.response_tokens / self.tokens_per_s, self.judge_s / self.cores)

    @property
    def limited_by(self) -> str:
        """What a worker's own pace is set by."""
        return "sandbox" if self.judge_s / self.cores > self.response_tokens / self.tokens_per_s else "engine"


@dataclass(slots=True)
class Catalog:
    """One commit at a time; a commit takes every batch that waits, up to `GROUP`."""

    env: simpy.Environment
    costs: Costs
    waiting: simpy.Store = field(init=False)
    busy_s: float = 0.0
    commits: int = 0
    batches: int = 0

    def __post_init__(self) -> None:
        self.waiting = simpy.Store(self.env)
        self.env.process(self.run())

    def append(self) -> simpy.Event:
        """An event that happens when the batch is visible."""
        visible = self.env.event()
        self.waiting.put(visible)
        return visible

    def run(self) -> Events:
        """Commit for ever."""
        while True:
            group = [(yield self.waiting.get())]
            while self.waiting.items and len(group) < GROUP:
                group.append((yield self.waiting.get()))
            took = self.costs.commit_s + len(group) * self.costs.batch_s
            yield self.env.timeout(took)
            self.busy_s, self.commits, self.batches = self.busy_s + took, self.commits + 1, self.batches + len(group)
            for visible in group:
                visible.succeed()


@dataclass(slots=True)
class Q0:
    """Q0 of `problems` with `samples` each, in shards of `per_shard` problems, dealt to `tasks` task runs."""

    costs: Costs
    problems: int
    samples: int
    per_shard: int
    tasks: int
    workers: int
    sampling_s: float = 0.0
    coordinator_s: float = 0.0

    def run(self) -> tuple[float, Catalog]:
        """Seconds from the first task to the last commit."""
        env = simpy.Environment()
        catalog = Catalog(env, self.costs)
        coordinator = simpy.Resource(env, self.costs.replicas)
        dealt = [self.problems // self.tasks + (i < self.problems % self.tasks) for i in range(self.tasks)]
        queue = simpy.Store(env)
        queue.items.extend(dealt)
        workers = [env.process(self.worker(env, queue, coordinator, catalog)) for _ in range(self.workers)]
        env.run(env.all_of(workers))
        return env.now, catalog

    def worker(
        self, env: simpy.Environment, queue: simpy.Store, coordinator: simpy.Resource, catalog: Catalog
    ) -> Events:
        """Take tasks while there are any."""
        while queue.items:
            problems = yield queue.get()
            with coordinator.request() as turn:
                yield turn
                yield env.timeout(self.costs.task_s)
                self.coordinator_s += self.costs.task_s
            yield env.timeout(self.costs.start_s)
            while problems > 0:
                shard = min(self.per_shard, problems)
                took = shard * self.samples * self.costs.response_s
                yield env.timeout(took)
                self.sampling_s += took
                yield catalog.append()
                problems -= shard


@dataclass(slots=True)
class Online:
    """Online training: workers append batches of `rollout_batch`, the trainer takes `batch_size` a step."""

    costs: Costs
    workers: int
    steps: int
    batch_size: int
    rollout_batch: int
    ahead: int
    ready: int = 0
    sampling_s: float = 0.0
    waited_s: float = 0.0

    def run(self) -> tuple[float, Catalog]:
        """Seconds for all steps."""
        env = simpy.Environment()
        catalog = Catalog(env, self.costs)
        for _ in range(self.workers):
            env.process(self.worker(env, catalog))
        env.run(env.process(self.trainer(env)))
        return env.now, catalog

    def worker(self, env: simpy.Environment, catalog: Catalog) -> Events:
        """Sample while fewer than `ahead` optimizer batches wait; look again every 0.3 s otherwise."""
        while True:
            while self.ready >= self.ahead * self.batch_size:
                yield env.timeout(0.3)
            took = self.rollout_batch * self.costs.response_s
            yield env.timeout(took)
            self.sampling_s += took
            yield catalog.append()
            self.ready += self.rollout_batch

    def trainer(self, env: simpy.Environment) -> Events:
        """Step after step, looking for new rows every 0.1 s when there are too few."""
        for _ in range(self.steps):
            while self.ready < self.batch_size:
                yield env.timeout(0.1)
                self.waited_s += 0.1
            self.ready -= self.batch_size
            yield env.timeout(self.costs.step_s)


def measured_commit(location: str, rows: int = 64, groups: tuple[int, int] = (1, 32)) -> tuple[float, float]:
    """CPU seconds of a commit and of each batch in it, from the medians of commits of two sizes.

    CPU time of this process, which a busy machine does not change; what a PostgreSQL server does is not in it.
    """
    medians: list[float] = []
    with Warehouse.open(location) as store:
        for size in groups:
            times: list[float] = []
            for repetition in range(6):
                for number in range(size):
                    table = {"trajectories": [response(repetition, number, row) for row in range(rows)]}
                    store.stage(f"simulation/{size}/{repetition}/{number}", table, run_id="simulation")
                began = time.process_time()
                store.commit()
                times.append(time.process_time() - began)
            medians.append(sorted(times)[len(times) // 2])
    each = max(0.0, (medians[1] - medians[0]) / (groups[1] - groups[0]))
    return max(0.0, medians[0] - each), each


def response(repetition: int, number: int, row: int) -> dict[str, Any]:
    """A trajectory of 200 tokens."""
    name = f"{repetition}/{number}/{row}"
    return {"trajectory_id": name, "problem_id": "p", "source": "reference", "token_ids": list(range(200))}


def show_q0(arguments: argparse.Namespace, costs: Costs) -> None:
    """The table of Q0."""
    responses = arguments.problems * arguments.samples
    print(f"\nQ0: {arguments.problems:,} problems x {arguments.samples} = {responses:,} responses")
    print(
        "\n| engines | tasks | problems a shard | hours | engines busy | coordinator busy | catalog busy "
        "| batches a commit |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for workers in arguments.workers:
        for tasks, per_shard in ((workers, 8), (4 * workers, 8), (4 * workers, 1)):
            q0 = Q0(costs, arguments.problems, arguments.samples, per_shard, min(tasks, arguments.problems), workers)
            took, catalog = q0.run()
            busy = q0.sampling_s / (workers * took)
            asked = q0.coordinator_s / costs.replicas / took
            shares = f"{100 * busy:.1f}% | {100 * asked:.2f}% | {100 * catalog.busy_s / took:.2f}%"
            print(
                f"| {workers} | {q0.tasks} | {per_shard} | {took / 3600:,.1f} | {shares} | "
                f"{catalog.batches / catalog.commits:.1f} |"
            )


def show_online(arguments: argparse.Namespace, costs: Costs) -> None:
    """The table of online training."""
    total = arguments.steps * arguments.batch_size
    print(
        f"\nOnline: {arguments.steps:,} steps x {arguments.batch_size} = {total:,} trajectories, "
        f"{costs.step_s} s a step"
    )
    print(
        "\n| engines | hours | trainer waits | engines busy | catalog busy | batches a commit |"
        "\n|---|---|---|---|---|---|"
    )
    simulated = min(arguments.steps, 1000)
    for workers in arguments.workers:
        online = Online(costs, workers, simulated, arguments.batch_size, arguments.rollout_batch, arguments.ahead)
        took, catalog = online.run()
        hours = took / simulated * arguments.steps / 3600
        shares = f"{100 * online.waited_s / took:.1f}% | {100 * online.sampling_s / (workers * took):.1f}%"
        print(
            f"| {workers} | {hours:,.0f} | {shares} | {100 * catalog.busy_s / took:.2f}% | "
            f"{catalog.batches / max(1, catalog.commits):.1f} |"
        )


def main() -> None:
    """Measure, simulate, print."""
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder) / "warehouse") if arguments.catalog == "folder" else arguments.catalog
        commit_s, batch_s = measured_commit(location)
    costs = Costs(
        arguments.tokens_per_s,
        arguments.response_tokens,
        arguments.judge_ms / 1000,
        arguments.cores,
        arguments.start_s,
        commit_s,
        batch_s,
        arguments.task_ms / 1000,
        arguments.replicas,
        arguments.step_s,
    )
    print(f"a commit costs {1000 * commit_s:.1f} CPU-ms and {1000 * batch_s:.1f} ms for each batch of 64 rows in it")
    print(f"a response costs an engine {1000 * costs.response_s:.1f} ms; its pace is set by the {costs.limited_by}")
    show_q0(arguments, costs)
    show_online(arguments, costs)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--catalog", default="folder", help="a warehouse location to measure commits on")
    parser.add_argument("--problems", type=int, default=13_000)
    parser.add_argument("--samples", type=int, default=800)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rollout-batch", type=int, default=32)
    parser.add_argument("--ahead", type=int, default=2, help="train.max_batches_ahead")
    parser.add_argument("--tokens-per-s", type=float, default=2500, help="of one engine")
    parser.add_argument("--response-tokens", type=float, default=400)
    parser.add_argument("--judge-ms", type=float, default=200, help="CPU time to judge one response")
    parser.add_argument("--cores", type=float, default=8, help="for judging, beside each engine")
    parser.add_argument("--start-s", type=float, default=60, help="loading an engine")
    parser.add_argument("--task-ms", type=float, default=54, help="CPU time of the coordinator per task run")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--step-s", type=float, default=2.5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
