# ruff: noqa: E402
"""What the warehouse costs, beside raw pyarrow (the limit), plain DuckLake inserts and delta-rs, in one run.

    python benchmarks/warehouse.py --rows 40000 400000 --writers 1 4 16

CPU time is user + system time of the writing processes. Every trajectory has 200 tokens (2.4 KB of token ids,
log-probabilities and text). delta-rs is measured when the package `deltalake` is installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:] = [
    str(HERE.parent),
    *(part for part in sys.path if Path(part).resolve() != HERE),
]  # this file is a namesake

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse import Warehouse, encoding, lake
from warehouse.maintenance import compact, live_files
from warehouse.place import parse

TOKENS = 200
BATCH = 160
CONTEXT = multiprocessing.get_context("spawn")
Append = Callable[[str, list[dict[str, Any]]], int]


def trajectories(generator: np.random.Generator, count: int, prefix: str) -> list[dict[str, Any]]:
    """Rows like those of training: skewed token ids, log-probabilities, a text, a few repeated names."""
    tokens = np.minimum(generator.zipf(1.3, (count, TOKENS)), 49_151)
    logprobs = -generator.exponential(0.5, (count, TOKENS)).astype(np.float32)
    rewards = -(generator.random(count) < 0.7).astype(float)
    words = np.array([f"w{number} " for number in range(2000)])
    return [
        {
            "trajectory_id": f"{prefix}-{number}",
            "problem_id": f"problem-{generator.integers(500)}",
            "prompt_id": f"prompt-{number % 50}",
            "source": "online",
            "policy_start": "0123456789abcdef",
            "temperature": 0.4,
            "top_p": 0.95,
            "seed": int(generator.integers(1 << 40)),
            "prompt_tokens": 300,
            "token_ids": tokens[number].tolist(),
            "sampled_logprobs": logprobs[number].tolist(),
            "logprob_kind": "raw",
            "text": "".join(words[tokens[number] % 2000]),
            "finish_reason": "stop",
            "reward": float(rewards[number]),
            "verdict": "accepted" if rewards[number] == 0 else "wrong_answer",
            "step": number // 100,
        }
        for number in range(count)
    ]


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True)
class Written:
    """What one writer measured."""

    latencies_s: list[float]
    cpu_s: float
    seconds: float
    conflicts: int
    rows: int


@contextmanager
def ours(folder: str) -> Iterator[Append]:
    with Warehouse.open(f"{folder}/warehouse") as store:

        def append(name: str, rows: list[dict[str, Any]]) -> int:
            store.append(name, {"trajectories": rows}, run_id="benchmark")
            return 0

        yield append


@contextmanager
def ours_in_groups(folder: str) -> Iterator[Append]:
    with Warehouse.open(f"{folder}/warehouse") as store:
        staged = 0

        def append(name: str, rows: list[dict[str, Any]]) -> int:
            nonlocal staged
            store.stage(name, {"trajectories": rows}, run_id="benchmark")
            staged += 1
            if staged % 16 == 0:
                store.commit()
            return 0

        yield append
        store.commit()


@contextmanager
def raw_pyarrow(folder: str) -> Iterator[Append]:
    def append(name: str, rows: list[dict[str, Any]]) -> int:
        path = Path(folder) / "raw" / f"{name.replace('/', '-')}.parquet"
        pq.write_table(_arrow(name, rows), path, **encoding._writer_options("trajectories"))
        return 0

    (Path(folder) / "raw").mkdir(exist_ok=True)
    yield append


@contextmanager
def plain_ducklake(folder: str) -> Iterator[Append]:
    connection = lake.connect(parse(f"{folder}/warehouse"), read_only=False)

    def append(name: str, rows: list[dict[str, Any]]) -> int:
        connection.register("fresh", _arrow(name, rows))
        for attempt in range(1000):
            try:
                connection.execute(f"INSERT INTO {lake.STORED}.trajectories SELECT * FROM fresh")
                return attempt
            except duckdb.Error:
                time.sleep(0.01)
        raise RuntimeError("1000 conflicts")

    yield append
    connection.close()


@contextmanager
def delta(folder: str) -> Iterator[Append]:
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError

    def append(name: str, rows: list[dict[str, Any]]) -> int:
        for attempt in range(1000):
            try:
                write_deltalake(f"{folder}/delta", _arrow(name, rows), mode="append")
                return attempt
            except (OSError, DeltaError):
                time.sleep(0.01)
        raise RuntimeError("1000 conflicts")

    yield append


SYSTEMS = {
    "raw pyarrow, no sync, same encoding": raw_pyarrow,
    "warehouse, append": ours,
    "warehouse, 16 files a group": ours_in_groups,
    "plain DuckLake inserts": plain_ducklake,
    "delta-rs": delta,
}


def _arrow(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return encoding.to_arrow("trajectories", rows, run_id="benchmark", batch_id=name, now=datetime.now(UTC))


def write(system: str, folder: str, writer: int, batches: int, ready: Any, results: Any) -> None:
    """A writing process: everything is generated before the clock starts."""
    generator = np.random.default_rng(writer)
    prepared = [trajectories(generator, BATCH, f"{writer}-{number}") for number in range(min(batches, 8))]
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
        done = Written(latencies, cpu_s() - cpu, time.perf_counter() - begun, conflicts, batches * BATCH)
    results.put(done)


def writing(system: str, writers: int, rows: int) -> dict[str, Any]:
    folder = tempfile.mkdtemp(prefix="warehouse-benchmark-")
    try:
        with Warehouse.open(f"{folder}/warehouse"):
            pass
        batches = max(4, rows // BATCH // writers)
        ready, results = CONTEXT.Barrier(writers), CONTEXT.Queue()
        arguments = [(system, folder, writer, batches, ready, results) for writer in range(writers)]
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
        "rows/s": round(total / max(part.seconds for part in done)),
        "rows/CPU-s": round(total / sum(part.cpu_s for part in done)),
        "CPU ms/append": round(1000 * sum(part.cpu_s for part in done) / len(latencies), 1),
        "median ms": round(1000 * statistics.median(latencies), 1),
        "p99 ms": round(1000 * latencies[int(len(latencies) * 0.99)], 1),
        "conflicts": sum(part.conflicts for part in done),
    }


QUERIES = {
    "newest 128 scored": "SELECT trajectory_id, token_ids, reward FROM trajectories WHERE snapshot_id > ? - 3 "
    "ORDER BY snapshot_id DESC LIMIT 128",
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
    """Batches of 4,000 rows, and 64 of 160 rows at the end: a warehouse in use."""
    generator = np.random.default_rng(0)
    block = _arrow("block", trajectories(generator, 4000, "t"))
    with Warehouse.open(f"{folder}/warehouse") as store:
        for number in range(max(1, (rows - 64 * BATCH) // 4000)):
            names = pa.array([f"b{number}-{row}" for row in range(4000)])
            table = block.set_column(0, block.schema.field(0), names)
            table = table.set_column(
                table.schema.get_field_index("batch_id"),
                table.schema.field("batch_id"),
                pa.repeat(f"bulk/{number}", 4000),
            )
            parts = [("trajectories", 4000, encoding.parquet_bytes("trajectories", table))]
            store.stage_parts(f"bulk/{number}", parts, run_id="benchmark")
            if number % 64 == 63:
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


def encodings() -> list[dict[str, Any]]:
    """Size of 4,000 trajectories under different encodings, and the CPU time to write them."""
    table = _arrow("block", trajectories(np.random.default_rng(0), 4000, "t"))
    raw = 4000 * TOKENS * 8 + sum(len(text.as_py()) for text in table.column("text"))
    chosen = encoding._writer_options("trajectories")
    lists = {"token_ids": "token_ids.list.element", "sampled_logprobs": "sampled_logprobs.list.element"}
    plain = [name for name in chosen["use_dictionary"] if name not in lists.values()]
    options: dict[str, dict[str, Any]] = {
        "chosen": chosen,
        "pyarrow's default (snappy, dictionaries)": {},
        "zstd-1, dictionaries everywhere": {"compression": "zstd", "compression_level": 1},
        "zstd-9, else chosen": chosen | {"compression_level": 9},
        "token ids delta-packed": chosen
        | {"use_dictionary": plain, "column_encoding": {lists["token_ids"]: "DELTA_BINARY_PACKED"}},
        "token ids plain": chosen | {"use_dictionary": plain},
        "log-probabilities plain": chosen | {"use_byte_stream_split": False},
    }
    found: list[dict[str, Any]] = []
    for name, given in options.items():
        sink, cpu = pa.BufferOutputStream(), cpu_s()
        pq.write_table(table, sink, row_group_size=encoding.ROW_GROUP_ROWS, **given)
        size = sink.getvalue().size
        found.append(
            {
                "encoding": name,
                "bytes/row": round(size / 4000),
                "share of raw": round(size / raw, 3),
                "CPU ms": round(1000 * (cpu_s() - cpu)),
            }
        )
    return found


def show(title: str, rows: list[dict[str, Any]]) -> None:
    print(f"\n{title}\n")
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in names) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[40_000], help="sizes of the warehouses that are read")
    parser.add_argument("--write-rows", type=int, default=40_000, help="rows written by each system")
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--json", type=Path, help="write every figure to this file as well")
    chosen = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, DuckDB {duckdb.__version__}")
    systems = [name for name in SYSTEMS if name != "delta-rs" or _installed("deltalake")]
    result: dict[str, list[dict[str, Any]]] = {"encodings": encodings()}
    show("Encodings, 4,000 trajectories", result["encodings"])
    result["writing"] = [writing(name, writers, chosen.write_rows) for writers in chosen.writers for name in systems]
    show(f"Appending {chosen.write_rows:,} rows in batches of {BATCH}", result["writing"])
    result["visibility"] = [visibility()]
    show("From append to follower", result["visibility"])
    for rows in chosen.rows:
        result[f"reading {rows}"] = reading(rows)
        show(f"Reading {rows:,} rows", result[f"reading {rows}"])
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1), encoding="utf-8")


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
