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


def test_a_scored_copy_counts_before_a_runs_own_unscored_one_but_not_before_its_suite(tmp_path: Path) -> None:
    """`one` took suite `s`: its own copy has no reward, `two` scored it by `s`, `three` by `t`."""
    with Warehouse.open(tmp_path / "warehouse") as store:
        problem = {"problem_id": "p0", "split": "train", "suite_hash": "s"}
        store.append("problems/x", {"problems": [problem]}, run_id="one")
        copies = {"one": ("s", None), "two": ("s", 0.0), "three": ("t", -1.0)}
        for run, (suite, reward) in copies.items():
            rows = trajectories(1, suite_hash=suite, reward=reward, problem_id="p0")
            store.append(run, {"trajectories": rows}, run_id=run)
        order = (
            "SELECT list(run_id ORDER BY standing_of_copy(problem_id, suite_hash, run_id, reward, 'problems/x', [?])) "
            "FROM trajectories"
        )
        assert store.value(order, ["one"]) == ["two", "one", "three"]
        assert store.value(order, ["three"]) == ["two", "one", "three"]


def test_repeated_and_believed_responses_count_once_and_not_at_all(tmp_path: Path) -> None:
    problem = {"problem_id": "p0", "split": "train", "suite_hash": "s"}
    found = {"suite_hash": "s", "problem_id": "p0", "source": "online", "reward": 0.0, "verdict": "accepted"}
    believed = found | {"source": "other_model", "verdict": "claimed", "normal_hash": "theirs"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("problems/x", {"problems": [problem]}, run_id="one")
        for batch in ("one", "two"):
            store.append(batch, {"trajectories": trajectories(1, **found)}, run_id=batch)
        store.append("import", {"trajectories": trajectories(1, "c", **believed)}, run_id="import")
        assert store.value("SELECT list(times) FROM new_solutions") == [1]
        assert store.value("SELECT count(*) FROM rejudged WHERE response = 't0'") == 1
        assert store.rows("SELECT source, n, k FROM pass_rate_by_problem") == [{"source": "online", "n": 1, "k": 1}]
        assert store.value("SELECT sum(correct) FROM distinct_correct_programs") == 1
