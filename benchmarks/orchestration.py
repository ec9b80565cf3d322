"""Seconds of a run outside sampling, judging, training and evaluation, item by item.

    python -m benchmarks.orchestration [--recipe tiny] [--home FOLDER] [--port 4290]

Starts an embedded server in a new home (or in FOLDER, where a second call measures a second run), runs the recipe with
`spo run`, and reads what happened from the server's records and the warehouse. Stops the server at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from warehouse import Warehouse

WORK = ("q0", "corpus", "pivotal", "train", "evaluate")
"""Stages that sample, judge, train or evaluate."""
WEIGHTS = """
-- When were the first and the last weights of a run published?
SELECT min(created_at) AS first, max(created_at) AS last FROM policies WHERE run_id = ? AND kind <> 'reference'
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A task of the flow run: one stage."""

    stage: str
    start: datetime
    end: datetime
    body_s: float

    @property
    def seconds(self) -> float:
        """Whole time of the task."""
        return (self.end - self.start).total_seconds()


def main() -> None:
    """Run, read, print."""
    arguments = parse()
    home = arguments.home or Path(tempfile.mkdtemp(prefix="orchestration-"))
    environment = os.environ | {"SPO_HOME": str(home), "SPO_PORT": str(arguments.port)}
    environment.pop("PREFECT_API_URL", None)
    spo = [sys.executable, "-m", "flows.cli"]
    began = time.time()
    try:
        subprocess.run([*spo, "run", arguments.recipe], env=environment, check=True)
        ended = time.time()
        items, spans = account(f"http://127.0.0.1:{arguments.port}/api", home, began, ended)
    finally:
        subprocess.run([*spo, "down"], env=environment, check=True)
    show(items, spans, ended - began)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--port", type=int, default=4290)
    return parser.parse_args()


def account(api: str, home: Path, began: float, ended: float) -> tuple[dict[str, float], list[Span]]:
    """Seconds by item, and the stages."""
    with httpx.Client(base_url=api, timeout=60) as client:
        newest = {"sort": "EXPECTED_START_TIME_DESC", "limit": 1}
        flow = client.post("/flow_runs/filter", json=newest).raise_for_status().json()[0]
        wanted = {"flow_runs": {"id": {"any_": [flow["id"]]}}}
        tasks = client.post("/task_runs/filter", json=wanted).raise_for_status().json()
    with Warehouse.open(home / "warehouse", read_only=True) as store:
        run_id = store.value("SELECT run_id FROM run_events WHERE kind = 'created' AND message = ?", [flow["id"]])
        spans = stages(store, run_id, tasks)
        weights = store.rows(WEIGHTS, [run_id])[0]
    return itemise(flow, spans, weights, began, ended), spans


def stages(store: Warehouse, run_id: str, tasks: list[dict[str, Any]]) -> list[Span]:
    """The stages of the run in order."""
    rows = store.rows("SELECT stage, seconds FROM stages WHERE run_id = ? ORDER BY created_at", [run_id])
    body = {row["stage"]: float(row["seconds"]) for row in rows}
    found = [Span(t["name"], moment(t["start_time"]), moment(t["end_time"]), body[t["name"]]) for t in tasks]
    return sorted(found, key=lambda span: span.start)


def itemise(
    flow: dict[str, Any], spans: list[Span], weights: dict[str, datetime], began: float, ended: float
) -> dict[str, float]:
    """Seconds of everything that is not sampling, judging, training or evaluation."""
    created, started, over = (moment(flow[name]) for name in ("created", "start_time", "end_time"))
    gaps = [(after.start - before.end).total_seconds() for before, after in pairwise(spans)]
    train = next(span for span in spans if span.stage == "train")
    return {
        "command, server, worker, deployments": created.timestamp() - began,
        "picked up by the worker, process started": (started - created).total_seconds(),
        "run created, first stage begins": (spans[0].start - started).total_seconds(),
        "between stages": sum(gaps),
        "in the stages' tasks, outside their bodies": sum(span.seconds - span.body_s for span in spans),
        "trainer and rollout workers start": (weights["first"] - train.start).total_seconds(),
        "trainer and rollout workers end": (train.end - weights["last"]).total_seconds(),
        "last stage to the end of the flow": (over - spans[-1].end).total_seconds(),
        "end seen, result shown": ended - over.timestamp(),
    }


def moment(text: str) -> datetime:
    """A time of the server."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def show(items: dict[str, float], spans: list[Span], total: float) -> None:
    """Print both tables."""
    line: Callable[[str, float], None] = lambda name, seconds: print(f"| {name} | {seconds:.1f} |")  # noqa: E731
    print("\n| orchestration | s |\n|---|---|")
    for name, seconds in items.items():
        line(name, seconds)
    outside = sum(items.values())
    print(f"| **together** | **{outside:.1f}**, {100 * outside / total:.1f}% of {total:.1f} |")
    print("\n| stage | s |\n|---|---|")
    for span in spans:
        line(span.stage + ("" if span.stage in WORK else " (neither)"), span.body_s)


if __name__ == "__main__":
    main()
