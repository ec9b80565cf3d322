"""Two machines in small, with an engine and a judge on each: one run gives what it gives on one machine, bit for bit.

What makes a process here another machine's: a session, a folder and an environment of its own, and nothing shared but
the catalog in PostgreSQL, the bucket, and SPO_HOME, which is a shared disk (docs/guides/scaling.md).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tasks.run.stage import Context, Executor, Work, WorkerFactory
from tests.tasks.conftest import Lab
from tests.warehouse.conftest import bucket, postgres  # noqa: F401  (fixtures)

PART = Path(__file__).with_name("part_elsewhere.py")
AWAY = 'cd / && cat | env -i PATH="$PATH" HOME="$HOME" $(env | grep ^AWS_) setsid --wait "$@" | cat'
MACHINE = ("sh", "-c", AWAY, "machine-{index}")
IN_TURNS = {"model_update_interval": 1, "max_batches_ahead": 0}
"""Each step's batch is sampled with the weights of the step before: then a run has one result."""
CONTENTS = {
    "samples, rollouts and evaluation": "SELECT trajectory_id, problem_id, source, token_ids, reward, policy_start \
        FROM trajectories ORDER BY ALL",
    "corpus": "SELECT trajectory_id, source FROM corpus ORDER BY ALL",
    "pivotal search": "SELECT trajectory_id, position, n, k FROM token_values ORDER BY ALL",
    "training": "SELECT step, trajectory_ids, sources FROM train_batches ORDER BY ALL",
    "losses": "SELECT step, value FROM train_steps WHERE name IN ('loss', 'grad_norm') ORDER BY ALL",
    "policies": "SELECT step, policy_id, kind FROM policies ORDER BY ALL",
    "evaluation": "SELECT policy_id, problem_id, token_ids, reward FROM eval_samples ORDER BY ALL",
}


def on_two_machines(location: str) -> Executor:
    """Lets each machine do every other unit of the work, with an engine and a judge of its own."""

    @contextmanager
    def executor(_worker: WorkerFactory, context: Context) -> Generator[Work]:
        def draw(work: Mapping[str, int], _done: int) -> int:
            names = sorted(work)
            parts = [{name: work[name] for name in names[number::2]} for number in (0, 1)]
            processes = [_started(context, location, number, part) for number, part in enumerate(parts)]
            return sum(int(_ended(process)) for process in processes)

        yield draw

    return executor


def _started(context: Context, location: str, number: int, work: Mapping[str, int]) -> subprocess.Popen[str]:
    command = [part.replace("{index}", str(number)) for part in MACHINE]
    process = subprocess.Popen([*command, sys.executable, str(PART)], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    asked: dict[str, Any] = {"run_id": context.run_id, "home": str(context.home), "pin": context.pin, "work": work}
    process.stdin.write(json.dumps(asked | {"warehouse": location}))
    process.stdin.close()
    return process


def _ended(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    with process.stdout:
        found = process.stdout.read()
    assert process.wait() == 0
    return found


def contents(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    with lab.store() as store:
        return {name: store.rows(sql) for name, sql in CONTENTS.items()}


def lab_in(home: Path, finished: Lab, location: str | None = None) -> Lab:
    shutil.copytree(finished.home / "models", home / "models")
    return Lab(home, location)


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(1200)
def test_a_run_on_two_machines_is_the_run_on_one_bit_for_bit(
    finished: Lab,
    postgres: str,  # noqa: F811
    bucket: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    two = lab_in(tmp_path / "two", finished, f"{postgres}?schema=two_machines&data={bucket}/two-machines")
    elsewhere = {"shards": {"launcher": MACHINE, "engines": 2}, "train": IN_TURNS | {"worker_launcher": MACHINE}}
    results = two.run(two.start("two", elsewhere), executor=on_two_machines(two.location))
    assert not any(result.skipped for result in results.values())
    one = lab_in(tmp_path / "one", finished)
    one.run(one.start("one", {"train": IN_TURNS}))
    found, wanted = contents(two), contents(one)
    for name, rows in wanted.items():
        assert rows, name
        assert found[name] == rows, name
    assert not (two.home / "warehouse").exists()
