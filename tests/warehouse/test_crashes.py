from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from tests.warehouse.conftest import locate
from tests.warehouse.crashing import (
    CONTEXT,
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
from warehouse.intents import POINTS
from warehouse.verification import verify

KILLED = -signal.SIGKILL
WRITING = POINTS[: POINTS.index("lock-released") + 1]
UPKEEP = POINTS[POINTS.index("merge-begun") :]
BACKENDS = [
    pytest.param("folder", id="folder"),
    pytest.param("postgres", id="postgres", marks=[pytest.mark.postgres, pytest.mark.slow]),
]


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("label", WRITING)
def test_a_writer_killed_at_any_point_loses_and_doubles_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, label: str
) -> None:
    location = locate(request, kind, tmp_path)
    with Warehouse.open(location) as store:
        store.append("before", batch_tables("before"), run_id="run")
        assert run_to_death(append_and_die, location, label) == KILLED
        assert torn_batches(store) == []
        store.append("after", batch_tables("after"), run_id="run")
        store.append("dying", batch_tables("dying"), run_id="run")
        assert torn_batches(store) == []
        assert store.value("SELECT count(*) FROM trajectories") == 3 * ROWS
    checked = verify(location)
    assert checked.clean, checked.findings
    assert checked.batches == 3


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("label", UPKEEP)
def test_a_compactor_killed_at_any_point_loses_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, label: str
) -> None:
    location = locate(request, kind, tmp_path)
    with Warehouse.open(location) as store:
        for number in range(3):
            store.append(f"{number}", batch_tables(f"{number}"), run_id="run")
        if label == "file-swept":
            (Path(store.place.data) / "stored" / "trajectories" / "orphan.parquet").write_bytes(b"left")
        assert run_to_death(compact_and_die, location, label) == KILLED
        assert torn_batches(store) == []
        store.append("after", batch_tables("after"), run_id="run")
        assert store.value("SELECT count(*) FROM trajectories") == 4 * ROWS
    checked = verify(location)
    assert checked.clean, checked.findings
    assert checked.batches == 4


@pytest.mark.parametrize("kind", BACKENDS)
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
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
        running = {name: CONTEXT.Process(target=target, args=given) for name, (target, given) in jobs.items()}
        for process in running.values():
            process.start()
        try:
            for _ in range(kills):
                time.sleep(chance.uniform(0.2, 1.5))
                name = chance.choice(sorted(jobs))
                running[name].kill()
                running[name].join()
                assert torn_batches(store) == []
                target, given = jobs[name]
                running[name] = CONTEXT.Process(target=target, args=given)
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
    print(f"{kills} kills, {batches} batches, {len(known)} acknowledged: nothing lost, nothing doubled")
