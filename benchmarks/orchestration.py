"""Seconds of a run outside sampling, judging, training and evaluation, item by item.

    python -m benchmarks.orchestration [--recipe tiny] [--home FOLDER] [--port 4290]

Starts a server in a new home (or in FOLDER, where a second call measures a second run), runs the recipe with `spo run`,
and reads the server's records and the warehouse. Stops the server at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from benchmarks import harness
from warehouse import Warehouse

WEIGHTS = """
-- When were the first and the last weights of a run published?
SELECT min(created_at) AS first, max(created_at) AS last FROM policies WHERE run_id = ? AND kind <> 'reference'
"""


def main() -> None:
    """Runs, reads, prints."""
    options = harness.options(__doc__, recipe="tiny", home=None, port=4290)
    home = Path(options.home or tempfile.mkdtemp(prefix="orchestration-"))
    environment = os.environ | {"SPO_HOME": str(home), "SPO_PORT": str(options.port)}
    environment.pop("PREFECT_API_URL", None)
    spo = [sys.executable, "-m", "flows.cli"]
    began = time.time()
    try:
        subprocess.run([*spo, "run", options.recipe], env=environment, check=True)
        ended = time.time()
        items, stages = account(f"http://127.0.0.1:{options.port}/api", home, began, ended)
    finally:
        subprocess.run([*spo, "down"], env=environment, check=True)
    outside = sum(items.values())
    items[f"together, {outside / (ended - began):.1%} of {ended - began:.1f}"] = outside
    harness.show({"orchestration": name, "s": f"{seconds:.1f}"} for name, seconds in items.items())
    harness.show({"stage": name, "s": f"{seconds:.1f}"} for name, seconds in stages.items())


def account(api: str, home: Path, began: float, ended: float) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of each item, and of each stage."""
    with httpx.Client(base_url=api, timeout=60) as client:
        newest = {"sort": "EXPECTED_START_TIME_DESC", "limit": 1}
        flow = client.post("/flow_runs/filter", json=newest).raise_for_status().json()[0]
        wanted = {"flow_runs": {"id": {"any_": [flow["id"]]}}}
        tasks = client.post("/task_runs/filter", json=wanted).raise_for_status().json()
    with Warehouse.open(home / "warehouse", read_only=True) as store:
        run_id = store.value("SELECT run_id FROM run_events WHERE kind = 'created' AND message = ?", [flow["id"]])
        rows = store.rows("SELECT stage, seconds FROM stages WHERE run_id = ? ORDER BY created_at", [run_id])
        weights = store.rows(WEIGHTS, [run_id])[0]
    body = {row["stage"]: float(row["seconds"]) for row in rows}
    spans = sorted((moment(task["start_time"]), moment(task["end_time"]), task["name"]) for task in tasks)
    created, started, over = (moment(flow[name]) for name in ("created", "start_time", "end_time"))
    train = next((start, end) for start, end, name in spans if name == "train")
    apart: dict[str, Any] = {
        "run created, first stage begins": spans[0][0] - started,
        "trainer and rollout workers start": weights["first"] - train[0],
        "trainer and rollout workers end": train[1] - weights["last"],
        "last stage to the end of the flow": over - spans[-1][1],
        "picked up by the worker, process started": started - created,
    }
    items = {name: span.total_seconds() for name, span in apart.items()}
    items["command, server, worker, deployments"] = created.timestamp() - began
    items["between stages"] = sum((after[0] - before[1]).total_seconds() for before, after in pairwise(spans))
    in_tasks = sum((end - start).total_seconds() - body[name] for start, end, name in spans)
    items["in the stages' tasks, outside their bodies"] = in_tasks
    items["end seen, result shown"] = ended - over.timestamp()
    return items, body


def moment(text: str) -> datetime:
    """A time of the server."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


if __name__ == "__main__":
    main()
