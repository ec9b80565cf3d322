"""Where the reward is the share of tests passed, an older sandbox's share is judged again as a verdict is."""

from __future__ import annotations

from pathlib import Path

import pytest

import sandbox
from tasks.config import validate
from tasks.extras.rejudge import look, rejudge
from tasks.problems.problem import Problem, rows
from warehouse import Warehouse


@pytest.mark.parametrize("every_test", [True, False])
def test_where_the_reward_is_a_share_of_the_tests_another_share_is_another_verdict(
    every_test: bool, tmp_path: Path
) -> None:
    tests = tuple(sandbox.TestCase(f"assert f({n}) == {n}") for n in (2, 1))
    problem = Problem("p", "set", "train", "p", "p", hidden_tests=tests, style="function", every_test=every_test)
    row = {
        "trajectory_id": "t", "problem_id": "p", "suite_hash": problem.suite_hash, "source": "reference",
        "token_ids": [1], "text": "def f(n): return 1", "verdict": "wrong_answer", "reward": -1.0,
        "tests_passed": 0, "tests_total": 2,
    }  # fmt: skip
    config_row = {"recipe": "tiny", "config_json": validate({}).model_dump_json(), "project_version": "0"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("problems", rows([problem]), run_id="hand")
        store.append("run/a", {"runs": [config_row | {"snapshot": 0}]}, run_id="a")
        store.append("some", {"trajectories": [row]}, run_id="a")
        found = rejudge(store, look(store))
        (stored,) = store.rows("SELECT verdict, tests_passed, tests_total FROM trajectories")
        assert (found.judged, look(store).suspects) == (1, ())
    assert found.changed == ({"wrong_answer with other tests": 1} if every_test else {})
    assert stored == {"verdict": "wrong_answer", "tests_passed": int(every_test), "tests_total": 2}
