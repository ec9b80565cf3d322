"""Which samples say what the soft values are: pi_0's own, drawn in Q0's way for the run's prompts, under its tests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tasks.checkpoints.checkpoint import policy_id
from tasks.estimators import soft_value, soft_value_of_share
from tasks.sampling.reference_counts import counted
from tasks.train.shared.soft_values import mean_return, prompt_values
from tests.tasks.train.conftest import config, fill, make_job
from warehouse import Warehouse
from warehouse.superseding import content

LIMIT = 12
"""`engine.max_response_tokens` of the job."""


def sample(store: Warehouse, reference: Path, name: str, passed: int, **changes: Any) -> dict[str, Any]:
    """A sample for problem p0 that passed so many of four tests."""
    suite = store.value("SELECT suite_hash FROM problems WHERE problem_id = 'p0'")
    drawn = {"source": "reference", "policy_start": policy_id(reference), "temperature": 1.0, "top_p": 1.0}
    drawn |= {"max_response_tokens": LIMIT, "prefix_tokens": 0, "prompt_id": "q0", "suite_hash": suite}
    judged = {"verdict": "wrong_answer", "reward": -1.0, "tests_passed": passed, "tests_total": 4}
    return {"trajectory_id": name, "problem_id": "p0", "token_ids": [1], **drawn, **judged, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "online"},
        {"policy_start": "another policy"},
        {"temperature": 0.7},
        {"top_p": 0.95},
        {"max_response_tokens": LIMIT + 1},
        {"prefix_tokens": 3},
        {"prompt_id": "the same problem in another template"},
        {"suite_hash": "other tests"},
        {"reward": None},
        {"tests_total": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_fractional_soft_values_leave_out_what_was_not_drawn_and_judged_like_q0(
    changes: dict[str, Any], reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=0, offline=0)
    job = make_job(tmp_path, reference, config(reward="fractional"))
    with Warehouse.open(tmp_path / "warehouse") as store:
        rows = [sample(store, reference, "a", 1), sample(store, reference, "b", 3)]
        store.append("drawn", {"trajectories": rows}, run_id="earlier")
        expected = math.log((math.exp(-0.75 / job.train.beta) + math.exp(-0.25 / job.train.beta)) / 2)
        assert prompt_values(store, job) == {"p0": pytest.approx(expected)}
        store.append("odd", {"trajectories": [sample(store, reference, "c", 4, **changes)]}, run_id="earlier")
        assert prompt_values(store, job) == {"p0": pytest.approx(expected)}


def test_a_sample_that_several_runs_drew_alike_counts_once(reference: Path, tmp_path: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=0, offline=0)
    job = make_job(tmp_path, reference, config(reward="fractional"))
    with Warehouse.open(tmp_path / "warehouse") as store:
        rows = [sample(store, reference, "a", 1), sample(store, reference, "b", 3)]
        store.append("drawn", {"trajectories": rows}, run_id="earlier")
        before = prompt_values(store, job)
        store.append("again", {"trajectories": rows[1:]}, run_id="beside")
        assert prompt_values(store, job) == before


def test_soft_values_take_nothing_after_their_snapshot_nor_from_the_runs_own_workers(
    reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=0, offline=0)
    job = make_job(tmp_path, reference, config(reward="fractional"))
    with Warehouse.open(tmp_path / "warehouse") as store:
        first = store.append("a", {"trajectories": [sample(store, reference, "a", 2)]}, run_id="earlier")
        job = job.model_copy(update={"counts": job.counts.model_copy(update={"until": first})})
        before = prompt_values(store, job)
        store.append("b", {"trajectories": [sample(store, reference, "b", 4)]}, run_id="later")
        assert prompt_values(store, job) == before
        newest = job.model_copy(update={"counts": job.counts.model_copy(update={"until": None})})
        assert prompt_values(store, newest)["p0"] > before["p0"]
        own = {"trajectories": [sample(store, reference, "c", 0)]}
        after = prompt_values(store, newest)
        store.append(f"rollout/{job.run_id}/0/00000000", own, run_id=job.run_id)
        assert prompt_values(store, newest) == after


@pytest.mark.parametrize("reward", ["binary", "fractional"])
def test_where_rewards_are_shares_q0_counts_no_rollouts_of_others_either(
    reward: str, reference: Path, tmp_path: Path
) -> None:
    """Else it would take them for samples, and the soft value be of the few that are left."""
    fill(tmp_path / "warehouse", reference, online=0, offline=0)
    job = make_job(tmp_path, reference, config(reward=reward))
    with Warehouse.open(tmp_path / "warehouse") as store:
        before = counted(store, job.counts)["p0"]
        row = store.rows("SELECT * FROM reference_counts WHERE problem_id = 'p0'")[0]
        rollouts = content(row) | {"n": 7, "k": 2}
        store.append("rollout/earlier/0/00000000", {"reference_counts": [rollouts]}, run_id="earlier")
        n, k = counted(store, job.counts)["p0"]
    assert (n - before[0], k - before[1]) == ((7, 2) if reward == "binary" else (0, 0))


def test_a_prompt_whose_samples_pass_no_test_keeps_its_floor_however_small_beta_is(
    reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=0, offline=0)
    job = make_job(tmp_path, reference, config(reward="fractional", beta=0.001))
    with Warehouse.open(tmp_path / "warehouse") as store:
        store.append("a", {"trajectories": [sample(store, reference, "a", 0)]}, run_id="earlier")
        assert prompt_values(store, job) == {"p0": pytest.approx(-1000)}


def test_the_mean_return_of_fractional_rewards_is_the_mean_reward_and_stays_when_others_draw_more(
    reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=0, offline=0)
    job = make_job(tmp_path, reference, config(reward="fractional"))
    with Warehouse.open(tmp_path / "warehouse") as store:
        rows = [sample(store, reference, "a", 2), sample(store, reference, "b", 3)]
        store.append("drawn", {"trajectories": rows}, run_id="earlier")
        assert mean_return(store, job) == pytest.approx((-0.5 - 0.25) / 2)
        store.append("more", {"trajectories": [sample(store, reference, "c", 0)]}, run_id="later")
        assert mean_return(store, job) == pytest.approx((-0.5 - 0.25) / 2)


@pytest.mark.parametrize("fate", ["drop", "keep", "corpus"])
def test_what_is_never_solved_is_dropped_or_kept_with_a_prior_or_by_its_known_programs(
    fate: str, reference: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=0, successes=(0, 0, 7, 8, 9, 10))
    run = config()
    run = run.model_copy(update={"q0": run.q0.model_copy(update={"zero_successes": fate})})
    job = make_job(tmp_path, reference, run).model_copy(update={"known_shares": {"p1": 0.001, "p2": 0.9}})
    with Warehouse.open(tmp_path / "warehouse") as store:
        found = prompt_values(store, job)
    beta = run.train.beta
    kept = soft_value(100, 0, beta, prior=0.5)
    unsolved = {
        "drop": {},
        "keep": {"p0": kept, "p1": kept},
        "corpus": {"p0": kept, "p1": soft_value_of_share(0.001, beta)},  # nothing is known of p0
    }[fate]
    assert found == unsolved | {f"p{i}": soft_value(100, k, beta) for i, k in ((2, 7), (3, 8), (4, 9), (5, 10))}
