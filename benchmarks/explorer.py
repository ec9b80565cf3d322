"""Milliseconds of each page of `spo ui` over a large warehouse that is written to meanwhile.

    python -m benchmarks.explorer [--rows 4000000] [--folder FOLDER]

A batch arrives before each request, so that no answer is known already; "again" is a request without one. CPU time is
that of all threads. `--folder` keeps the warehouse for the next call. A page prints the time of each of its queries.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb

from benchmarks import harness
from tasks.config import RunConfig
from tasks.explorer.pages import Explorer
from warehouse import Warehouse, encoding
from warehouse.reading.readers import Readers

BLOCK, BATCH, RUNS = 100_000, 160, 20
FRESH = {"problem_id": "problem-0", "source": "online", "token_ids": [1], "reward": 0.0}
Tables = dict[str, list[dict[str, Any]]]

# Programs of a problem are drawn with a skew, as a policy's are; one in three is right. Every tenth row has a new one.
TRAJECTORIES = """
SELECT md5(n::VARCHAR) AS trajectory_id, 'problem-' || (hash(n // 4) % $problems) AS problem_id,
       'prompt-' || (hash(n // 4) % $problems) AS prompt_id, 'suite-' || (hash(n // 4) % $problems) AS suite_hash,
       CASE WHEN kind < 55 THEN 'reference' WHEN kind < 90 THEN 'online' ELSE 'pivotal_rollout' END AS source,
       CASE WHEN kind BETWEEN 55 AND 89 THEN 'policy-' || (n * 40 // $rows) ELSE 'pi_0' END AS policy_start,
       0.4 + 0.6 * random() AS temperature, 0.95 AS top_p, 300 AS prompt_tokens,
       list_transform(range(120), lambda i: (hash(n * 131 + i) % 2000)::INTEGER) AS token_ids,
       list_transform(range(120), lambda i: -(hash(n * 137 + i) % 1000 / 700)::FLOAT) AS sampled_logprobs,
       'raw' AS logprob_kind,
       'value = ' || program || repeat(chr(10) || 'print(value + ' || program || ')', 8) AS text,
       md5('p' || program) AS program_hash, md5('n' || program) AS normal_hash, 'stop' AS finish_reason,
       CASE WHEN hash(program) % 3 = 0 THEN 0.0 ELSE -1.0 END AS reward,
       CASE WHEN hash(program) % 3 = 0 THEN 'accepted' ELSE 'wrong_answer' END AS verdict,
       CASE WHEN kind BETWEEN 55 AND 89 THEN (n % ($rows // 20)) * 400 // ($rows // 20) END AS step,
       'run-' || (n * 20 // $rows) AS run_id, 'b/' || (n // $batch) AS batch_id,
       $begin + to_seconds(n // $batch) AS created_at, 1 AS schema_version
FROM (SELECT n, hash(n) % 100 AS kind,
             CASE WHEN hash(n + 7) % 10 = 0 THEN 'x' || n
                  ELSE 'x' || floor(300 * pow(random(), 3)) || '-' || hash(n // 4) % $problems END AS program
      FROM (SELECT range AS n FROM range($first, $last)))
"""


def fill(folder: str, rows: int, problems: int) -> None:
    """A warehouse of `rows` trajectories of 20 runs, and rows of the tables that pages read beside them."""
    connection = duckdb.connect()
    with Warehouse.open(folder) as store:
        for number, first in enumerate(range(0, rows, BLOCK)):
            values = {"rows": rows, "problems": problems, "first": first, "last": min(rows, first + BLOCK)}
            values |= {"batch": BATCH, "begin": datetime(2026, 1, 1, tzinfo=UTC)}
            table = encoding.from_arrow("trajectories", connection.execute(TRAJECTORIES, values).to_arrow_table())
            block = encoding.parquet_bytes("trajectories", table)
            store.stage_parts(f"bulk/{number}", [("trajectories", table.num_rows, block)], run_id="benchmark")
            store.commit()
        for run in range(RUNS):
            store.append(f"run/{run}", _run(run, rows), run_id=f"run-{run}")
        store.append("beside", _beside(rows, problems), run_id="run-0")


def _run(run: int, rows: int) -> Tables:
    """Rows of one run: two stages, its batches, curves, verdicts and samples of its evaluations."""
    generator, share = random.Random(run), rows // RUNS
    points = [{"step": 100 * i, "policy_id": f"policy-{2 * run + i // 4}", "k": k, "value": v, "low": v, "high": v}
              for i in range(5) for k, v in ((1, 0.1 + 0.1 * i), (10, 0.4 + 0.1 * i))]  # fmt: skip
    change = {"before": 0.1, "after": 0.5, "difference": 0.4, "interval": [0.3, 0.5], "p_value": 0.0}
    change |= {"better": 9, "worse": 1, "equal": 0}
    manifest = {"curve": points, "comparison": {"pass@1": change, "pass@10": change}, "described": "synthetic"}
    batches = [_md5(run * share + generator.randrange(share) for _ in range(64)) for _ in range(400)]
    names = ("loss", "online/pass_fraction", "online/y_T", "online/entropy", "grad_norm", "wait_s")
    done = {"status": "completed", "rows": 1, "seconds": 60.0}
    return {
        "runs": [{"recipe": "synthetic", "config_json": RunConfig(seed=run).model_dump_json()}],
        "stages": [done | {"stage": name, "key": f"{name}-{run}", "manifest_json": text}
                   for name, text in (("train", "{}"), ("evaluate", json.dumps(manifest)))],
        "policies": [{"policy_id": f"policy-{2 * run}", "kind": "final", "path": "/nowhere", "step": 400}],
        "train_batches": [{"step": step, "trajectory_ids": found, "sources": ["online", "offline"] * 32}
                          for step, found in enumerate(batches, start=1)],
        "train_steps": [{"step": 1 + n // 6, "name": names[n % 6], "value": generator.random()} for n in range(2400)],
        "verdicts": [{"program_hash": f"v{run}-{n}", "suite_hash": f"suite-{n % 200}", "verdict": "accepted",
                      "cpu_s": 0.01} for n in range(20_000)],
        "eval_samples": [
            {"policy_id": f"policy-{2 * run}", "step": 100 * (n // 1_000), "problem_id": f"problem-{n % 500}",
             "sample": n, "token_ids": [n % 2_000] * 40, "text": f"print({n % 40})", "program_hash": f"e{n % 40}",
             "normal_hash": f"e{n % 40}", "reward": -float(n % 3 > 0), "verdict": "accepted"} for n in range(2_000)],
    }  # fmt: skip


def _beside(rows: int, problems: int) -> Tables:
    """Rows of all runs: problems, tests, prompts, counts of pi_0, searched trajectories."""
    generator = random.Random(1)
    searched = _md5(generator.randrange(rows) for _ in range(2_000))
    keys = [{"problem_id": f"problem-{n}", "suite_hash": f"suite-{n}"} for n in range(problems)]
    common = {"reference": "pi_0", "sampling": "T=1", "template_id": "t"}
    statement = {"split": "train", "statement": "Read x."}
    test, value = {"input": "1", "expected": "1"}, {"search_id": "a/1", "reference": "pi_0"}
    prompt = {"token_ids": list(range(300)), "text": "Read x."}
    logprobs = {"fingerprint": "f", "logprobs": [-0.5] * 120}
    return {
        "problems": [key | statement | {"title": key["problem_id"]} for key in keys],
        "tests": [key | test | {"position": p, "hidden": p > 1} for key in keys for p in range(10)],
        "reference_counts": [key | common | {"n": 800, "k": n % 300} for n, key in enumerate(keys)],
        "policies": [{"policy_id": "pi_0", "kind": "reference", "path": "/nowhere"}],
        "prompts": [prompt | {"prompt_id": f"prompt-{n}", "problem_id": f"problem-{n}"} for n in range(problems)],
        "token_values": [
            value | {"trajectory_id": i, "position": 10 * p, "n": 10, "k": p} for i in searched for p in range(10)
        ],
        "reference_logprobs": [logprobs | {"trajectory_id": one} for one in searched],
        "run_events": [{"stage": "train", "kind": "progress", "message": f"step {n}"} for n in range(2_000)],
    }


def _md5(numbers: Iterator[int]) -> list[str]:
    return [hashlib.md5(str(number).encode()).hexdigest() for number in numbers]


def addresses(rows: int, problems: int, repeats: int) -> dict[str, list[str]]:
    """Addresses of each page, `repeats` different ones where there are different things to show."""
    generator = random.Random(0)
    numbers = [generator.randrange(rows) for _ in range(repeats)]
    names = [f"problem-{generator.randrange(problems)}" for _ in range(repeats)]
    runs = [f"run-{generator.randrange(RUNS)}" for _ in range(repeats)]
    return {
        "runs": ["/"] * repeats,
        "run": [f"/run?id={run}" for run in runs],
        "compare": [f"/compare?run={run}&run=run-{(int(run[4:]) + 1) % RUNS}" for run in runs],
        "step": [f"/step?run={run}&step={1 + n % 400}" for run, n in zip(runs, numbers, strict=True)],
        "problems": ["/problems"] * repeats,
        "problem": [f"/problem?id={name}" for name in names],
        "problem, found by training": [f"/problem?id={name}&by=found&order=new" for name in names],
        "prompt through training": [f"/prompt?id={name}" for name in names],
        "trajectory": [f"/trajectory?id={identity}" for identity in _md5(iter(numbers))],
        "sandbox": ["/sandbox"] * repeats,
        "studies": ["/studies"] * repeats,
        "ask": ["/ask?" + urlencode({"sql": "SELECT run_id, recipe FROM runs"})] * repeats,
    }


def measure(folder: str, options: Any) -> Iterator[dict[str, Any]]:
    """A row for each page."""
    with Readers.open(folder) as readers, Warehouse.open(folder) as store:
        explorer, before = Explorer(readers, Path(folder)), harness.peak_bytes()
        screen = requested(explorer, "/")[0]
        took = harness.seconds(readers.fill, time.perf_counter)
        print(
            f"first screen {screen:.0f} ms; first reading {took:.1f} s, {(harness.peak_bytes() - before) / 1e6:.0f} MB"
        )
        for page, asked in addresses(options.rows, options.problems, options.repeats).items():
            fresh: list[tuple[float, float]] = []
            again: list[float] = []
            for address in asked:
                fresh_row = FRESH | {"trajectory_id": f"new-{time.time_ns()}"}
                store.append(f"grow/{time.time_ns()}", {"trajectories": [fresh_row]}, run_id="run-0")
                fresh.append(requested(explorer, address))
                again.append(requested(explorer, address)[0])
            wall, cpu = (statistics.median(each[part] for each in fresh[1:]) for part in (0, 1))
            row = {"page": page, "first, ms": fresh[0][0], "median, ms": wall, "CPU, ms": cpu}
            yield row | {"again, ms": statistics.median(again)}


def requested(explorer: Explorer, address: str) -> tuple[float, float]:
    """Wall and CPU milliseconds of a page."""
    path, _, query = address.partition("?")
    began, cpu = time.perf_counter(), time.process_time()
    reply = explorer.reply(path, query)
    if reply.status != 200:
        raise RuntimeError(f"{address}: {reply.status}: {reply.body[-300:]}")
    return 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - cpu)


def main() -> None:
    """Makes the warehouse where there is none, and prints the table."""
    options = harness.options(__doc__, rows=400_000, problems=500, repeats=6, folder=None)
    with tempfile.TemporaryDirectory(prefix="explorer-benchmark-") as scratch:
        folder = options.folder or scratch
        if not (Path(folder) / "catalog.sqlite").exists():
            fill(folder, options.rows, options.problems)
        print(f"{harness.machine()}; {options.rows:,} trajectories of {options.problems} problems")
        harness.show(measure(folder, options))


if __name__ == "__main__":
    main()
