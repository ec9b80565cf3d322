"""Processes that die on purpose: at a labelled point of the protocol, or whenever they are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.fork_server import process_of
from tests.warehouse.conftest import trajectories
from warehouse import Warehouse
from warehouse.commit.failpoints import failpoint_hooks
from warehouse.upkeep.maintenance import compact

ROWS = 8


def batch_tables(name: str) -> dict[str, list[dict[str, Any]]]:
    """A batch on two tables: all of it must be seen, or nothing."""
    return {"trajectories": trajectories(ROWS, f"{name}-"), "run_events": [{"kind": "batch", "message": name}]}


def die_at(label: str) -> None:
    """Let this process be killed when the protocol comes to `label`."""

    def watch(reached: str) -> None:
        if reached == label:
            os.kill(os.getpid(), signal.SIGKILL)

    failpoint_hooks.append(watch)


def append_and_die(location: str, label: str) -> None:
    with Warehouse.open(location) as store:
        die_at(label)
        store.append(f"dying at {label}", batch_tables(f"dying at {label}"), run_id="run")


def compact_and_die(location: str, label: str) -> None:
    die_at(label)
    compact(location, many_files=1, keep_snapshots=timedelta(0), keep_orphans=timedelta(0))


def append_for_ever(location: str, writer: str, acknowledged: str) -> None:
    """Append numbered batches, going on where an earlier process of this writer stopped; note each acknowledged one."""
    with Warehouse.open(location) as store:
        number = len(store.committed_under(f"{writer}/"))
        notes = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        while True:
            name = f"{writer}/{number}"
            store.append(name, batch_tables(name), run_id=writer)
            os.write(notes, f"{name}\n".encode())
            number += 1


def compact_for_ever(location: str) -> None:
    while True:
        compact(location, many_files=8, keep_snapshots=timedelta(seconds=5), keep_orphans=timedelta(minutes=10))


def run_to_death(target: Callable[..., None], *arguments: Any) -> int | None:
    """Run `target` in a process of its own; its exit code."""
    process = process_of(target, *arguments)
    process.start()
    process.join(120)
    return process.exitcode


def acknowledged_batches(notes: Path) -> list[str]:
    return notes.read_text(encoding="utf-8").split() if notes.exists() else []


def torn_batches(store: Warehouse) -> list[dict[str, Any]]:
    """Batches of which a part is missing or doubled, as one query sees them."""
    return store.rows(
        """
        SELECT batch_id, count(*) AS rows, count(DISTINCT trajectory_id) AS ids, count(message) AS events
        FROM (
            SELECT batch_id, trajectory_id, NULL AS message FROM trajectories
            UNION ALL
            SELECT batch_id, NULL, message FROM run_events
        )
        GROUP BY batch_id
        HAVING count(trajectory_id) <> ? OR count(DISTINCT trajectory_id) <> ? OR count(message) <> 1
        """,
        [ROWS, ROWS],
    )
