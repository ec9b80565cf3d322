from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

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


def test_q0_keeps_prompts_apart(tmp_path: Path) -> None:
    counts = {"problem_id": "p", "reference": "base", "sampling": "t1", "template_id": "chat", "suite_hash": "s"}
    with Warehouse.open(tmp_path / "warehouse") as store:
        for prompt, k in (("old", 4), ("new", 1), ("new", 0)):
            store.append(
                f"{prompt} {k}", {"reference_counts": [counts | {"prompt_id": prompt, "n": 4, "k": k}]}, run_id="run"
            )
        found = store.rows("SELECT prompt_id, n, k FROM q0 ORDER BY n")
    assert found == [{"prompt_id": "old", "n": 4, "k": 4}, {"prompt_id": "new", "n": 8, "k": 1}]


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


@pytest.mark.parametrize("writer", ["base", "other", "end"])
def test_what_pi_0_or_another_model_wrote_in_an_evaluation_is_no_new_solution(writer: str, folder: str) -> None:
    """A problem may be evaluated on in one run and trained on in another; what training wrote there stays its own."""
    policies = [{"policy_id": "base", "kind": "reference"}, {"policy_id": "end", "kind": "final"}]
    sample = {"policy_id": writer, "problem_id": "p0", "sample": 0, "token_ids": [1], "reward": 0.0}
    with Warehouse.open(folder) as store:
        found = {
            "policies": policies,
            "trajectories": [trajectory(0, normal_hash="h", policy_start="end", source="online")],
        }
        store.append("found", found, run_id="run")
        store.append("evaluated", {"eval_samples": [sample | {"normal_hash": "h"}]}, run_id="run")
        assert store.value("SELECT count(*) FROM new_solutions") == (writer == "end")


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


def judged(policy: str, problem: str = "p0", *, prompt: str = "zero-shot", suite: str = "s1", reward: float, n: int = 2,
           **more: object) -> list[dict[str, object]]:  # fmt: skip
    """`n` samples of a policy on a problem, all with the same reward; the seeds do not depend on prompt and suite."""
    row = {"policy_id": policy, "step": 0, "problem_set": "set", "problem_id": problem, "suite_hash": suite}
    row |= {"prompt_id": prompt, "sampling": "t0.4", "token_ids": [1], "reward": reward}
    return [row | {"sample": number, "seed": 100 + number} | more for number in range(n)]


CURVE = "SELECT run_id, step, pass_at_1, problems, samples FROM learning_curve ORDER BY ALL"


@pytest.mark.parametrize("other", [{"prompt": "few-shot"}, {"suite": "s2"}])
def test_a_run_shows_what_its_own_prompts_and_suites_gave(folder: str, other: dict[str, str]) -> None:
    """Both runs evaluate one policy with the same seeds: with two prompt templates, or before and after new tests."""
    with Warehouse.open(folder) as store:
        store.append("eval/1", {"eval_samples": judged("p", reward=-1.0, n=10)}, run_id="one")
        store.append("eval/2", {"eval_samples": judged("p", reward=0.0, n=10, **other)}, run_id="two")
        assert [tuple(row.values()) for row in store.rows(CURVE)] == [("one", 0, 0.0, 1, 10), ("two", 0, 1.0, 1, 10)]
        figures = store.rows("SELECT pass_at_k, problems, samples FROM pass_at_k WHERE k IN (1, 20)")
        assert [tuple(row.values()) for row in figures] == [(0.5, 1, 10)], "a problem counts once, a sample for itself"


def test_what_another_run_drew_of_a_runs_problems_at_the_same_time_is_in_its_curve(folder: str) -> None:
    trained = [row for p in ("p0", "p1") for row in judged("end", p, reward=0.0, step=9)]
    with Warehouse.open(folder) as store:
        store.append("1", {"eval_samples": [*judged("base", "p0", reward=-1.0), *trained]}, run_id="one")
        store.append("2", {"eval_samples": judged("base", "p1", reward=0.0)}, run_id="two")
        store.append("3", {"eval_samples": judged("base", "p2", reward=0.0)}, run_id="two")
        assert [tuple(row.values()) for row in store.rows(CURVE)] == [
            ("one", 0, 0.5, 2, 2),
            ("one", 9, 1.0, 2, 2),
            ("two", 0, 1.0, 2, 2),
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


def test_each_kept_policy_was_trained_on_what_came_before_its_step(folder: str) -> None:
    batches = [
        {"step": n, "trajectory_ids": ["a"] * 4, "sources": ["online"] * 4, "max_snapshot": n} for n in (1, 2, 3)
    ]
    policies = [{"policy_id": f"at {n}", "kind": "snapshot", "step": n, "parent_policy_id": "base"} for n in (0, 1, 2)]
    final = {"policy_id": "at 3", "kind": "final", "step": 3, "parent_policy_id": "base"}
    with Warehouse.open(folder) as store:
        store.append("base", {"policies": [{"policy_id": "base", "kind": "reference", "step": 0}]}, run_id="run")
        store.append("train", {"train_batches": batches, "policies": [*policies, final]}, run_id="run")
        rows = store.rows("SELECT policy_id, trained_on, data_snapshot FROM lineage WHERE generation = 0 ORDER BY ALL")
    assert [tuple(row.values()) for row in rows] == [
        ("at 0", None, None),
        ("at 1", 4, 1),
        ("at 2", 8, 2),
        ("at 3", 12, 3),
        ("base", None, None),
    ]


def test_a_policy_that_was_evaluated_first_is_what_a_run_makes_of_it(folder: str) -> None:
    with Warehouse.open(folder) as store:
        for kind, run in (("evaluated", "eval-1"), ("reference", "tiny-1")):
            store.append(kind, {"policies": [{"policy_id": "p", "kind": kind, "step": 0}]}, run_id=run)
            batch = {"step": 0, "trajectory_ids": ["a"], "sources": ["online"]}
            store.append(f"train {run}", {"train_batches": [batch]}, run_id=run)
            (row,) = store.rows("SELECT ancestor_kind, made_by_run, trained_on FROM lineage")
            assert tuple(row.values()) == (kind, run, None)


def test_responses_that_two_runs_drew_alike_are_as_old_as_in_the_run_that_used_them(folder: str) -> None:
    """Runs with equal seeds draw the same first responses under the same names."""
    rows, names = trajectories(4, step=0), [f"t{n}" for n in range(4)]
    with Warehouse.open(folder) as store:
        for run in ("one", "two"):
            step = {"step": 3, "trajectory_ids": [*names, names[0]], "sources": ["online"] * 5}
            store.append(run, {"trajectories": rows, "train_batches": [step]}, run_id=run)
        store.append("theirs", {"trajectories": [trajectory("other", step=0)]}, run_id="two")
        theirs = {"step": 4, "trajectory_ids": [*names, "tother"], "sources": ["online"] * 5}
        store.append("replayed", {"train_batches": [theirs]}, run_id="one")
        found = store.rows("SELECT run_id, step, trajectories, mean_steps, most_steps FROM staleness ORDER BY ALL")
    assert [tuple(row.values()) for row in found] == [
        ("one", 3, 5, 3.0, 3),
        ("one", 4, 4, 4.0, 4),
        ("two", 3, 5, 3.0, 3),
    ]


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


def test_views_show_what_arrived_first_after_the_clock_was_set_back(folder: str) -> None:
    sample = {"policy_id": "p", "problem_id": "p0", "sample": 0, "token_ids": [1]}
    with Warehouse.open(folder) as store:
        for hour, run in ((12, "first"), (9, "second")):
            store.clock = partial(datetime, 2030, 1, 1, hour, tzinfo=UTC)
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


def test_a_problem_that_nobody_could_judge_has_no_rate(store: Warehouse) -> None:
    store.append("unscored", {"trajectories": [{**row, "reward": None} for row in trajectories(2)]}, run_id="run")
    found = store.rows("SELECT n, rate, unscored FROM pass_rate_by_problem")
    assert found == [{"n": 0, "rate": None, "unscored": 2}]


def test_an_extended_suite_counts_as_its_own_version(store: Warehouse) -> None:
    problem = {"problem_id": "p", "split": "train", "statement": "s", "style": "stdin"}
    parent = {"parent_suite_hash": "one", "parent_tests_hash": "t"}
    extended = {"problem_id": "p", "suite_hash": "two", "version": 2, "added": [], "audit_ids": [], **parent}
    rows = [{**problem, "suite_hash": name} for name in ("one", "two")]
    store.append("suites", {"problems": rows, "suite_versions": [extended]}, run_id="run")
    found = store.rows("SELECT judged_by, suite_hash, version FROM counting_suites ORDER BY judged_by")
    assert [tuple(row.values()) for row in found] == [("one", "two", 2), ("two", "two", 2)]
