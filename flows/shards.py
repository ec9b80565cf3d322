"""Where a stage's work is done: in its own process, or as Prefect tasks on a Ray cluster."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.settings import home, warehouse_location
from tasks.config import ConfigError, ShardsConfig

if TYPE_CHECKING:
    from tasks.stage import Context, Draw, Part, Spread


class RayMissing(ConfigError):
    """The recipe asks for Ray, which is not installed."""


def spread_of(settings: ShardsConfig) -> Spread:
    """The spread that the recipe asks for. Raises RayMissing."""
    if settings.runner == "ray":
        return _on_ray(settings)
    from tasks.stage import here

    return here


def divided(work: Mapping[str, int], most: int) -> list[dict[str, int]]:
    """`work` in at most `most` parts of nearly equal amounts: the largest units come first, each to the least part."""
    parts: list[dict[str, int]] = [{} for _ in range(min(most, len(work)))]
    least = [(0, number) for number in range(len(parts))]
    for unit, amount in sorted(work.items(), key=lambda item: (-item[1], item[0])):
        total, number = heapq.heappop(least)
        parts[number][unit] = amount
        heapq.heappush(least, (total + amount, number))
    return parts


@task(
    name="part",
    task_run_name="{number} of {count}",
    persist_result=False,
    cache_policy=NO_CACHE,
)
def do_part(
    part: Part, work: dict[str, int], number: int, count: int, place: tuple[str, str, str], pin: int | None
) -> int:
    """Do `work` on the node that this runs on; `place` is (run, warehouse, SPO_HOME).

    It is not retried by itself: the amounts are those that were missing when the stage began. The stage is, and then
    counts anew.
    """
    import ray

    from tasks import runs
    from tasks.stage import Context
    from warehouse import Warehouse

    run_id, location, folder = place
    node = ray.get_runtime_context().get_node_id()
    get_run_logger().info("part %d of %d, %d units on node %s", number, count, len(work), node)
    with Warehouse.open(location) as store:
        context = Context(run_id, runs.load_config(store, run_id), store, Path(folder), pin=pin)
        with part(context) as draw:
            return draw(work, 0)


def _on_ray(settings: ShardsConfig) -> Spread:
    try:
        from prefect_ray import RayTaskRunner
        from prefect_ray.context import remote_options
    except ImportError as error:
        raise RayMissing(f'shards.runner = "ray" needs `pip install .[ray]` ({error}); or set it to "here"') from error

    @contextmanager
    def spread(part: Part, context: Context) -> Generator[Draw]:
        place = (context.run_id, warehouse_location(), str(home()))
        runner: Any = RayTaskRunner(address=settings.address)

        @flow(name="spo-shards", flow_run_name=f"shards of {context.run_id}", task_runner=runner)
        def fan_out(parts: list[dict[str, int]], done_before: int, total: int) -> int:
            with remote_options(num_cpus=settings.cpus, num_gpus=settings.gpus):
                futures = [
                    do_part.submit(part, work, number, len(parts), place, context.pin)
                    for number, work in enumerate(parts, start=1)
                ]
            done = done_before
            for number, future in enumerate(futures, start=1):
                done += future.result()
                context.progress(done, total, "samples", f"shard {number} of {len(parts)}, on Ray")
            return done - done_before

        yield lambda work, done: fan_out(divided(work, settings.tasks), done, done + sum(work.values()))

    return spread
