"""Where a stage's work is done: in its own process, or as Prefect tasks on a Ray cluster."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.settings import home, warehouse_location, warehouse_shown
from tasks.config import ConfigError, ShardsConfig

if TYPE_CHECKING:
    from tasks.run.stage import Context, Executor, Work, WorkerFactory


class RayMissing(ConfigError):
    """The recipe asks for Ray, which is not installed."""


def executor_of(settings: ShardsConfig) -> Executor:
    """What does a stage's work as the recipe asks. Raises RayMissing."""
    if settings.runner == "ray":
        return _on_ray(settings)
    from tasks.run.stage import run_locally

    return run_locally


def divided(work: Mapping[str, int], most: int) -> list[dict[str, int]]:
    """`work` in at most `most` parts of nearly equal amounts: the largest units come first, each to the least part."""
    parts: list[dict[str, int]] = [{} for _ in range(min(most, len(work)))]
    least = [(0, number) for number in range(len(parts))]
    for unit, amount in sorted(work.items(), key=lambda item: (-item[1], item[0])):
        total, number = heapq.heappop(least)
        parts[number][unit] = amount
        heapq.heappush(least, (total + amount, number))
    return parts


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """What a worker on another machine needs to know; it is pickled."""

    worker: WorkerFactory
    run_id: str
    warehouse: str
    """Its location."""
    home: str
    pin: int | None


def remote_task(worker: WorkerFactory, context: Context) -> RemoteTask:
    """What the flow is given, and Prefect keeps: no password."""
    return RemoteTask(worker, context.run_id, warehouse_shown(), str(home()), context.pin)


@task(name="shards", task_run_name="{number} of {count}", persist_result=False, cache_policy=NO_CACHE)
def do_remotely(remote: RemoteTask, work: dict[str, int], number: int, count: int) -> int:
    """Do `work` on the node that this runs on.

    It is not retried by itself: the amounts are those that were missing when the stage began. The stage is, and then
    counts anew.
    """
    import ray

    from tasks.run import runs
    from tasks.run.stage import Context
    from warehouse import Warehouse

    node = ray.get_runtime_context().get_node_id()
    get_run_logger().info("shards %d of %d, %d units on node %s", number, count, len(work), node)
    with Warehouse.open(remote.warehouse) as store:
        config = runs.load_config(store, remote.run_id).model_copy(update={"shards": ShardsConfig()})
        context = Context(remote.run_id, config, store, Path(remote.home), pin=remote.pin)
        with remote.worker(context) as draw:
            return draw(work, 0)


_REPORT: ContextVar[Callable[[int, int, int], None]] = ContextVar("report")


def _report(samples: int, number: int, parts: int) -> None:
    """Tell whoever started the flow in this process that a part has drawn its samples.

    Neither an argument nor a closure: Prefect pickles the flow and its arguments for every node.
    """
    _REPORT.get()(samples, number, parts)


@flow(name="spo-shards", flow_run_name="shards of {remote.run_id}", validate_parameters=False, persist_result=False)
def fan_out(remote: RemoteTask, parts: list[dict[str, int]], options: dict[str, float]) -> int:
    """Samples drawn by all parts, each a Prefect task with `options` (CPUs, GPUs) of the cluster."""
    from prefect_ray.context import remote_options

    reached = replace(remote, warehouse=warehouse_location())  # Prefect keeps the flow's arguments, not the tasks'
    with remote_options(**options):
        futures = [do_remotely.submit(reached, work, number, len(parts)) for number, work in enumerate(parts, start=1)]
    drawn = 0
    for number, future in enumerate(futures, start=1):
        done: int = future.result()
        drawn += done
        _report(done, number, len(parts))
    return drawn


def _on_ray(settings: ShardsConfig) -> Executor:
    try:
        from prefect_ray import RayTaskRunner
    except ImportError as error:
        raise RayMissing(
            f'shards.runner = "ray" needs `pip install -e \'.[ray]\'` in the project ({error}); or set it to "here"'
        ) from error

    @contextmanager
    def executor(worker: WorkerFactory, context: Context) -> Generator[Work]:
        remote = remote_task(worker, context)
        options = {"num_cpus": settings.cpus, "num_gpus": settings.gpus}
        runner: Any = RayTaskRunner(address=settings.address)

        def draw(work: Mapping[str, int], done: int) -> int:
            total, so_far = done + sum(work.values()), [done]

            def report(samples: int, number: int, parts: int) -> None:
                so_far[0] += samples
                context.progress(so_far[0], total, "samples", f"shard {number} of {parts}, on Ray")

            reset = _REPORT.set(report)
            try:
                return fan_out.with_options(task_runner=runner)(remote, divided(work, settings.tasks), options)
            finally:
                _REPORT.reset(reset)

        yield draw

    return executor
