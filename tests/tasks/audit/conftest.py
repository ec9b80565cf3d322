"""A warehouse with one weakly tested problem and programs that passed its tests, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import Limits, TestCase
from tasks.problems import problem as problems_module
from tasks.problems.problem import Problem, Solution
from tasks.programs.extraction import normal_hash, program_hash
from warehouse import Warehouse

RIGHT = "n = int(input())\nprint(10 // n if n else 0)"
ALSO_RIGHT = "n = int(input())\nif n == 0:\n    print(0)\nelse:\n    print(int(10 / n))"
CRASHES = "n = int(input())\nprint(10 // n)"
WRONG = "n = int(input())\nprint(10 // max(n, 1))"
LOOPS = "n = int(input())\nwhile n == 0:\n    pass\nprint(10 // n)"
UNSTABLE = "import time\nn = int(input())\nprint(10 // n if n > 0 else time.perf_counter_ns())"
STATEMENT = "Print 10 divided by n (0 <= n <= 20), rounded down, and 0 if n is 0."
PROBLEM = Problem(
    problem_id="hand/divide",
    problem_set="hand",
    split="train",
    title="Divide",
    statement=STATEMENT,
    public_tests=(TestCase("3\n", "3\n"), TestCase("1\n", "10\n")),
    hidden_tests=(TestCase("7\n", "1\n"),),
    limits=Limits(cpu_s=0.3),
)


class Shelf:
    """A warehouse, and problems and programs put into it."""

    def __init__(self, location: str) -> None:
        self.location = location

    def store(self) -> Warehouse:
        return Warehouse.open(self.location)

    def put(self, problem: Problem, programs: Sequence[str], solutions: Sequence[str] = ()) -> Problem:
        """The problem with these solutions, and these programs as responses that passed its tests."""
        problem = replace(problem, solutions=tuple(Solution(text) for text in solutions))
        rows = [response(problem, text, number) for number, text in enumerate(programs)]
        with self.store() as store:
            tables = problems_module.rows([problem]) | {"trajectories": rows}
            store.append(f"hand/{problem.problem_id}/{problem.suite_hash}", tables, run_id="hand")
        return problem


def response(problem: Problem, text: str, number: int) -> dict[str, Any]:
    return {
        "trajectory_id": f"{problem.problem_id}/{number}",
        "problem_id": problem.problem_id,
        "suite_hash": problem.suite_hash,
        "source": "online",
        "token_ids": [1],
        "text": text,
        "program_hash": program_hash(text),
        "normal_hash": normal_hash(text),
        "verdict": "accepted",
        "reward": 0.0,
    }


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(str(tmp_path / "warehouse"))
