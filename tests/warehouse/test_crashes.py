from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.examples import MANY
from tests.fork_server import process_of
from tests.warehouse.conftest import locate
from tests.warehouse.crashing import (
    ROWS,
    acknowledged_batches,
    append_and_die,
    append_for_ever,
    batch_tables,
    compact_and_die,
    compact_for_ever,
    run_to_death,
    torn_batches,
)
from warehouse import Warehouse
from warehouse.commit.failpoints import FAILPOINTS
from warehouse.upkeep.verification import verify

KILLED = -signal.SIGKILL
WRITING = FAILPOINTS[: FAILPOINTS.index("lock-released") + 1]
UPKEEP = FAILPOINTS[FAILPOINTS.index("merge-begun") :]
BACKENDS = [
    pytest.param("folder", id="folder"),
    pytest.param("postgres", id="postgres", marks=pytest.mark.postgres),
    pytest.param("s3", id="s3"),
]


def points(kind: str, labels: Sequence[str]) -> Sequence[str]:
    """All points in a folder and in the slow run, else some."""
    return labels if kind == "folder" or MANY else labels[::3]


@pytest.mark.parametrize("kind", BACKENDS)
def test_writers_killed_at_every_point_lose_and_double_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    location = locate(request, kind, tmp_path)
    batches = 0
    with Warehouse.open(location) as store:
        for label in points(kind, WRITING):
            assert run_to_death(append_and_die, location, label) == KILLED, label
            assert torn_batches(store) == [], label
            for name in (f"after {label}", f"dying at {label}"):
                store.append(name, batch_tables(name), run_id="run")
            batches += 2
            assert torn_batches(store) == [], label
            assert store.value("SELECT count(*) FROM trajectories") == batches * ROWS, label
    checked = verify(location)
    assert checked.clean, checked.findings
    assert checked.batches == batches


@pytest.mark.parametrize("kind", BACKENDS)
def test_compactors_killed_at_every_point_lose_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    location = locate(request, kind, tmp_path)
    batches = 0
    with Warehouse.open(location) as store:
        if kind == "s3":  # times there are whole seconds, and what is as old as the warehouse is not swept
            time.sleep(1.1)
        for label in points(kind, UPKEEP):
            for _ in range(3):
                store.append(f"{batches}", batch_tables(f"{batches}"), run_id="run")
                batches += 1
            store.files.write(f"stored/trajectories/left-by-{label}.0123456789ab.parquet", b"left")
            assert run_to_death(compact_and_die, location, label) == KILLED, label
            assert torn_batches(store) == [], label
            assert store.value("SELECT count(*) FROM trajectories") == batches * ROWS, label
    checked = verify(location)
    assert checked.clean, checked.findings
    assert checked.batches == batches


def test_a_batch_on_its_way_into_the_ledger_is_no_fault(folder: str) -> None:
    assert run_to_death(append_and_die, folder, "catalog-committed") == KILLED
    checked = verify(folder)
    assert checked.clean, checked.findings
    assert (checked.rows, checked.batches) == (ROWS + 1, 0)
    with Warehouse.open(folder) as store:
        assert store.committed(["dying at catalog-committed"])
    assert verify(folder).batches == 1


def _wait_for_another(tmp_path: Path, timeout_s: float = 120) -> None:
    """Return when a batch more is acknowledged: whatever is killed, the others go on."""
    count = sum(len(acknowledged_batches(tmp_path / f"w{number}")) for number in range(3))
    deadline = time.monotonic() + timeout_s
    while sum(len(acknowledged_batches(tmp_path / f"w{number}")) for number in range(3)) == count:
        assert time.monotonic() < deadline, f"nothing was acknowledged for {timeout_s} s"
        time.sleep(0.05)


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_random_kills_of_writers_leaders_and_compactors_lose_and_double_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, kills: int
) -> None:
    location = locate(request, kind, tmp_path)
    chance = random.Random(kills)
    jobs = {
        f"w{number}": (append_for_ever, (location, f"w{number}", str(tmp_path / f"w{number}"))) for number in range(3)
    }
    jobs["compactor"] = (compact_for_ever, (location,))
    with Warehouse.open(location) as store:
        running = {name: process_of(target, *given) for name, (target, given) in jobs.items()}
        for process in running.values():
            process.start()
        try:
            for _ in range(kills):
                _wait_for_another(tmp_path)
                time.sleep(chance.uniform(0.0, 1.0))
                name = chance.choice(sorted(jobs))
                running[name].kill()
                running[name].join()
                assert torn_batches(store) == []
                target, given = jobs[name]
                running[name] = process_of(target, *given)
                running[name].start()
        finally:
            died = [name for name, process in running.items() if not process.is_alive()]
            for process in running.values():
                process.kill()
                process.join()
    assert died == []
    with Warehouse.open(location) as store:
        known = [batch for number in range(3) for batch in acknowledged_batches(tmp_path / f"w{number}")]
        assert known, "nothing was acknowledged"
        assert store.committed(known) == set(known)
        assert torn_batches(store) == []
        batches = store.value("SELECT count(DISTINCT batch_id) FROM trajectories")
        assert batches >= len(set(known))
        assert store.value("SELECT count(*) FROM trajectories") == batches * ROWS
    checked = verify(location)
    assert checked.clean, checked.findings
