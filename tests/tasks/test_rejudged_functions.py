"""Functions that older versions of the sandbox judged by what had not reached the tests, or accepted wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

import sandbox
from tasks.config import validate
from tasks.problems.problem import Problem, rows
from tasks.problems.programs import program_hash
from tasks.rejudge import look
from warehouse import Warehouse


@pytest.mark.parametrize(
    ("test", "version", "suspected", "asked"),
    [
        ("assert f(1) == 1", "8", [], ["accepted"]),
        ("try: f(1)\nexcept E: pass", "8", ["wrong_answer"], ["accepted", "wrong_answer"]),
        ("try: f(1)\nexcept E: pass", "9", [], []),
        ("with patch('sys.stdout') as out: f(1)", "9", ["wrong_answer"], ["accepted", "wrong_answer"]),
        ("class T(unittest.TestCase): pass", "9", ["wrong_answer"], ["accepted", "wrong_answer"]),
        ("assert f(1)._number == 1", "9", ["wrong_answer"], ["accepted", "wrong_answer"]),
    ],
)
def test_functions_are_doubted_for_what_their_tests_do_and_accepted_ones_on_request(
    test: str, version: str, suspected: list[str], asked: list[str], tmp_path: Path
) -> None:
    problem = Problem("p", "set", "train", "p", "p", hidden_tests=(sandbox.TestCase(test),), style="function")
    common = {"suite_hash": problem.suite_hash}
    shown = {"problem_id": "p", "source": "reference", "token_ids": [1], "reward": -1.0}
    texts = {"wrong_answer": "pass", "accepted": "def f(n): return n"}
    responses = [
        common | shown | {"trajectory_id": verdict, "text": text, "verdict": verdict} for verdict, text in texts.items()
    ]
    judged = [
        common | {"program_hash": program_hash(text), "sandbox_version": version, "verdict": verdict}
        for verdict, text in texts.items()
    ]
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("problems", rows([problem]), run_id="hand")
        config_row = {"recipe": "tiny", "config_json": validate({}).model_dump_json(), "project_version": "0"}
        store.append("run/a", {"runs": [config_row | {"snapshot": 0}]}, run_id="a")
        store.append("some", {"trajectories": responses, "verdicts": judged}, run_id="a")
        assert [one.verdict for one in look(store).suspects] == suspected
        assert sorted(one.verdict for one in look(store, ["accepted"]).suspects) == asked
