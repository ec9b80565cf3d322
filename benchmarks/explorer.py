"""How long the pages of `spo ui` take over a large warehouse that is written to meanwhile.

    python -m benchmarks.explorer --rows 4000000

A new batch arrives before each asking, so that no answer is known already; "again" asks without one. CPU time is of
all threads: what the page takes on one free core, also when other programs keep the machine busy.
With --plans, a page whose median is over 300 ms is followed by its slowest question and DuckDB's plan of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import duckdb

from tasks.config import RunConfig
from tasks.explorer.pages import Explorer
from tasks.explorer.rendering import question
from warehouse import Warehouse, encoding
from warehouse.reading import Readers

BLOCK = 100_000
BATCH = 160
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT_MS = 300

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


@dataclass
class Timed:
    """Milliseconds of a page: asked first, after each new snapshot, and again without one."""

    first: float = 0.0
    fresh: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")


def fill(folder: str, rows: int, problems: int) -> None:
    """A warehouse of `rows` trajectories of 20 runs, with what the pages read beside them."""
    connection = duckdb.connect(config={"threads": os.cpu_count() or 1})
    with Warehouse.open(folder) as store:
        for number, first in enumerate(range(0, rows, BLOCK)):
            last = min(rows, first + BLOCK)
            values = {"rows": rows, "problems": problems, "first": first, "last": last, "batch": BATCH, "begin": BEGIN}
            table = encoding.from_arrow("trajectories", connection.execute(TRAJECTORIES, values).to_arrow_table())
            block = encoding.parquet_bytes("trajectories", table)
            store.stage_parts(f"bulk/{number}", [("trajectories", table.num_rows, block)], run_id="benchmark")
            store.commit()
            print(f"\r{last:,} of {rows:,} trajectories", end="", flush=True)
        print()
        for run in range(20):
            store.append(f"run/{run}", _run(run, rows), run_id=f"run-{run}")
        store.append("problems", _problems(problems), run_id="run-0")
        store.append("beside", _beside(rows, problems), run_id="run-0")


def _run(run: int, rows: int) -> dict[str, list[dict[str, Any]]]:
    share = rows // 20
    curve = [
        {
            "step": 100 * i,
            "policy_id": f"policy-{2 * run + i // 4}",
            "k": k,
            "value": v,
            "low": v - 0.03,
            "high": v + 0.03,
        }
        for i in range(5)
        for k, v in ((1, 0.1 + 0.1 * i), (10, 0.4 + 0.1 * i))
    ]
    change = {"before": 0.1, "after": 0.5, "difference": 0.4, "interval": [0.3, 0.5], "p_value": 0.0}
    change |= {"better": 9, "worse": 1, "equal": 0}
    manifest = {"curve": curve, "comparison": {"pass@1": change, "pass@10": change}, "described": "synthetic"}
    generator = random.Random(run)
    ids = [run * share + generator.randrange(share) for _ in range(400 * 64)]
    batches = [_md5(ids[64 * step : 64 * step + 64]) for step in range(400)]
    names = ("loss", "online/pass_fraction", "online/y_T", "online/entropy", "grad_norm", "wait_s")
    return {
        "runs": [{"recipe": "synthetic", "config_json": RunConfig(seed=run).model_dump_json()}],
        "stages": [
            {
                "stage": name,
                "key": f"{name}-{run}",
                "status": "completed",
                "rows": 1,
                "seconds": 60.0,
                "manifest_json": text,
            }
            for name, text in (("train", "{}"), ("evaluate", json.dumps(manifest)))
        ],
        "policies": [{"policy_id": f"policy-{2 * run}", "kind": "final", "path": "/nowhere", "step": 400}],
        "train_batches": [
            {"step": step + 1, "trajectory_ids": found, "sources": ["online", "offline"] * 32}
            for step, found in enumerate(batches)
        ],
        "train_steps": [
            {"step": step, "name": name, "value": generator.random()} for step in range(1, 401) for name in names
        ],
        "verdicts": [
            {
                "program_hash": f"v{run}-{n}",
                "suite_hash": f"suite-{n % 200}",
                "verdict": "accepted",
                "cpu_s": 0.01 * (n % 7),
            }
            for n in range(20_000)
        ],
    }


def _beside(rows: int, problems: int) -> dict[str, list[dict[str, Any]]]:
    """What else pages read: prompts, searched trajectories, pi_0's log-probabilities, samples of evaluations."""
    generator = random.Random(1)
    searched = _md5([generator.randrange(rows) for _ in range(2_000)])
    return {
        "prompts": [
            {"prompt_id": f"prompt-{n}", "problem_id": f"problem-{n}", "token_ids": list(range(300)), "text": "Read x."}
            for n in range(problems)
        ],
        "token_values": [
            {
                "trajectory_id": one,
                "position": 10 * p,
                "n": 10,
                "k": p,
                "search_id": "annotation/1",
                "reference": "pi_0",
            }
            for one in searched
            for p in range(10)
        ],
        "reference_logprobs": [
            {"trajectory_id": one, "fingerprint": "f", "logprobs": [-0.5] * 120} for one in searched
        ],
        "eval_samples": [
            {
                "policy_id": f"policy-{2 * run}",
                "step": 100 * (n // 1_000),
                "problem_id": f"problem-{n % problems}",
                "sample": n,
                "token_ids": [n % 2_000] * 40,
                "text": f"print({n % 40})",
                "program_hash": f"e{n % 40}",
                "normal_hash": f"e{n % 40}",
                "reward": -float(n % 3 > 0),
                "verdict": "accepted" if n % 3 == 0 else "wrong_answer",
            }
            for run in range(20)
            for n in range(2_000)
        ],
        "run_events": [{"stage": "train", "kind": "progress", "message": f"step {n}"} for n in range(2_000)],
    }


def _md5(numbers: list[int]) -> list[str]:
    import hashlib

    return [hashlib.md5(str(number).encode()).hexdigest() for number in numbers]


def _problems(count: int) -> dict[str, list[dict[str, Any]]]:
    keys = [f"problem-{n}" for n in range(count)]
    common = {"reference": "pi_0", "sampling": "T=1", "template_id": "t"}
    return {
        "problems": [
            {"problem_id": key, "split": "train", "title": key, "statement": "Read x.", "suite_hash": f"suite-{n}"}
            for n, key in enumerate(keys)
        ],
        "tests": [
            {
                "problem_id": key,
                "suite_hash": f"suite-{n}",
                "position": p,
                "input": "1",
                "expected": "1",
                "hidden": p > 1,
            }
            for n, key in enumerate(keys)
            for p in range(10)
        ],
        "reference_counts": [
            {"problem_id": key, "suite_hash": f"suite-{n}", "n": 800, "k": n % 300, **common}
            for n, key in enumerate(keys)
        ],
        "policies": [{"policy_id": "pi_0", "kind": "reference", "path": "/nowhere"}],
    }


def addresses(rows: int, problems: int, repeats: int) -> dict[str, list[str]]:
    """Addresses of each page, `repeats` different ones where there are different things to show."""
    generator = random.Random(0)
    numbers = [generator.randrange(rows) for _ in range(repeats)]
    names = [f"problem-{generator.randrange(problems)}" for _ in range(repeats)]
    runs = [f"run-{generator.randrange(20)}" for _ in range(repeats)]
    return {
        "runs": ["/"] * repeats,
        "run": [f"/run?id={run}" for run in runs],
        "compare": [f"/compare?run={run}&run=run-{(int(run[4:]) + 1) % 20}" for run in runs],
        "step": [f"/step?run={run}&step={1 + n % 400}" for run, n in zip(runs, numbers, strict=True)],
        "problems": ["/problems"] * repeats,
        "problem": [f"/problem?id={name}" for name in names],
        "problem, found by training": [f"/problem?id={name}&by=found&order=new" for name in names],
        "prompt through training": [f"/prompt?id={name}" for name in names],
        "trajectory": [f"/trajectory?id={identity}" for identity in _md5(numbers)],
        "sandbox": ["/sandbox"] * repeats,
        "studies": ["/studies"] * repeats,
        "ask": ["/ask?" + urlencode({"sql": "SELECT run_id, recipe FROM runs"})] * repeats,
    }


def measure(folder: str, rows: int, problems: int, repeats: int) -> tuple[dict[str, Timed], dict[str, float]]:
    """Times of every page, and of beginning."""
    begun = time.perf_counter()
    found: dict[str, Timed] = {}
    with Readers.open(folder) as readers, Warehouse.open(folder) as store:
        explorer = Explorer(readers, Path(folder))
        beginning = {"open, s": time.perf_counter() - begun}
        beginning["first screen, s"] = _ask(explorer, "/")[0] / 1000
        begun, before, cpu = time.perf_counter(), _resident_mb(), time.process_time()
        readers.fill()
        beginning |= {"fill, s": time.perf_counter() - begun, "fill, CPU s": time.process_time() - cpu}
        beginning["fill, MB"] = _resident_mb() - before
        for page, asked in addresses(rows, problems, repeats).items():
            timed = found[page] = Timed()
            for number, address in enumerate(asked):
                _grow(store)
                cpu = time.process_time()
                took, slow = _slowest(readers, explorer, address)
                if number:
                    timed.fresh.append(took)
                    timed.cpu.append(1000 * (time.process_time() - cpu))
                else:
                    timed.first = took
                timed.slowest = max(timed.slowest, slow)
                timed.kept.append(_ask(explorer, address)[0])
    return found, beginning


def _grow(store: Warehouse) -> None:
    now = time.time_ns()
    row = {
        "trajectory_id": f"new-{now}",
        "problem_id": "problem-0",
        "source": "online",
        "token_ids": [1],
        "reward": 0.0,
    }
    store.append(f"grow/{now}", {"trajectories": [row]}, run_id="run-0")


def _ask(explorer: Explorer, address: str) -> tuple[float, str]:
    path, _, query = address.partition("?")
    begun = time.perf_counter()
    reply = explorer.reply(path, query)
    took = 1000 * (time.perf_counter() - begun)
    if reply.status != 200:
        raise RuntimeError(f"{address}: {reply.status}: {reply.body[-300:]}")
    return took, reply.body


def _slowest(readers: Readers, explorer: Explorer, address: str) -> tuple[float, tuple[float, str]]:
    """Milliseconds of the page, and those of its slowest question with its text."""
    asked: list[tuple[float, str]] = []
    session = readers.session

    def watched(*arguments: Any, **options: Any) -> Any:
        return _Watched(session(*arguments, **options), asked)

    readers.session = watched  # type: ignore[method-assign]
    try:
        took, _ = _ask(explorer, address)
    finally:
        readers.session = session  # type: ignore[method-assign]
    return took, max(asked, default=(0.0, ""))


class _Watched:
    """A session that leaves its questions and their times behind."""

    def __init__(self, session: Any, asked: list[tuple[float, str]]) -> None:
        self._session, self._asked, self._opened = session, asked, None

    def __enter__(self) -> Any:
        self._opened = self._session.__enter__()
        return self._opened

    def __exit__(self, *error: Any) -> Any:
        if self._opened is not None:
            self._asked += [(1000 * one.seconds, question(one)) for one in self._opened.asked]
        return self._session.__exit__(*error)


def _resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--folder", help="of a warehouse made by this script, made there if there is none")
    parser.add_argument("--plans", action="store_true", help=f"print the plan of questions over {LIMIT_MS} ms")
    given = parser.parse_args()
    folder = given.folder or tempfile.mkdtemp(prefix="explorer-benchmark-")
    try:
        if not (Path(folder) / "catalog.sqlite").exists():
            fill(folder, given.rows, given.problems)
        found, beginning = measure(folder, given.rows, given.problems, given.repeats)
    finally:
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{given.rows:,} trajectories of {given.problems} problems, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    print("; ".join(f"{name} {value:.2f}" for name, value in beginning.items()))
    print("| page | first, ms | median, ms | CPU, ms | again, ms | slowest question, ms |\n|---|---|---|---|---|---|")
    for page, timed in found.items():
        row = [timed.first, statistics.median(timed.fresh), statistics.median(timed.cpu)]
        row += [statistics.median(timed.kept), timed.slowest[0]]
        print(f"| {page} | {' | '.join(f'{value:.0f}' for value in row)} |")
    if given.plans:
        _plans(folder, found)


def _plans(folder: str, found: dict[str, Timed]) -> None:
    with Readers.open(folder) as readers:
        readers.fill()
        for page, timed in found.items():
            if statistics.median(timed.fresh) > LIMIT_MS:
                with readers.session() as session:
                    print(f"\n{page}, {timed.slowest[0]:.0f} ms:\n{timed.slowest[1]}\n{session.plan(timed.slowest[1])}")


if __name__ == "__main__":
    main()
