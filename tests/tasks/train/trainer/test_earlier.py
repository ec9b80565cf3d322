"""Online trajectories of earlier runs: which of them a run trains on, and that others cannot change it later."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.config import EarlierConfig
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.batch_mix import BatchMix
from tasks.train.trainer.earlier import Selection, select
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.state import MixState
from tests.tasks.train.conftest import PROBLEMS, RUN, config, fill, make_job, trajectory
from tests.tasks.train.trainer.test_runs import job_in, outcome, run
from tests.warehouse.conftest import judge_again
from warehouse import Warehouse

LIMIT = 12
MIX = {"online": {"share": 0.25}, "offline": {"share": 0.25}, "earlier": {"share": 0.5}}


def add(store: Warehouse, run_id: str, rewards: Sequence[float | None], **fields: Any) -> int:
    """Online trajectories of another run, one per reward, over the problems in turn; the snapshot that shows them."""
    found = store.rows("SELECT problem_id, suite_hash FROM problems")
    suites = {row["problem_id"]: row["suite_hash"] for row in found}
    chance = random.Random(run_id)
    rows = [
        trajectory(chance, number, "online")
        | {"trajectory_id": f"{run_id}-{number:03d}", "reward": reward, "step": 0, "max_response_tokens": LIMIT}
        | {"suite_hash": suites[f"p{number % PROBLEMS}"], "token_ids": [5, 6, 1], "sampled_logprobs": [-1.0] * 3}
        | fields
        for number, reward in enumerate(rewards)
    ]
    return store.append(f"rollout/{run_id}", {"trajectories": rows}, run_id=run_id)


def chosen(store: Warehouse, until: int, **settings: Any) -> Selection:
    wanted = {"run": RUN, "until": until, "limit": LIMIT, "prompts_batch": "prompts", "problems_batch": "problems"}
    return select(store, EarlierConfig(**settings), **wanted)


@pytest.fixture
def store(tmp_path: Path, reference: Path) -> Any:
    fill(tmp_path / "warehouse", reference, online=8)
    with Warehouse.open(tmp_path / "warehouse") as store:
        yield store


def test_failures_of_earlier_runs_come_back_and_the_runs_own_trajectories_do_not(store: Warehouse) -> None:
    until = add(store, "first", [0.0, -1.0, -1.0])
    assert chosen(store, until) == Selection(("first-000",), ("first-001", "first-002"))
    assert chosen(store, until, classes="successes") == Selection(("first-000",), ())
    assert chosen(store, until, classes="failures") == Selection((), ("first-001", "first-002"))


def test_a_response_that_several_runs_drew_counts_once(store: Warehouse) -> None:
    for run_id, other in (("one", 0.0), ("two", -1.0)):
        add(store, run_id, [0.0, other])
    for run_id in ("three", "four", "five"):
        until = add(store, run_id, [0.0], trajectory_id="same")
    assert chosen(store, until, per_problem=2) == Selection(("one-001", "same", "two-000"), ("two-001",))
    assert chosen(store, until, per_problem=1).successes == ("one-001", "same")


def test_what_cannot_be_trained_on_stays_out(store: Warehouse) -> None:
    add(store, "unjudged", [None])
    add(store, "other-tests", [0.0], suite_hash="other")
    add(store, "other-prompt", [0.0], prompt_id="other")
    add(store, "too-long", [0.0], token_ids=[5] * 12 + [1], sampled_logprobs=[-1.0] * 13)
    add(store, "cut-off-sooner", [-1.0], finish_reason="length", max_response_tokens=LIMIT // 2)
    until = add(store, "cut-off", [-1.0], finish_reason="length")
    assert chosen(store, until) == Selection((), ("cut-off-000",))


def test_a_run_sees_what_was_there_at_its_snapshot(store: Warehouse) -> None:
    until = add(store, "first", [0.0])
    add(store, "second", [0.0])
    assert chosen(store, until) == Selection(("first-000",), ())


def test_what_was_judged_again_is_as_old_as_it_was(store: Warehouse) -> None:
    add(store, "old", [0.0])
    until = add(store, "young", [0.0])
    add(store, "later", [0.0])
    for run_id in ("old", "later"):
        judge_again(store, f"rollout/{run_id}")
    assert chosen(store, until).successes == ("old-000", "young-000")
    assert chosen(store, until, runs=1).successes == ("young-000",)


def test_newest_runs_steps_and_problems_are_limited(store: Warehouse) -> None:
    add(store, "old", [0.0])
    add(store, "young", [0.0], step=5)
    until = add(store, "new", [0.0] * (2 * PROBLEMS + 1), step=50)
    assert {name[:3] for name in chosen(store, until, runs=2).successes} == {"you", "new"}
    assert chosen(store, until, from_step=5, to_step=9).successes == ("young-000",)
    assert {name[:3] for name in chosen(store, until, run_ids=["old", "new"]).successes} == {"old", "new"}
    assert {name[:3] for name in chosen(store, until, run_ids=["old", "new"], runs=1).successes} == {"new"}
    assert chosen(store, until, run_ids=["gone"]) == Selection((), ())
    counts = Counter(int(name[-3:]) % PROBLEMS for name in chosen(store, until, per_problem=2).successes)
    assert set(counts.values()) == {2}


def replay_of(store: Warehouse, job: TrainJob, state: MixState, after: int) -> BatchMix:
    return BatchMix(Examples(store, job, prompt_values(store, job)), state, after=after)


@pytest.mark.parametrize("classes", ["as_found", "balanced"])
def test_batches_go_through_them_by_epochs_and_continue_where_they_were(
    classes: str, store: Warehouse, tmp_path: Path, reference: Path
) -> None:
    until = add(store, "first", [0.0] * 3 + [-1.0] * 9)
    job = make_job(tmp_path, reference, config(sources=MIX, earlier={"classes": classes}))
    job = job.model_copy(update={"earlier_until": until})
    replay = replay_of(store, job, MixState(), 0)
    first = replay.next(1)
    state = replay.state()
    add(store, "second", [0.0] * 6)
    rest = [[e.trajectory_id for e in replay.next(step)] for step in (2, 3)]
    continued = replay_of(store, job, state, 1)
    assert [[e.trajectory_id for e in continued.next(step)] for step in (2, 3)] == rest
    drawn = [e for e in first if e.source == "earlier"]
    assert len(drawn) == 4
    if classes == "balanced":
        assert Counter(e.terminal == 0 for e in drawn) == {True: 2, False: 2}
    else:
        names = {e.trajectory_id for e in drawn} | {name for ids in rest for name in ids if name.startswith("first")}
        assert len(names) == 12


def test_a_run_that_has_no_earlier_one_trains_on_smaller_batches_and_says_so(
    stocked: Path, reference: Path, tmp_path: Path
) -> None:
    job = job_in(stocked, reference, tmp_path, sources=MIX, steps=2)
    with Warehouse.open(job.warehouse) as store:
        job.model_copy(update={"earlier_until": store.snapshot()}).write(tmp_path / "job.json")
    assert {len(ids) for ids in outcome(run(job))["batches"].values()} == {4}
    with Warehouse.open(job.warehouse) as store:
        (message,) = store.rows("SELECT message FROM run_events WHERE kind = 'warning' AND message LIKE '%earlier%'")
    assert "every batch is smaller by its share" in message["message"]
