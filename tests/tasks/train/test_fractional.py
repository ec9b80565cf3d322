"""Rewards that are shares of tests passed, from the sandbox to the objectives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sandbox import Judge, Submission
from tasks.problems.problem import problems_from_rows
from tasks.programs.extraction import extract_program
from tasks.run import runs
from tasks.run.stage import Context
from tasks.train.shared.soft_values import prompt_values
from tasks.train.stage import make_job
from tasks.train.trainer.examples import Examples
from tests.tasks.conftest import Lab, trained_with

pytestmark = pytest.mark.slow  # every test of every program, endless loops included

OVERRIDES: dict[str, Any] = {
    "pivotal": {"trajectories": 0},
    "q0": {"zero_successes": "drop"},
    "corpus": {"correct_only": False},
    "train": {"reward": "fractional", "steps": 2},
}
PARTIAL = "reward = -1 AND tests_passed BETWEEN 1 AND tests_total - 1"


@pytest.fixture
def trained(copied: Callable[[], Lab]) -> tuple[Lab, str]:
    """A home with a finished binary run, and a run with fractional rewards trained after it."""
    return trained_with(copied(), OVERRIDES)


def test_fractional_rewards_reach_the_objectives_from_programs_judged_by_every_test(trained: tuple[Lab, str]) -> None:
    lab, run_id = trained
    with lab.store() as store:
        context = Context(run_id, runs.load_config(store, run_id), store, lab.home)
        job = make_job(context)
        own = store.rows("SELECT * FROM problems WHERE batch_id = ?", (job.problems_batch,))
        tests = store.rows("SELECT * FROM tests WHERE batch_id = ?", (job.problems_batch,))
        suites = {p.problem_id: p.suite() for p in problems_from_rows(own, tests) if p.split == "train"}
        rows = store.rows(f"SELECT * FROM trajectories WHERE run_id = ? AND {PARTIAL}", (run_id,))
        assert {row["source"] for row in rows} >= {"reference", "online"}
        values = prompt_values(store, job)
        online = [row for row in rows if row["source"] == "online" and row["problem_id"] in values]
        examples = Examples(store, job, values).build(online, "online")
        samples = store.rows(
            "SELECT * FROM trajectories WHERE run_id = ? AND source = 'reference' AND temperature = 1 AND top_p = 1 "
            "AND problem_id = ?",
            (run_id, online[0]["problem_id"]),
        )
    with Judge(workers=1, stop_at_first_failure=False) as judge:
        again = judge.judge([Submission(extract_program(row["text"]), suites[row["problem_id"]]) for row in online])
    assert [found.passed for found in again] == [row["tests_passed"] for row in online]
    for example, row in zip(examples, online, strict=True):
        share = row["tests_passed"] / row["tests_total"]
        assert example.terminal == pytest.approx((share - 1) / job.train.beta)
    exponentials = [math.exp((row["tests_passed"] / row["tests_total"] - 1) / job.train.beta) for row in samples]
    assert values[online[0]["problem_id"]] == pytest.approx(math.log(math.fsum(exponentials) / len(exponentials)))


def test_verdicts_and_counts_of_binary_judging_are_not_mixed_in(trained: tuple[Lab, str]) -> None:
    lab, run_id = trained
    shared = (
        "SELECT count(*) FROM (SELECT DISTINCT suite_hash FROM trajectories WHERE run_id = 'micro-1') "
        f"a JOIN (SELECT DISTINCT suite_hash FROM trajectories WHERE run_id = '{run_id}') b USING (suite_hash)"
    )
    assert lab.value(shared) == 0
    evaluated = "SELECT count(DISTINCT suite_hash) FROM problems WHERE split = 'evaluation'"
    assert lab.value(evaluated) == 4
