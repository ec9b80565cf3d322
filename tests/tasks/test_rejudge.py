"""What an older sandbox judged wrongly is judged again, and all that follows from a verdict reads the new one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sandbox
from tasks.config import validate
from tasks.plan import statuses
from tasks.problems.problem import Problem, rows
from tasks.problems.programs import extract_program, program_hash
from tasks.rejudge import AS_TODAY, BUT_MODULES, BUT_OBJECTS, BUT_PACKAGES, Backlog, Rejudged, look, rejudge
from tasks.run import runs
from tasks.run.provenance import begin_training
from tasks.run.stage import Context, key_of
from tasks.sampling.reference_counts import reference_counts
from tasks.sampling.sampler import Judged
from tasks.stages import STAGES
from tests.tasks.conftest import Lab, judge_broken_at
from warehouse import Warehouse, maintenance, verification
from warehouse.queries import query
from warehouse.superseding import content

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


def judged_again(lab: Lab) -> tuple[Backlog, Rejudged]:
    with lab.store() as store:
        backlog = look(store)
        return backlog, rejudge(store, backlog)


def test_counts_corpora_and_curves_are_those_of_the_right_verdicts_afterwards(spoilt: Any) -> None:
    lab, right = spoilt
    with lab.store() as store:
        snapshot, wrong = store.snapshot(), facts(store)
    assert wrong["counts"] != right["counts"]
    assert wrong["prefixes"] != right["prefixes"]
    assert wrong["curve"] != right["curve"]
    backlog, done = judged_again(lab)
    assert done.judged == len(backlog.unknown) > 0
    assert done.changed["compile_error -> accepted"] >= done.batches > 0
    with lab.store() as store:
        assert facts(store) == right
        then = store.rows("SELECT count(*) AS n FROM trajectories WHERE verdict = 'compile_error'", snapshot=snapshot)
    assert then[0]["n"] == sum(row["verdict"] == "compile_error" for row in wrong["responses"])
    assert verification.verify(lab.location).clean


def test_what_a_batch_left_to_another_one_to_count_is_not_counted_by_it_afterwards_either(spoilt: Any) -> None:
    lab, _ = spoilt
    total = "SELECT sum(n) FROM reference_counts"
    with lab.store() as store:
        asked = (
            "SELECT min(batch_id) FROM trajectories WHERE starts_with(batch_id, 'q0/') AND verdict = 'compile_error'"
        )
        batch = store.value(asked)
        known = store.rows("SELECT * FROM reference_counts WHERE batch_id = ? LIMIT 1", [batch])[0]
        held = [content(row) for row in store.rows("SELECT * FROM trajectories WHERE batch_id = ?", [batch])]
        own = [row | {"trajectory_id": f"own-{number}"} for number, row in enumerate(held[::2])]
        way = {"reference": known["reference"], "template_id": known["template_id"], "max_response_tokens": 80}
        counts = reference_counts([Judged(0, 0, row, None) for row in own], **way)
        rows = {"trajectories": [*held, *own], "reference_counts": counts}
        store.append("rollout/other/0/00000000", rows, run_id="other")
        before = store.value(total)
    judged_again(lab)
    replaced = "SELECT count(*) FROM quarantine WHERE bad_batch_id IN ('rollout/other/0/00000000', '{}')"
    assert lab.value(replaced.format(batch)) == 2
    assert lab.value(total) == before


def test_what_a_replaced_batch_holds_beside_responses_is_still_there_afterwards(spoilt: Any) -> None:
    lab, _ = spoilt

    def beside(store: Warehouse) -> list[list[dict[str, Any]]]:
        events = "SELECT run_id, stage, kind, message, payload_json FROM run_events ORDER BY ALL"
        return [store.rows(sql) for sql in (events, "SELECT run_id, step, name, value FROM train_steps ORDER BY ALL")]

    with lab.store() as store:
        before = beside(store)
        rejudge(store, look(store))
        assert beside(store) == before
        for table in ("run_events", "train_steps"):
            moved = f"SELECT count(*) FROM {table} WHERE contains(batch_id, '/rejudged-')"
            assert store.value(moved) > 0, "a worker's batch has been replaced"


def test_a_second_time_nothing_is_judged_and_nothing_is_replaced(spoilt: Any) -> None:
    lab, _ = spoilt
    judged_again(lab)
    with lab.store() as store:
        snapshot = store.snapshot()
    backlog, done = judged_again(lab)
    assert (len(backlog.unknown), done.judged, done.batches, done.changed) == (0, 0, 0, {})
    with lab.store() as store:
        assert store.snapshot() == snapshot


def test_broken_in_the_middle_it_goes_on_with_what_is_left(spoilt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, right = spoilt
    monkeypatch.setattr("tasks.run.stored_judging.AT_ONCE", 4)
    with lab.store() as store:
        first = look(store)
        with judge_broken_at(3):
            rejudge(store, first)
        left = look(store)
        assert len(left.unknown) == len(first.unknown) - 8
        rejudge(store, left)
        assert facts(store) == right
        known = store.rows("SELECT program_hash, suite_hash FROM verdicts WHERE run_id = 'rejudge'")
    assert len(known) == len({tuple(row.values()) for row in known}) == len(first.unknown)


def keys(lab: Lab, run_id: str) -> dict[str, str]:
    with lab.store() as store:
        context = Context(run_id, runs.load_config(store, run_id), store, lab.home)
        return {name: key_of(stage, context) for name, stage in STAGES.items()}


def test_new_runs_read_the_new_verdicts_and_finished_ones_stand(spoilt: Any) -> None:
    lab, _ = spoilt
    before = keys(lab, "micro-1")
    judged_again(lab)
    after = keys(lab, "micro-1")
    changed = {name for name in before if before[name] != after[name]}
    assert changed >= {"q0", "corpus", "pivotal", "train", "evaluate"}
    assert "prepare" not in changed
    with lab.store() as store:
        states = {status.stage: status.state for status in statuses(store, "micro-1", lab.home)}
    assert {states[name] for name in ("prepare", "q0", "corpus", "pivotal", "train")} == {"fresh"}
    run_id = lab.start("next")
    results = lab.run(run_id, "prepare", "q0")
    assert results["prepare"].skipped
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


def test_samples_that_had_no_verdict_count_once_they_have_one(copied: Callable[[], Lab]) -> None:
    lab = copied()
    with lab.store() as store:
        right = facts(store)

    def lose(connection: Any, schema: str) -> int:
        lost = f"""SELECT trajectory_id FROM {schema}.trajectories WHERE starts_with(batch_id, 'q0/')
                   AND verdict IN ('wrong_answer', 'accepted') QUALIFY row_number() OVER (PARTITION BY batch_id) = 1"""
        connection.execute(f"CREATE TEMP TABLE lost AS {lost}")
        connection.execute(f"""UPDATE {schema}.reference_counts AS c SET n = n - 1, k = k - (
            SELECT count(*) FROM {schema}.trajectories t JOIN lost USING (trajectory_id)
            WHERE t.batch_id = c.batch_id AND t.problem_id = c.problem_id AND reward = 0)
            WHERE (batch_id, problem_id) IN (
                SELECT batch_id, problem_id FROM {schema}.trajectories JOIN lost USING (trajectory_id))""")
        connection.execute(f"""UPDATE {schema}.trajectories SET verdict = 'infra', reward = NULL, tests_passed = 0
            WHERE trajectory_id IN (FROM lost)""")
        (count,) = connection.execute("SELECT count(*) FROM lost").fetchone()
        return int(count)

    lost = maintenance.rewrite(lab.location, lose)
    with lab.store() as store:
        assert lost == store.value("SELECT count(*) FROM unscored") > 0
        rejudge(store, look(store))
        assert facts(store) == right


@pytest.mark.parametrize(
    "style, verdict, version, text, suspected",
    [
        ("stdin", "runtime_error", "2", "pass", True),
        ("stdin", "runtime_error", "3", "pass", False),
        ("stdin", "runtime_error", "4", "print(open(0).read())", False),
        ("stdin", "runtime_error", "4", "import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())", True),
        ("stdin", "runtime_error", sandbox.VERSION, "import sys\ndel sys.stdout", False),
        ("stdin", "wrong_answer", "4", "pass", False),
        ("stdin", "wrong_answer", "4", "def g():\n  try:\n    yield\n  finally: print(1)\nx = g(); next(x)", True),
        ("stdin", "wrong_answer", "4", "f = open(1, 'w', closefd=False)", True),
        ("stdin", "wrong_answer", sandbox.VERSION, "f = open(1, 'w', closefd=False)", False),
        ("stdin", "time_limit", "2", "pass", False),
        ("function", "time_limit", "3", "pass", True),
        ("function", "wrong_answer", "4", "pass", True),
        ("function", "wrong_answer", "5", "pass", False),
        ("stdin", "wrong_answer", "5", "f = open(1, 'w', closefd=False)", False),
        ("function", "wrong_answer", sandbox.VERSION, "pass", False),
        ("function", "wrong_answer", "6", "pass", False),
        ("function", "wrong_answer", "8", "def sum(a): return a", True),
        ("function", "wrong_answer", sandbox.VERSION, "def sum(a): return a", False),
        ("function", "wrong_answer", "8", "def f(n): yield n", True),
        ("function", "memory_limit", "8", "pass", True),
        ("function", "memory_limit", "9", "pass", False),
        ("function", "wrong_answer", "9", "def f(n): yield n", False),
        ("function", "wrong_answer", "9", "class P: pass", True),
        ("function", "runtime_error", "9", "async def f(n): return n", True),
        ("function", "wrong_answer", sandbox.VERSION, "class P: pass", False),
        ("stdin", "wrong_answer", "9", "class P: pass", False),
        ("stdin", "wrong_answer", "2", "```python\npass\n```\nOr:\n```python\n```", True),
        ("function", "runtime_error", "6", "@dataclass\nclass P: pass", True),
        ("function", "runtime_error", sandbox.VERSION, "@dataclass\nclass P: pass", False),
        ("stdin", "runtime_error", "6", "@dataclass\nclass P: pass", False),
        ("stdin", "compile_error", "6", "f(:", False),
        ("stdin", "compile_error", "4", "f(:", False),
        ("stdin", "compile_error", "6", "# Run-length encoding: zlib", True),
        ("stdin", "compile_error", "6", "pass", True),
        ("stdin", "compile_error", sandbox.VERSION, "pass", False),
        ("stdin", "wrong_answer", "2", "~~~python\npass\n~~~", True),
        ("stdin", "wrong_answer", "4", "~~~python\npass\n~~~", False),
        ("stdin", "wrong_answer", "2", "```python\npass\n```\nIt passes.\n```python\nx = 1\n```", False),
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


@pytest.mark.parametrize("version", ["4", "5", "6"])
@pytest.mark.parametrize("style", ["stdin", "function"])
def test_programs_that_could_not_read_their_packages_are_doubted(style: Any, version: str, tmp_path: Path) -> None:
    plain = Problem("p", "set", "train", "p", "p", hidden_tests=(sandbox.TestCase("assert f(1)"),), style=style)
    problems = [plain, replace(plain, problem_id="q", packages=("numpy==2.0",))]
    judged = [
        {"program_hash": "h", "suite_hash": problem.suite_hash, "sandbox_version": version, "verdict": "wrong_answer"}
        for problem in problems
    ]
    suites = [problem.suite_hash for problem in problems]
    with Warehouse.open(tmp_path / "warehouse") as store:
        for problem in problems:
            store.append(problem.problem_id, rows([problem]), run_id="hand")
        store.append("verdicts", {"verdicts": judged}, run_id="hand")
        versions = {"versions": list(AS_TODAY), "but_packages": list(BUT_PACKAGES), "but_modules": list(BUT_MODULES)}
        asked = versions | {"but_objects": list(BUT_OBJECTS), "suites": suites}
        found = store.rows(query("tasks.rejudge", "sound"), asked)
    assert [row["suite_hash"] for row in found] == (suites[:1] if style == "stdin" or version != "4" else [])


def test_a_verdict_of_this_version_is_used_without_judging(spoilt: Any) -> None:
    lab, right = spoilt

    def now(connection: Any, schema: str) -> int:
        connection.execute(f"UPDATE {schema}.verdicts SET sandbox_version = '{sandbox.VERSION}'")
        return 0

    with lab.store() as store:
        before = set(look(store).unknown)
    maintenance.rewrite(lab.location, now)
    with lab.store() as store:
        backlog = look(store)
        known = {(row["program_hash"], row["suite_hash"]) for row in store.rows("SELECT * FROM known_verdicts")}
        assert set(backlog.unknown) == before - known < before
        assert rejudge(store, backlog).judged == len(before - known)
        assert facts(store) == right


def listed(program: str) -> str:
    return "1. Read:\n\n" + textwrap.indent(f"```python\n{program}\n```", "   ") + "\n2. Done."


def after_another(program: str) -> str:
    return f"```python\nprint(0)\n\n```python\n{program}\n```"


def within_a_block(program: str) -> str:
    return f"{program}\n```\n\nFor 1 it prints:\n\n```\n2\n```"


@pytest.mark.parametrize(
    ("written", "verdict"),
    [
        (listed, "compile_error"),
        (after_another, "wrong_answer"),
        (after_another, "time_limit"),
        (within_a_block, "wrong_answer"),
    ],
)
def test_a_program_that_an_older_rule_did_not_find_in_its_text_is_found_and_judged(
    written: Callable[[str], str], verdict: str, copied: Callable[[], Lab]
) -> None:
    lab = copied()
    with lab.store() as store:
        (known,) = store.rows("SELECT problem_id, program FROM solutions JOIN eval_samples USING (problem_id) LIMIT 1")
    program = known["program"].rstrip()
    one = "WHERE problem_id = ? AND sample = 0 AND verdict IS NOT NULL"

    def write(connection: Any, schema: str) -> int:
        set_to = f"text = ?, verdict = '{verdict}', reward = -1, program_hash = 'of what was cut out'"
        connection.execute(f"UPDATE {schema}.eval_samples SET {set_to} {one}", [written(program), known["problem_id"]])
        return 0

    maintenance.rewrite(lab.location, write)
    _, found = judged_again(lab)
    with lab.store() as store:
        rows = store.rows(f"SELECT verdict, program_hash FROM eval_samples {one}", [known["problem_id"]])
    assert found.changed == {f"{verdict} -> accepted": len(rows)}
    assert rows
    assert all(list(row.values()) == ["accepted", program_hash(program)] for row in rows)
