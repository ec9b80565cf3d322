"""Pairs of a success and a failure of pi_0: which there are, in which order they come, and that DPO trains on them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.checkpoints.checkpoint import policy_id
from tasks.config import PairsConfig
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.batch_mix import BatchMix
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.pairs import Selection, select
from tasks.train.trainer.state import MixState
from tests.refusals import refused
from tests.tasks.train.conftest import config, fill, make_job, trajectory
from tests.tasks.train.trainer.test_runs import assert_identical, job_in, kill_at, outcome, run
from tests.warehouse.conftest import judge_again
from warehouse import Warehouse

LIMIT = 12
DPO: dict[str, Any] = {"sources": {"pairs": {"share": 1.0, "objectives": [{"kind": "dpo"}]}}, "steps": 4}
PASS, FAIL = 0.0, -1.0


def add(store: Warehouse, reference: Path, name: str, problem: str, rewards: Sequence[float], **fields: Any) -> int:
    """Samples of pi_0 for one problem, a program each; the snapshot that shows them."""
    (found,) = store.rows("SELECT suite_hash FROM problems WHERE problem_id = ?", (problem,))
    chance, sampler = random.Random(name), policy_id(reference)
    by_pi_0 = {"policy_start": sampler, "policy_end": sampler, "max_response_tokens": LIMIT}
    belongs = {"problem_id": problem, "prompt_id": f"q{problem[1:]}", "suite_hash": found["suite_hash"]}
    rows = [
        trajectory(chance, number, "reference")
        | by_pi_0
        | belongs
        | {"trajectory_id": f"{name}-{number}", "program_hash": f"{name}-{number}", "reward": reward}
        | {"token_ids": [5, 6 + number % 9, 1], "sampled_logprobs": [-1.0] * 3}
        | fields
        for number, reward in enumerate(rewards)
    ]
    return store.append(f"q0/{name}", {"trajectories": rows}, run_id="other")


def chosen(store: Warehouse, reference: Path, until: int, **settings: Any) -> Selection:
    batches = {"prompts_batch": "prompts", "problems_batch": "problems"}
    return select(store, PairsConfig(**settings), reference=policy_id(reference), until=until, limit=LIMIT, **batches)


def sides(found: Selection) -> list[tuple[str, str]]:
    """Of each pair, where its success and its failure come from."""
    return [(success.split("-")[0], failure.split("-")[0]) for success, failure in found.pairs]


@pytest.fixture
def store(tmp_path: Path, reference: Path) -> Any:
    fill(tmp_path / "warehouse", reference, online=8)
    with Warehouse.open(tmp_path / "warehouse") as store:
        yield store


def test_a_pair_is_of_one_problem_and_no_response_is_in_two(store: Warehouse, reference: Path) -> None:
    add(store, reference, "a", "p0", [PASS, FAIL, FAIL, FAIL, PASS])
    add(store, reference, "b", "p1", [FAIL, FAIL, PASS])
    until = add(store, reference, "c", "p2", [PASS, PASS])
    found = chosen(store, reference, until)
    assert sorted(sides(found)) == [("a", "a"), ("a", "a"), ("b", "b")]
    used = [identity for pair in found.pairs for identity in pair]
    assert len(set(used)) == len(used)
    assert {success for success, _ in found.pairs} == {"a-0", "a-4", "b-2"}
    assert len(chosen(store, reference, until, per_problem=1).pairs) == 2


def test_only_what_pi_0_sampled_under_the_runs_conditions_is_paired(store: Warehouse, reference: Path) -> None:
    add(store, reference, "other-policy", "p0", [PASS, FAIL], policy_start="x", policy_end="x")
    add(store, reference, "other-tests", "p0", [PASS, FAIL], suite_hash="x")
    add(store, reference, "other-prompt", "p0", [PASS, FAIL], prompt_id="x")
    add(store, reference, "online", "p0", [PASS, FAIL], source="online")
    add(store, reference, "cut-off-sooner", "p0", [PASS, FAIL], finish_reason="length", max_response_tokens=6)
    until = add(store, reference, "equal", "p0", [PASS, PASS, FAIL, FAIL], program_hash="x")
    assert chosen(store, reference, until).pairs == ()
    later = add(store, reference, "a", "p0", [PASS, FAIL])
    assert chosen(store, reference, until).pairs == ()
    assert len(chosen(store, reference, later).pairs) == 1


def test_pairs_are_those_that_were_there_whenever_they_were_judged_again(store: Warehouse, reference: Path) -> None:
    until = add(store, reference, "a", "p0", [PASS, FAIL])
    add(store, reference, "b", "p1", [PASS, FAIL])
    for name in ("a", "b"):
        judge_again(store, f"q0/{name}")
    assert sides(chosen(store, reference, until)) == [("a", "a")]


def drawn(store: Warehouse, job: TrainJob, state: MixState, steps: range) -> tuple[list[MixState], list[Any]]:
    replay = BatchMix(Examples(store, job, prompt_values(store, job)), state, after=steps.start - 1)
    states, found = list[MixState](), list[Any]()
    for step in steps:
        found.append([(e.group, e.trajectory_id, e.terminal == 0) for e in replay.next(step)])
        states.append(replay.state())
    return states, found


def test_pairs_come_whole_successes_first_and_others_cannot_change_them_later(
    tmp_path: Path, store: Warehouse, reference: Path
) -> None:
    until = add(store, reference, "a", "p0", [PASS, FAIL] * 10)
    job = make_job(tmp_path, reference, config(**DPO)).model_copy(update={"pairs_until": until})
    states, first = drawn(store, job, MixState(), range(1, 5))
    for batch in first:
        assert [passed for _, _, passed in batch] == [True, False] * 4
        assert all(a[0] == b[0] == a[1] for a, b in zip(batch[::2], batch[1::2], strict=True))
    add(store, reference, "late", "p0", [PASS, FAIL] * 10)
    job = job.model_copy(update={"pairs_until": store.snapshot()})
    assert drawn(store, job, states[0], range(2, 5))[1] == first[1:]


def test_a_run_without_a_pair_is_refused_by_name_and_looks_again_when_it_is_resumed(
    tmp_path: Path, store: Warehouse, reference: Path
) -> None:
    job = make_job(tmp_path, reference, config(**DPO)).model_copy(update={"pairs_until": store.snapshot()})
    with refused("NothingToTrainOn", "'pairs'"):
        drawn(store, job, MixState(), range(1, 2))
    until = add(store, reference, "a", "p0", [PASS, FAIL])
    (batch,) = drawn(store, job.model_copy(update={"pairs_until": until}), MixState(), range(1, 2))[1]
    assert len(batch) == 2


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    folder = tmp_path_factory.mktemp("paired")
    fill(folder / "warehouse", reference, online=0)
    with Warehouse.open(folder / "warehouse") as store:
        for number in range(4):
            add(store, reference, f"s{number}", f"p{number}", [PASS, FAIL, FAIL, PASS, PASS, FAIL])
    return folder


def test_dpo_trains_and_goes_on_after_a_kill_as_it_would_have(paired: Path, reference: Path, tmp_path: Path) -> None:
    def job_of(folder: Path) -> TrainJob:
        job = job_in(paired, reference, folder, **DPO)
        job = job.model_copy(update={"pairs_until": 1_000_000})
        job.write(folder / "job.json")
        return job

    whole = outcome(run(job_of(tmp_path / "whole")))
    assert all(whole["figures"][step, "grad_norm"] > 0 for step in range(1, 5))
    assert whole["figures"][4, "loss"] < whole["figures"][1, "loss"]
    killed = job_of(tmp_path / "killed")
    kill_at(killed, 2)
    assert_identical(outcome(run(killed)), whole)
