"""The rows and the peers of `benchmarks.warehouse`: how each system appends a batch, and encodings side by side."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse import Warehouse, encoding, lake
from warehouse.location import parse_location

TOKENS = 200
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
        pq.write_table(as_arrow(name, rows), path, **encoding._writer_options("trajectories"))
        return 0

    (Path(folder) / "raw").mkdir(exist_ok=True)
    yield append


@contextmanager
def plain_ducklake(folder: str) -> Iterator[Append]:
    connection = lake.connect(parse_location(f"{folder}/warehouse"), read_only=False)

    def append(name: str, rows: list[dict[str, Any]]) -> int:
        connection.register("fresh", as_arrow(name, rows))
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
                write_deltalake(f"{folder}/delta", as_arrow(name, rows), mode="append")
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


def as_arrow(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return encoding.to_arrow("trajectories", rows, run_id="benchmark", batch_id=name, now=datetime.now(UTC))


def encodings() -> list[dict[str, Any]]:
    """Size of 4,000 trajectories under different encodings, and the CPU time to write them."""
    table = as_arrow("block", trajectories(np.random.default_rng(0), 4000, "t"))
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
