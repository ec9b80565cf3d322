"""What the warehouse costs, beside raw pyarrow (the limit), plain DuckLake inserts and delta-rs, in one run.

    python -m benchmarks.warehouse --rows 40000 400000 4000000 --writers 1 4 16 --batches 64 160 256

CPU time is user + system time of the writing processes. Every trajectory has 200 tokens (2.4 KB of token ids,
log-probabilities and text). delta-rs is measured when the package `deltalake` is installed (the extra `benchmarks`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.warehouse_systems import SYSTEMS, as_arrow, cpu_s, encodings, trajectories
from warehouse import Warehouse, encoding
from warehouse.following import RunFollower
from warehouse.maintenance import compact, live_files

BATCH = 160
CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Written:
    """What one writer measured."""

    latencies_s: list[float]
    cpu_s: float
    seconds: float
    conflicts: int
    rows: int


def write(system: str, folder: str, size: int, writer: int, batches: int, ready: Any, results: Any) -> None:
    """A writing process: everything is generated before the clock starts."""
    generator = np.random.default_rng(writer)
    prepared = [trajectories(generator, size, f"{writer}-{number}") for number in range(min(batches, 8))]
    with SYSTEMS[system](folder) as append:
        append(f"warm/{writer}", prepared[0])
        ready.wait()
        latencies: list[float] = []
        conflicts = 0
        begun, cpu = time.perf_counter(), cpu_s()
        for number in range(batches):
            start = time.perf_counter()
            conflicts += append(f"{writer}/{number}", prepared[number % len(prepared)])
            latencies.append(time.perf_counter() - start)
        done = Written(latencies, cpu_s() - cpu, time.perf_counter() - begun, conflicts, batches * size)
    results.put(done)


def writing(writers: int, size: int, rows: int) -> list[dict[str, Any]]:
    """Every system appending about `rows` rows in batches of `size` from `writers` processes; raw pyarrow first."""
    systems = [name for name in SYSTEMS if name != "delta-rs" or importlib.util.find_spec("deltalake")]
    found = [_writing(system, writers, size, rows) for system in systems]
    limit = found[0]["CPU ms/append"]
    return [row | {"CPU / raw": round(row["CPU ms/append"] / limit, 1)} for row in found]


def _writing(system: str, writers: int, size: int, rows: int) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="warehouse-benchmark-")
    try:
        with Warehouse.open(f"{folder}/warehouse"):
            pass
        batches = max(4, rows // size // writers)
        ready, results = CONTEXT.Barrier(writers), CONTEXT.Queue()
        arguments = [(system, folder, size, writer, batches, ready, results) for writer in range(writers)]
        processes = [CONTEXT.Process(target=write, args=given) for given in arguments]
        for process in processes:
            process.start()
        done: list[Written] = [results.get(timeout=600) for _ in processes]
        for process in processes:
            process.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    latencies = sorted(latency for part in done for latency in part.latencies_s)
    total = sum(part.rows for part in done)
    return {
        "system": system,
        "writers": writers,
        "rows a batch": size,
        "rows/s": round(total / max(part.seconds for part in done)),
        "rows/CPU-s": round(total / sum(part.cpu_s for part in done)),
        "CPU ms/append": round(1000 * sum(part.cpu_s for part in done) / len(latencies), 1),
        "median ms": round(1000 * statistics.median(latencies), 1),
        "p99 ms": round(1000 * latencies[int(len(latencies) * 0.99)], 1),
        "conflicts": sum(part.conflicts for part in done),
    }


QUERIES = {
    "newest 128 scored": "SELECT trajectory_id, token_ids, reward FROM trajectories WHERE snapshot_id > ? - 3 "
    "AND reward IS NOT NULL ORDER BY snapshot_id DESC LIMIT 128",
    "pass rate by problem": "SELECT problem_id, n, k FROM pass_rate_by_problem WHERE ? > 0",
    "one problem's correct": "SELECT trajectory_id, token_ids FROM trajectories WHERE problem_id = 'problem-7' "
    "AND reward = 0 AND ? > 0 LIMIT 100",
    "rows by source": "SELECT source, count(*) FROM trajectories WHERE ? > 0 GROUP BY source",
}


def reading(rows: int) -> list[dict[str, Any]]:
    """CPU and wall time of the named queries and of following, before and after compaction."""
    folder = tempfile.mkdtemp(prefix="warehouse-benchmark-")
    try:
        fill(folder, rows)
        before = measure(folder, rows, "before")
        compact(f"{folder}/warehouse", many_files=1)
        return before + measure(folder, rows, "after")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fill(folder: str, rows: int) -> None:
    """Files of 40,000 rows, as merging leaves them, and 64 appended batches of 160: a warehouse in use."""
    generator = np.random.default_rng(0)
    size = min(40_000, rows - 64 * BATCH)
    block = encoding.parquet_bytes("trajectories", as_arrow("bulk", trajectories(generator, size, "t")))
    with Warehouse.open(f"{folder}/warehouse") as store:
        for number in range((rows - 64 * BATCH) // size):
            store.stage_parts(f"bulk/{number}", [("trajectories", size, block)], run_id="benchmark")
            store.commit()
        small = trajectories(generator, BATCH, "s")
        for number in range(64):
            store.append(f"small/{number}", {"trajectories": small}, run_id="benchmark")


def measure(folder: str, rows: int, when: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with Warehouse.open(f"{folder}/warehouse") as store:
        files = live_files(store)
        newest = store.snapshot()
        actions: dict[str, Callable[[], object]] = {
            name: (lambda query=query: store.rows(query, [newest])) for name, query in QUERIES.items()
        }
        actions["follow 640 new rows"] = lambda: store.follow("trajectories", newest - 4)
        if when == "after":
            generator = np.random.default_rng(1)
            for number in range(4):
                more = trajectories(generator, BATCH, f"m{number}")
                store.append(f"more/{number}", {"trajectories": more}, run_id="benchmark")
            newest = store.snapshot()
        for name, action in actions.items():
            action()
            cpu, walls = cpu_s(), []
            for _ in range(5):
                start = time.perf_counter()
                action()
                walls.append(time.perf_counter() - start)
            found.append(
                {
                    "rows": rows,
                    "compaction": when,
                    "files": len(files),
                    "MB": round(sum(file.bytes for file in files) / 1e6, 1),
                    "query": name,
                    "CPU ms": round(200 * (cpu_s() - cpu), 1),
                    "median ms": round(1000 * statistics.median(walls), 1),
                }
            )
    return found


def _append_slowly(folder: str, times: Any) -> None:
    generator = np.random.default_rng(2)
    rows = trajectories(generator, 64, "v")
    with Warehouse.open(f"{folder}/warehouse") as store:
        for number in range(40):
            begun = time.time()
            store.append(f"visible/{number}", {"trajectories": rows}, run_id="benchmark")
            times.put((f"visible/{number}", begun))
            time.sleep(0.1)


def visibility() -> dict[str, Any]:
    """From the beginning of an append to its rows in the hands of a follower in another process."""
    folder = tempfile.mkdtemp(prefix="warehouse-benchmark-")
    try:
        with Warehouse.open(f"{folder}/warehouse") as store:
            cursor, seen = store.snapshot(), dict[str, float]()
            times = CONTEXT.Queue()
            process = CONTEXT.Process(target=_append_slowly, args=(folder, times))
            process.start()
            while len(seen) < 40:
                rows, cursor = store.follow("trajectories", cursor)
                for row in rows:
                    seen.setdefault(row["batch_id"], time.time())
                time.sleep(0.02)
            begun = dict(times.get() for _ in range(40))
            process.join()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    delays = sorted(1000 * (seen[name] - begun[name]) for name in seen)
    return {"p50 ms": round(statistics.median(delays), 1), "p95 ms": round(delays[37], 1)}


def growing(counts: list[int]) -> list[dict[str, Any]]:
    """What every live file that nobody merged costs, and what merging them costs once."""
    folder = tempfile.mkdtemp(prefix="warehouse-benchmark-")
    location, found = f"{folder}/warehouse", list[dict[str, Any]]()
    rows = trajectories(np.random.default_rng(0), 8, "g")
    try:
        number = 0
        for count in counts:
            with Warehouse.open(location) as store:
                while number < count:
                    store.stage(f"g/{number}", {"trajectories": rows}, run_id="benchmark")
                    number += 1
                    if number % 64 == 0:
                        store.commit()
                store.commit()
            found.append({"live files": count, **_opened(location), "merging s": ""})
        begun = time.perf_counter()
        compact(location)
        merged = round(time.perf_counter() - begun, 1)
        found.append({"live files": "the same, merged", **_opened(location), "merging s": merged})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def following_a_run(counts: list[int]) -> list[dict[str, Any]]:
    """What a loop pays that asks for its run's newest batch of 64 trajectories, by the catalog's snapshots."""
    folder, found = tempfile.mkdtemp(prefix="warehouse-benchmark-"), list[dict[str, Any]]()
    rows = trajectories(np.random.default_rng(0), 64, "r")
    try:
        with Warehouse.open(f"{folder}/warehouse") as store:
            for count in counts:
                while store.snapshot() < count:
                    store.append(f"r/{store.snapshot()}", {"trajectories": rows}, run_id="benchmark")
                found.append({"snapshots": count, **_followed(store, store.snapshot() - 1)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _followed(store: Warehouse, since: int) -> dict[str, float]:
    of_run = {"where": "run_id = ?", "parameters": ("benchmark",)}
    return {
        "Warehouse.follow": _cpu_ms(lambda: store.follow("trajectories", since, **of_run)),
        "RunFollower": _cpu_ms(lambda: RunFollower(store, "trajectories", "benchmark", since=since).read()),
    }


def _cpu_ms(action: Callable[[], object]) -> float:
    """CPU time of an action that has been done once before, the mean of three."""
    action()
    cpu = cpu_s()
    for _ in range(3):
        action()
    return round(1000 * (cpu_s() - cpu) / 3, 1)


def _opened(location: str) -> dict[str, float]:
    with Warehouse.open(location) as store:
        newest = store.snapshot()
        return {
            "catalog MB": round((Path(location) / "catalog.sqlite").stat().st_size / 1e6, 1),
            "opening, CPU ms": _cpu_ms(lambda: Warehouse.open(location).close()),
            "following nothing": _cpu_ms(lambda: store.follow("trajectories", newest)),
            "following 1 snapshot": _cpu_ms(lambda: store.follow("trajectories", newest - 1)),
            "newest 128": _cpu_ms(lambda: store.rows(QUERIES["newest 128 scored"], [newest])),
            "rows by source": _cpu_ms(lambda: store.rows(QUERIES["rows by source"], [newest])),
        }


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n")
    if not rows:
        print("nothing was measured")
        return
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in names) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[40_000], help="sizes of the warehouses that are read")
    parser.add_argument("--write-rows", type=int, default=40_000, help="rows written by each system")
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 4, 16], help="with batches of 160 rows")
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 256], help="further batch sizes, 4 writers")
    parser.add_argument("--files", type=int, nargs="*", default=[], help="numbers of live files, ascending")
    parser.add_argument("--snapshots", type=int, nargs="*", default=[], help="numbers of snapshots, ascending")
    parser.add_argument("--json", type=Path, help="write every figure to this file as well")
    chosen = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, DuckDB {duckdb.__version__}")
    result: dict[str, list[dict[str, Any]]] = {}

    def add(title: str, rows: list[dict[str, Any]]) -> None:
        result[title] = rows
        show(title, rows)

    if chosen.writers or chosen.batches:
        add("Encodings, 4,000 trajectories", encodings())
    cases = [(writers, BATCH) for writers in chosen.writers] + [(4, size) for size in chosen.batches]
    for writers, size in cases:
        add(f"{writers} writers, batches of {size} rows", writing(writers, size, chosen.write_rows))
    if cases:
        add("From append to follower", [visibility()])
    for rows in chosen.rows:
        add(f"Reading {rows:,} rows", reading(rows))
    if chosen.files:
        add("Growing without merging", growing(chosen.files))
    if chosen.snapshots:
        add("Following one run, CPU ms", following_a_run(chosen.snapshots))
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
