from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tasks.estimators import beta_interval, pass_at_k
from tests.warehouse.conftest import trajectories, trajectory
from warehouse import TABLES, Warehouse
from warehouse.lake import view_statements


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A small history: a reference, a run that trained on its samples and found something new, an evaluation."""
    with Warehouse.open(tmp_path_factory.mktemp("views") / "warehouse") as store:
        _reference(store)
        _training(store)
        _evaluation(store)
        yield store


def _reference(store: Warehouse) -> None:
    rows = [
        trajectory("r0", source="reference", policy_start="base", normal_hash="known"),
        trajectory("r1", source="reference", policy_start="base", normal_hash="known"),
        trajectory("r2", source="reference", policy_start="base", normal_hash="wrong", reward=-1.0),
        trajectory("r3", source="reference", policy_start="base", reward=None, verdict="infra", worker="w0"),
    ]
    counts = {"problem_id": "p0", "reference": "base", "sampling": "t1", "template_id": "chat", "suite_hash": "s"}
    policy = {"policy_id": "base", "kind": "reference", "path": "/base"}
    store.append(
        "q0/1",
        {"trajectories": rows, "reference_counts": [counts | {"n": 3, "k": 2}], "policies": [policy]},
        run_id="first",
    )
    store.append("q0/2", {"reference_counts": [counts | {"n": 5, "k": 0}]}, run_id="second")


def _training(store: Warehouse) -> None:
    rows = [
        trajectory("o0", policy_start="base", normal_hash="known", step=0),
        trajectory("o1", policy_start="step10", normal_hash="new", step=10, text="print(2)"),
        trajectory("o2", policy_start="step10", normal_hash="new", step=10),
        trajectory("o3", policy_start="step10", reward=-1.0, step=10),
    ]
    batches = [
        {"step": 11, "trajectory_ids": ["to0", "to1", "tr0", "tr1"], "sources": ["online"] * 2 + ["offline"] * 2},
        {"step": 12, "trajectory_ids": ["to1", "to3"], "sources": ["online", "online"], "max_snapshot": 4},
    ]
    policies = [
        {"policy_id": "step10", "kind": "snapshot", "parent_policy_id": "base", "step": 10},
        {"policy_id": "end", "kind": "final", "parent_policy_id": "step10", "step": 12},
    ]
    stages = [
        {"stage": "train", "key": "k1", "status": "completed", "seconds": 20.0, "rows": 40},
        {"stage": "train", "key": "k1", "status": "skipped", "seconds": 1.0, "rows": 0},
    ]
    tables = {"trajectories": rows, "train_batches": batches, "policies": policies, "stages": stages}
    store.append("train", tables, run_id="second")


def _evaluation(store: Warehouse) -> None:
    def sample(policy: str, step: int, problem: str, number: int, reward: float | None) -> dict[str, object]:
        return {
            "policy_id": policy,
            "step": step,
            "problem_set": "held-out",
            "problem_id": problem,
            "sampling": "t0.4",
            "sample": number,
            "token_ids": [1],
            "reward": reward,
            "normal_hash": f"{problem}{number % 2}",
            "verdict": "infra" if reward is None else "",
        }

    rows = [sample("base", 0, "p0", n, 0.0 if n < 1 else -1.0) for n in range(5)]
    rows += [sample("base", 0, "p1", n, -1.0) for n in range(5)]
    rows += [sample("end", 12, "p0", n, 0.0 if n < 3 else -1.0) for n in range(5)]
    rows += [sample("end", 12, "p1", n, 0.0 if n < 5 else -1.0) for n in range(5)] + [sample("end", 12, "p1", 5, None)]
    store.append("eval", {"eval_samples": rows}, run_id="second")


def test_q0_adds_the_counts_of_all_runs_and_gives_an_interval(lake: Warehouse) -> None:
    (row,) = lake.rows("SELECT * FROM q0")
    low, high = beta_interval(8, 2)
    assert (row["n"], row["k"], row["s"]) == (8, 2, 0.25)
    assert row["s_lower"] == pytest.approx(low, abs=1e-7)
    assert row["s_upper"] == pytest.approx(high, abs=1e-7)


@pytest.mark.parametrize("n", [1, 2, 7, 20, 100, 800])
def test_intervals_in_sql_are_those_of_the_estimators(lake: Warehouse, n: int) -> None:
    rows = lake.rows(f"SELECT k, rate_lower({n}, k) AS low, rate_upper({n}, k) AS high FROM range({n} + 1) AS t(k)")
    for row in rows:
        assert (row["low"], row["high"]) == pytest.approx(beta_interval(n, row["k"]), abs=1e-7)


@pytest.mark.parametrize("n", [1, 5, 20, 200])
@pytest.mark.parametrize("k", [1, 3, 10])
def test_pass_at_in_sql_is_the_unbiased_estimator(lake: Warehouse, n: int, k: int) -> None:
    rows = lake.rows(f"SELECT c, pass_at({n}, c, {k}) AS p FROM range({n} + 1) AS t(c)")
    if k > n:
        assert {row["p"] for row in rows} == {None}
    else:
        assert [row["p"] for row in rows] == pytest.approx([pass_at_k(n, row["c"], k) for row in rows])


def test_soft_values_in_sql_follow_their_definition(lake: Warehouse) -> None:
    beta = 1 / math.log(100_000)
    expected = math.log(0.25 + 0.75 * math.exp(-1 / beta))
    assert lake.value("SELECT soft_value(0.25, ?)", [beta]) == pytest.approx(expected)
    assert lake.value("SELECT q_value(0.25, ?)", [beta]) == pytest.approx(beta * expected)
    assert lake.value("SELECT soft_value(0.0, ?)", [beta]) == pytest.approx(-1 / beta)


def test_unscored_responses_count_in_no_rate(lake: Warehouse) -> None:
    (row,) = lake.rows("SELECT * FROM pass_rate_by_problem WHERE source = 'reference'")
    assert (row["n"], row["k"], row["unscored"]) == (3, 2, 1)
    assert {(row["found_in"], row["response"]) for row in lake.rows("SELECT * FROM unscored")} == {
        ("trajectories", "tr3"),
        ("eval_samples", "end/5"),
    }


def test_the_offline_corpus_is_deduplicated_and_capped(lake: Warehouse, folder: str) -> None:
    rows = lake.rows("SELECT source, normal_hash, trajectory_id FROM correct_offline ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [
        ("online", "known", "to0"),
        ("online", "new", "to1"),
        ("reference", "known", "tr0"),
    ]
    with Warehouse.open(folder) as store:
        store.append("many", {"trajectories": trajectories(40)}, run_id="run")
        assert store.value("SELECT count(*) FROM correct_offline") == 32


def test_the_replay_pool_counts_what_was_trained_on(lake: Warehouse) -> None:
    rows = lake.rows("SELECT trajectory_id, uses, response_tokens FROM replay_pool ORDER BY trajectory_id")
    assert {row["trajectory_id"]: row["uses"] for row in rows} == {
        "to0": 1, "to1": 2, "to2": 0, "to3": 1, "tr0": 1, "tr1": 1, "tr2": 0,
    }  # fmt: skip
    assert {row["response_tokens"] for row in rows} == {3}


def test_uses_count_what_a_run_trained_on_and_say_how_old_it_was(lake: Warehouse) -> None:
    """`to1` was sampled by the weights of step 10 and is used in steps 11 and 12; nobody's steps made `tr0`."""
    rows = lake.rows("SELECT trajectory_id, source, use, steps_since_first, age FROM uses ORDER BY step, trajectory_id")
    assert [tuple(row.values()) for row in rows] == [
        ("to0", "online", 1, 0, 11),
        ("to1", "online", 1, 0, 1),
        ("tr0", "offline", 1, 0, None),
        ("tr1", "offline", 1, 0, None),
        ("to1", "online", 2, 1, 2),
        ("to3", "online", 1, 0, 2),
    ]


def test_source_mix_and_staleness_follow_the_batches(lake: Warehouse) -> None:
    mix = lake.rows("SELECT step, source, share FROM source_mix ORDER BY ALL")
    assert [tuple(row.values()) for row in mix] == [(11, "offline", 0.5), (11, "online", 0.5), (12, "online", 1.0)]
    stale = lake.rows("SELECT step, mean_steps, most_steps FROM staleness ORDER BY step")
    assert [tuple(row.values()) for row in stale] == [(11, 6.0, 11), (12, 2.0, 2)]


def test_new_solutions_are_those_that_nobody_wrote_before_training(lake: Warehouse) -> None:
    (row,) = lake.rows("SELECT problem_id, normal_hash, times, first_run, trajectory_id, text FROM new_solutions")
    assert (row["normal_hash"], row["times"], row["first_run"]) == ("new", 2, "second")


def test_learning_curve_and_pass_at_k_average_over_problems(lake: Warehouse) -> None:
    rows = lake.rows("SELECT * FROM learning_curve ORDER BY step")
    assert [(row["step"], row["policy_id"], row["problems"], row["samples"]) for row in rows] == [
        (0, "base", 2, 5),
        (12, "end", 2, 5),
    ]
    assert [row["pass_at_1"] for row in rows] == pytest.approx([0.1, 0.8])
    assert [row["pass_at_5"] for row in rows] == pytest.approx([0.5, 1.0])
    assert [row["pass_at_10"] for row in rows] == [None, None]
    assert lake.value("SELECT pass_at_k FROM pass_at_k WHERE policy_id = 'end' AND k = 2") == pytest.approx(0.95)


def test_evaluating_again_with_the_same_samples_changes_nothing(folder: str) -> None:
    row = {"policy_id": "a", "problem_id": "p", "sample": 0, "token_ids": [1], "reward": 0.0}
    with Warehouse.open(folder) as store:
        for run in ("one", "two"):
            store.append(f"eval/{run}", {"eval_samples": [row, row | {"sample": 1, "reward": -1.0}]}, run_id=run)
        assert store.rows("SELECT k, pass_at_k, samples FROM pass_at_k ORDER BY k") == [
            {"k": 1, "pass_at_k": 0.5, "samples": 2},
            {"k": 2, "pass_at_k": 1.0, "samples": 2},
        ]


def test_distinct_correct_programs_are_counted_per_policy(lake: Warehouse) -> None:
    found = lake.rows("SELECT policy, problem_id, correct, programs FROM distinct_correct_programs ORDER BY ALL")
    assert {tuple(row.values()) for row in found if row["policy"] == "end"} == {
        ("end", "p0", 3, 2),
        ("end", "p1", 5, 2),
    }


def test_cost_by_stage_leaves_skipped_stages_out(lake: Warehouse) -> None:
    assert lake.rows("SELECT * FROM cost_by_stage") == [
        {"run_id": "second", "stage": "train", "executions": 1, "seconds": 20.0, "rows": 40, "rows_per_s": 2.0}
    ]


def test_lineage_leads_back_to_the_reference(lake: Warehouse) -> None:
    rows = lake.rows("SELECT * FROM lineage WHERE policy_id = 'end'")
    assert [row["ancestor"] for row in rows] == ["end", "step10", "base"]
    assert [row["made_by_run"] for row in rows] == ["second", "second", "first"]
    assert (rows[0]["data_snapshot"], rows[0]["trained_on"]) == (4, 6)


def test_every_view_states_its_question_and_answers_on_an_empty_warehouse(folder: str) -> None:
    with Warehouse.open(folder) as store:
        for question, statement in view_statements():
            assert question.endswith("?") or question.startswith("(internal)"), statement
        views = store.rows("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        for row in views:
            if row["view_name"] not in TABLES:
                assert store.rows(f'SELECT * FROM "{row["view_name"]}"') == []


def test_no_view_reads_the_hidden_tests() -> None:
    for _, statement in view_statements():
        words = statement.replace(",", " ").replace("(", " ").lower().split()
        assert "tests" not in words
        assert "expected" not in words


def test_no_view_takes_the_clock_for_the_order_of_things() -> None:
    for _, statement in view_statements():
        assert not re.search(
            r"ORDER BY[^)]*created_at|arg_m\w+\([^(),]*, *created_at|\b(min|max)\(created_at", statement
        ), statement


def test_views_show_what_arrived_first_after_the_clock_was_set_back(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = {"policy_id": "p", "problem_id": "p0", "sample": 0, "token_ids": [1]}
    with Warehouse.open(folder) as store:
        for hour, run in ((12, "first"), (9, "second")):
            monkeypatch.setattr("warehouse.store.utc_now", lambda hour=hour: datetime(2030, 1, 1, hour, tzinfo=UTC))
            tables = {
                "trajectories": [trajectory(run, normal_hash="new", text=run)],
                "eval_samples": [sample | {"reward": 0.0 if run == "first" else -1.0}],
                "policies": [{"policy_id": "p", "kind": "final", "path": run}],
            }
            store.append(run, tables, run_id=run)
        (found,) = store.rows("SELECT * FROM new_solutions")
        assert (found["first_run"], found["text"], found["first_at"].hour) == ("first", "first", 12)
        assert store.rows("SELECT trajectory_id FROM correct_offline") == [{"trajectory_id": "tfirst"}]
        assert store.value("SELECT pass_at_k FROM pass_at_k WHERE k = 1") == 1.0
        assert store.value("SELECT ancestor_path FROM lineage") == "first"


def test_a_program_that_two_runs_judged_at_once_has_one_known_verdict_and_both_costs(folder: str) -> None:
    verdict = {"program_hash": "p", "suite_hash": "s", "sandbox_version": "1", "verdict": "accepted", "cpu_s": 0.5}
    with Warehouse.open(folder) as one, Warehouse.open(folder) as two:
        one.stage("one", {"verdicts": [verdict | {"verdict": "infra"}]}, run_id="one")
        two.stage("two", {"verdicts": [verdict]}, run_id="two")
        one.stage("again", {"verdicts": [verdict, verdict | {"sandbox_version": "2"}]}, run_id="one")
        one.commit()
        found = two.rows("SELECT run_id, sandbox_version, verdict FROM known_verdicts ORDER BY sandbox_version")
        assert [tuple(row.values()) for row in found] == [("two", "1", "accepted"), ("one", "2", "accepted")]
        assert two.value("SELECT sum(cpu_s) FROM verdicts") == 2.0


def test_cost_by_stage_counts_what_a_killed_attempt_took_until_its_last_sign_of_life(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, started = datetime(2026, 1, 1, tzinfo=UTC), {"stage": "train", "kind": "started", "message": "key"}
    ended = {"stage": "train", "key": "key", "status": "completed", "seconds": 10.0, "rows": 8}
    history: list[tuple[int, str, dict[str, object]]] = [
        (0, "run_events", started),
        (5, "train_batches", {"step": 1, "trajectory_ids": ["a"], "sources": ["offline"]}),
        (100, "run_events", started),
        (107, "train_batches", {"step": 2, "trajectory_ids": ["b"], "sources": ["offline"]}),
        (110, "stages", ended),
    ]
    with Warehouse.open(folder) as store:
        for second, table, row in history:
            monkeypatch.setattr("warehouse.store.utc_now", lambda second=second: began + timedelta(seconds=second))
            store.append(f"at {second}", {table: [row]}, run_id="run")
        (cost,) = store.rows("SELECT executions, seconds, rows FROM cost_by_stage")
    assert cost == {"executions": 1, "seconds": 15.0, "rows": 8}
