"""Cost of the warehouse, beside raw pyarrow (the limit), plain DuckLake inserts and delta-rs, in one run.

    python -m benchmarks.warehouse [--writers 1 4 16] [--rows 40000 4000000]

Every trajectory has 200 tokens (2.4 KB of token ids, log-probabilities and text); a batch has `--batch` rows.
`--writers`: so many processes append `--write-rows` rows. `--rows`: queries over warehouses of so many rows, before and
after compaction. CPU seconds are those of the process, user and system. delta-rs is measured where `deltalake` is
installed (the extra `benchmarks`).
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import harness
from warehouse import Warehouse, encoding, lake
from warehouse.location import parse_location
from warehouse.upkeep.maintenance import compact, live_files

TOKENS, RUN = 200, "benchmark"
CONTEXT = multiprocessing.get_context("spawn")
Rows = list[dict[str, Any]]
Append = Callable[[str, Rows], int]
"""Appends a named batch; returns the number of conflicts."""
QUERIES = {
    "newest 128 scored": "SELECT trajectory_id, token_ids, reward FROM trajectories WHERE snapshot_id > ? - 3 "
    "AND reward IS NOT NULL ORDER BY snapshot_id DESC LIMIT 128",
    "pass rate by problem": "SELECT problem_id, n, k FROM pass_rate_by_problem WHERE ? > 0",
    "one problem's correct": "SELECT trajectory_id, token_ids FROM trajectories WHERE problem_id = 'problem-7' "
    "AND reward = 0 AND ? > 0 LIMIT 100",
    "rows by source": "SELECT source, count(*) FROM trajectories WHERE ? > 0 GROUP BY source",
}


def trajectories(seed: int, count: int, prefix: str) -> Rows:
    """Rows like those of training: skewed token ids, log-probabilities, a text, a few repeated names."""
    generator = np.random.default_rng(seed)
    tokens = np.minimum(generator.zipf(1.3, (count, TOKENS)), 49_151)
    logprobs = -generator.exponential(0.5, (count, TOKENS)).astype(np.float32)
    rewards = -(generator.random(count) < 0.7).astype(float)
    words = np.array([f"w{number} " for number in range(2000)])
    same = {"source": "online", "policy_start": "0123456789abcdef", "temperature": 0.4, "top_p": 0.95}
    same |= {"prompt_tokens": 300, "logprob_kind": "raw", "finish_reason": "stop"}
    return [
        same
        | {
            "trajectory_id": f"{prefix}-{number}",
            "problem_id": f"problem-{generator.integers(500)}",
            "prompt_id": f"prompt-{number % 50}",
            "seed": int(generator.integers(1 << 40)),
            "token_ids": tokens[number].tolist(),
            "sampled_logprobs": logprobs[number].tolist(),
            "text": "".join(words[tokens[number] % 2000]),
            "reward": float(rewards[number]),
            "verdict": "accepted" if rewards[number] == 0 else "wrong_answer",
            "step": number // 100,
        }
        for number in range(count)
    ]


def as_arrow(name: str, rows: Rows) -> pa.Table:
    """The batch as the warehouse encodes it."""
    return encoding.to_arrow("trajectories", rows, run_id=RUN, batch_id=name, now=datetime.now(UTC))


def ours(folder: str, stack: ExitStack) -> Append:
    """Durable appends, each visible when it returns."""
    store = stack.enter_context(Warehouse.open(f"{folder}/warehouse"))
    return lambda name, rows: store.append(name, {"trajectories": rows}, run_id=RUN) and 0


def raw_pyarrow(folder: str, _: ExitStack) -> Append:
    """Parquet files in the same encoding, without a catalog and without syncing."""
    (Path(folder) / "raw").mkdir(exist_ok=True)
    options = encoding._writer_options("trajectories")

    def append(name: str, rows: Rows) -> int:
        pq.write_table(as_arrow(name, rows), Path(folder) / "raw" / f"{name.replace('/', '-')}.parquet", **options)
        return 0

    return append


def plain_ducklake(folder: str, stack: ExitStack) -> Append:
    """DuckLake's own inserts, tried again after a conflict."""
    connection = lake.connect(parse_location(f"{folder}/warehouse"), read_only=False)
    stack.callback(connection.close)

    def insert(table: pa.Table) -> None:
        connection.register("fresh", table)
        connection.execute(f"INSERT INTO {lake.STORED}.trajectories SELECT * FROM fresh")

    return _until_it_works(insert, duckdb.Error)


def delta_rs(folder: str, _: ExitStack) -> Append:
    """delta-rs, tried again after a conflict."""
    from deltalake import write_deltalake
    from deltalake.exceptions import DeltaError

    return _until_it_works(lambda table: write_deltalake(f"{folder}/delta", table, mode="append"), OSError, DeltaError)


def _until_it_works(insert: Callable[[pa.Table], None], *conflicts: type[Exception]) -> Append:
    def append(name: str, rows: Rows) -> int:
        for attempt in range(1000):
            try:
                insert(as_arrow(name, rows))
                return attempt
            except conflicts:
                time.sleep(0.01)
        raise RuntimeError("1000 conflicts")

    return append


SYSTEMS = {"raw pyarrow": raw_pyarrow, "ours": ours, "plain DuckLake": plain_ducklake, "delta-rs": delta_rs}


def write(system: str, folder: str, size: int, writer: int, batches: int, ready: Any, results: Any) -> None:
    """A writing process; rows are generated before the clock starts."""
    prepared = [trajectories(writer, size, f"{writer}-{number}") for number in range(min(batches, 8))]
    with ExitStack() as stack:
        append = SYSTEMS[system](folder, stack)
        append(f"warm/{writer}", prepared[0])
        ready.wait()
        began, cpu, conflicts, latencies = time.perf_counter(), time.process_time(), 0, list[float]()
        for number in range(batches):
            start = time.perf_counter()
            conflicts += append(f"{writer}/{number}", prepared[number % len(prepared)])
            latencies.append(time.perf_counter() - start)
        results.put((time.perf_counter() - began, time.process_time() - cpu, conflicts, latencies))


def writing(writers: int, size: int, rows: int) -> Iterator[dict[str, Any]]:
    """A row for each system; raw pyarrow is the base of the ratio of CPU time."""
    batches, base = max(4, rows // size // writers), 0.0
    for system in SYSTEMS:
        if system == "delta-rs" and importlib.util.find_spec("deltalake") is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            Warehouse.open(f"{folder}/warehouse").close()
            ready, results = CONTEXT.Barrier(writers), CONTEXT.Queue()
            tasks = [(system, folder, size, writer, batches, ready, results) for writer in range(writers)]
            processes = [CONTEXT.Process(target=write, args=task) for task in tasks]
            for process in processes:
                process.start()
            done = [results.get(timeout=600) for _ in processes]
            for process in processes:
                process.join()
        latencies = sorted(latency for _, _, _, each in done for latency in each)
        cpu = sum(part[1] for part in done) / len(latencies)
        base = base or cpu
        row = {"system": system, "rows/s": size * len(latencies) / max(part[0] for part in done)}
        row |= {"CPU ms an append": 1000 * cpu, "CPU/raw": cpu / base, "median ms": 1000 * statistics.median(latencies)}
        p99 = 1000 * latencies[int(len(latencies) * 0.99)]
        yield row | {"p99 ms": p99, "conflicts": sum(part[2] for part in done)}


def reading(rows: int, batch: int) -> Iterator[dict[str, Any]]:
    """CPU and wall milliseconds of queries and of following, before and after compaction."""
    with tempfile.TemporaryDirectory() as folder:
        location = f"{folder}/warehouse"
        fill(location, rows, batch)
        for when in ("before", "after"):
            if when == "after":
                compact(location, many_files=1)
            with Warehouse.open(location) as store:
                for number in range(4):
                    fresh = trajectories(1, batch, f"m{number}")
                    store.append(f"{when}/{number}", {"trajectories": fresh}, run_id=RUN)
                files = live_files(store)
                for name, action in queries(store, batch).items():
                    row = {"query": name, "compaction": when, "files": len(files)}
                    row |= {"MB": sum(file.bytes for file in files) / 1e6, "CPU ms": 1000 * harness.median_s(action)}
                    yield row | {"wall ms": 1000 * harness.median_s(action, time.perf_counter)}


def queries(store: Warehouse, batch: int) -> dict[str, Callable[[], object]]:
    """Named readings of the newest snapshot."""
    newest = store.snapshot()
    actions: dict[str, Callable[[], object]] = {
        name: lambda sql=sql: store.rows(sql, [newest]) for name, sql in QUERIES.items()
    }
    return actions | {f"follow {4 * batch} new rows": lambda: store.follow("trajectories", newest - 4)}


def fill(location: str, rows: int, batch: int) -> None:
    """Files of 40,000 rows, as merging leaves them, and 64 appended batches: a warehouse in use."""
    size = min(40_000, rows - 64 * batch)
    block = encoding.parquet_bytes("trajectories", as_arrow("bulk", trajectories(0, size, "t")))
    small = trajectories(1, batch, "s")
    with Warehouse.open(location) as store:
        for number in range((rows - 64 * batch) // size):
            store.stage_parts(f"bulk/{number}", [("trajectories", size, block)], run_id=RUN)
            store.commit()
        for number in range(64):
            store.append(f"small/{number}", {"trajectories": small}, run_id=RUN)


def main() -> None:
    """Prints a table for each number of writers and size."""
    options = harness.options(
        __doc__, writers=[1, 4, 16], rows=[40_000], batch=160, write_rows=40_000
    )  # fmt: skip
    print(f"{harness.machine()}, DuckDB {duckdb.__version__}")
    for writers in options.writers:
        title = f"{writers} writers, batches of {options.batch} rows"
        harness.show(writing(writers, options.batch, options.write_rows), title)
    for rows in options.rows:
        harness.show(reading(rows, options.batch), f"Reading {rows:,} rows")


if __name__ == "__main__":
    main()
