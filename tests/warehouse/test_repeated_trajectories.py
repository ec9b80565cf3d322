"""What lies in several batches counts once where responses are counted."""

from __future__ import annotations

from pathlib import Path

from tests.warehouse.conftest import trajectories
from warehouse import Warehouse


def test_a_response_in_two_batches_counts_once_for_each_suite(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as store:
        for batch in ("one", "two"):
            store.append(batch, {"trajectories": trajectories(3, suite_hash="s")}, run_id=batch)
        store.append("three", {"trajectories": trajectories(1, suite_hash="t", reward=-1.0)}, run_id="three")
        found = store.rows("SELECT suite_hash, n, k FROM pass_rate_by_problem ORDER BY suite_hash")
        assert [tuple(row.values()) for row in found] == [("s", 3, 3), ("t", 1, 0)]
        assert store.value("SELECT count(*) FROM replay_pool") == 4
        repeated = store.rows("SELECT trajectory_id, batch_id FROM repeated_trajectories ORDER BY trajectory_id")
        assert [tuple(row.values()) for row in repeated] == [(f"t{number}", "two") for number in range(3)]
