"""What an older sandbox judged wrongly is judged again, and all that follows from a verdict reads the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sandbox
from tasks.checks.plan import statuses
from tasks.config import validate
from tasks.extras.rejudge import look, rejudge
from tasks.problems.problem import Problem, rows
from tasks.programs.extraction import extract_program, program_hash
from tasks.run.provenance import begin_training
from tests.tasks.conftest import Lab
from warehouse import Warehouse
from warehouse.upkeep import maintenance, verification

RESPONSES = ("trajectories", "eval_samples")
SPOILT = "normal_hash IN (SELECT normal_hash FROM spoilt)"
DRAWN_FROM_PI_0 = "temperature = 1 AND top_p = 1 AND prefix_tokens = 0 AND policy_start = c.reference"


def solve(connection: Any, schema: str) -> int:
    """Let every third response be a right program: the miniature policy of the tests writes next to none."""
    run = connection.execute
    chosen = "verdict <> 'accepted' AND source IN ('reference', 'online') AND hash(trajectory_id) % 3 = 0"
    run(f"""CREATE TEMP TABLE solved AS SELECT trajectory_id FROM {schema}.trajectories WHERE {chosen}""")
    known = f"(SELECT any_value(program) FROM {schema}.solutions s WHERE s.problem_id = t.problem_id)"
    right = f"text = {known}, normal_hash = md5({known}), verdict = 'accepted', reward = 0"
    run(f"UPDATE {schema}.trajectories AS t SET {right} WHERE trajectory_id IN (FROM solved)")
    run(f"UPDATE {schema}.eval_samples AS t SET {right} WHERE sample % 3 = 0")
    run(f"UPDATE {schema}.reference_counts AS c SET k = k + {counted(schema, 'trajectory_id IN (FROM solved)')}")
    run("DROP TABLE solved")
    return 0


def counted(schema: str, condition: str) -> str:
    """SQL: the samples of pi_0 that a row `c` of `reference_counts` counts and that meet the condition."""
    return f"""(SELECT count(*) FROM {schema}.trajectories t WHERE t.batch_id = c.batch_id
                AND t.problem_id = c.problem_id AND {DRAWN_FROM_PI_0} AND {condition})"""


def spoil(connection: Any, schema: str) -> int:
    """Make the warehouse what version 2 would have left, had the compiler failed for half of the right programs."""
    run = connection.execute
    run(f"""CREATE TEMP TABLE spoilt AS SELECT DISTINCT normal_hash FROM (
                SELECT normal_hash FROM {schema}.trajectories WHERE reward = 0
                UNION SELECT normal_hash FROM {schema}.eval_samples WHERE reward = 0
            ) WHERE hash(normal_hash) % 2 = 0""")
    run(f"UPDATE {schema}.verdicts SET sandbox_version = '2'")
    run(f"UPDATE {schema}.reference_counts AS c SET k = k - {counted(schema, f'reward = 0 AND {SPOILT}')}")
    run(f"""UPDATE {schema}.token_values AS v SET k = k - (
                SELECT count(*) FROM {schema}.trajectories t WHERE t.batch_id = v.batch_id AND reward = 0 AND {SPOILT}
                AND t.parent_trajectory_id = v.trajectory_id AND t.prefix_tokens = v.position)""")
    for table in RESPONSES:
        run(f"UPDATE {schema}.{table} SET verdict = 'compile_error', reward = -1 WHERE reward = 0 AND {SPOILT}")
    (count,) = run(f"SELECT count(*) FROM {schema}.trajectories WHERE verdict = 'compile_error'").fetchone()
    run("DROP TABLE spoilt")
    return int(count)


def facts(store: Warehouse) -> dict[str, list[dict[str, Any]]]:
    """Everything in the warehouse that follows from verdicts."""
    asked = {
        "responses": "SELECT trajectory_id, run_id, verdict, reward FROM trajectories ORDER BY ALL",
        "samples": "SELECT policy_id, problem_id, sample, verdict, reward FROM eval_samples ORDER BY ALL",
        "counts": "SELECT * FROM q0 ORDER BY ALL",
        "prefixes": "SELECT prefix_hash, search_id, n, k, pivotal FROM token_values ORDER BY ALL",
        "curve": "SELECT * FROM learning_curve ORDER BY ALL",
        "states": "SELECT run_id, state, stage, seen FROM run_states ORDER BY ALL",
    }
    return {name: store.rows(sql) for name, sql in asked.items()}


@pytest.fixture
def spoilt(copied: Callable[[], Lab]) -> tuple[Lab, dict[str, list[dict[str, Any]]]]:
    """A home whose verdicts are spoilt, and what they were before."""
    lab = copied()
    maintenance.rewrite(lab.location, solve)
    with lab.store() as store:
        before = facts(store)
    assert maintenance.rewrite(lab.location, spoil) > 10
    return lab, before


def test_counts_corpora_and_curves_are_those_of_the_right_verdicts_afterwards(spoilt: Any) -> None:
    lab, right = spoilt
    with lab.store() as store:
        wrong = facts(store)
        assert all(wrong[name] != right[name] for name in ("counts", "prefixes", "curve"))
        backlog = look(store)
        done = rejudge(store, backlog)
        assert done.judged == len(backlog.unknown) > 0
        assert done.changed["compile_error -> accepted"] >= done.batches > 0
        assert facts(store) == right
        snapshot, backlog = store.snapshot(), look(store)
        again = rejudge(store, backlog)
        assert (len(backlog.unknown), again.judged, again.batches, again.changed) == (0, 0, 0, {})
        assert store.snapshot() == snapshot
        states = {status.stage: status.state for status in statuses(store, "micro-1", lab.home)}
    assert {states[name] for name in ("prepare", "q0", "corpus", "pivotal", "train")} == {"fresh"}
    assert verification.verify(lab.location).clean
    results = lab.run(lab.start("next"), "prepare", "q0")
    assert results["q0"].manifest.rows == 0, "samples that have a verdict now are not drawn again"


def test_online_responses_of_a_run_in_training_wait_until_it_has_ended(spoilt: Any) -> None:
    lab, _ = spoilt
    with lab.store() as store:
        store.append("again", {"quarantine": [{"bad_batch_id": batch, "reason": "test"}
            for batch in _batches(store, "stages")]}, run_id="test")  # fmt: skip
        begin_training(store, "micro-1", "key", 1)
        backlog = look(store)
        (waiting,) = backlog.left_out.values()
        online = "SELECT count(*) FROM trajectories WHERE source = 'online' AND verdict = 'compile_error'"
        assert waiting >= store.value(online) > 0
        rejudge(store, backlog)
        assert store.value(online) > 0


def _batches(store: Warehouse, table: str) -> list[str]:
    return [row["batch_id"] for row in store.rows(f"SELECT DISTINCT batch_id FROM {table} WHERE stage = 'train'")]


@pytest.mark.parametrize(
    "style, verdict, version, text, suspected",
    [
        ("stdin", "runtime_error", "2", "pass", True),
        ("function", "wrong_answer", "8", "def f(n): yield n", True),
        ("function", "wrong_answer", sandbox.VERSION, "class P: pass", False),
        ("stdin", "wrong_answer", "2", "```python\npass\n```\nOr:\n```python\n```", True),
    ],
)
def test_what_a_version_that_is_right_about_it_has_judged_is_no_suspect(
    style: Any, verdict: str, version: str, text: str, suspected: bool, tmp_path: Path
) -> None:
    program = program_hash(extract_program(text))
    tests = (sandbox.TestCase("assert f(1) == 1" if style == "function" else "1", ""),)
    problem = Problem("p", "set", "train", "p", "p", hidden_tests=tests, style=style)
    row = {
        "trajectory_id": "t", "problem_id": "p", "suite_hash": problem.suite_hash, "source": "reference",
        "token_ids": [1], "text": text, "program_hash": program, "verdict": verdict, "reward": -1.0,
    }  # fmt: skip
    judged = {
        "program_hash": program, "suite_hash": problem.suite_hash, "sandbox_version": version,
        "verdict": verdict, "tests_passed": 0, "tests_total": 1,
    }  # fmt: skip
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("problems", rows([problem]), run_id="hand")
        config_row = {"recipe": "tiny", "config_json": validate({}).model_dump_json(), "project_version": "0"}
        store.append("run/a", {"runs": [config_row | {"snapshot": 0}]}, run_id="a")
        store.append("some", {"trajectories": [row], "verdicts": [judged]}, run_id="a")
        assert bool(look(store).suspects) == suspected
