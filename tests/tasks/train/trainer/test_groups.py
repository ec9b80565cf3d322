"""Whole groups in the trainer: as they arrive, in batches, used again, after kills, and however a batch is divided."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.config import TrainConfig
from tasks.scoring.example import Example
from tasks.train.rollout_worker.backpressure import Backpressure
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.batch_mix import BatchMix
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.groups import arrived, kept_together, with_group_values
from tasks.train.trainer.state import MixState
from tests.tasks.train.conftest import PROBLEMS, RUN, config, examples, fill, make_job, trajectory
from tests.tasks.train.trainer.test_runs import assert_close, assert_identical, job_in, kill_at, outcome, run
from warehouse import Warehouse

K = 2
EXACT: dict[str, Any] = {"behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0}}


def only(source: str, **objective: Any) -> dict[str, Any]:
    """A training section of one source with one objective."""
    return EXACT | {"sources": {source: {"share": 1.0, "objectives": [objective]}}}


TBA_REPLAYED: dict[str, Any] = {
    "steps": 8,
    "checkpoint_interval": 3,
    "sources": {
        "online": {"share": 0.5, "objectives": [{"kind": "tba"}]},
        "replay": {"share": 0.5, "objectives": [{"kind": "tba"}]},
    },
    "replay": {"uses": 3, "window": 4},
}
METHODS: dict[str, dict[str, Any]] = {
    "grpo": only("online", kind="grpo"),
    "dapo": only("online", kind="grpo", clip_high=0.28),
    "dr_grpo": only("online", kind="grpo", normalize=False, reduction="sum"),
    "grpo truncated": only("online", kind="grpo", truncation=2.0, kl=0.04),
    "rloo": only("online", kind="rloo"),
    "rloo with kl": only("online", kind="rloo", kl=0.05),
    "max_rl": only("online", kind="max_rl"),
    "pass_at_k": only("online", kind="pass_at_k", k=2),
    "asymre": only("online", kind="asymre"),
    "tba": only("online", kind="tba"),
    "oapl": only("online", kind="oapl", regression_beta=0.02),
    "a_star_po": only("online", kind="a_star_po"),
}


def group(chance: random.Random, number: int, batch: int) -> list[dict[str, Any]]:
    """K responses to one prompt, the first a success and the second a failure."""
    place = batch * 4 + number
    members = [trajectory(chance, place * K + i, "online") for i in range(K)]
    prompt = {"problem_id": f"p{place % PROBLEMS}", "prompt_id": f"q{place % PROBLEMS}", "step": 0}
    return [row | prompt | {"reward": 0.0 if i == 0 else -1.0} for i, row in enumerate(members)]


def fill_groups(folder: Path, reference: Path, batches: int) -> None:
    """As `fill`, with online rollout batches of four groups."""
    fill(folder / "warehouse", reference, online=0)
    chance = random.Random(11)
    with Warehouse.open(folder / "warehouse") as store:
        for batch in range(batches):
            rows = [row for number in range(4) for row in group(chance, number, batch)]
            store.append(f"rollout/{RUN}/0/{batch:08d}", {"trajectories": rows}, run_id=RUN)


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Path:
    folder = tmp_path_factory.mktemp("grouped")
    fill_groups(folder, reference, 4)
    return folder


def online(count: int, problem: str = "p0") -> list[Example]:
    return [replace(e, trajectory_id=f"t{i}", problem_id=problem) for i, e in enumerate(examples(count))]


def test_a_prompt_drawn_twice_in_a_batch_makes_two_groups_and_an_incomplete_one_is_left_out() -> None:
    twice, short = online(4), [replace(e, trajectory_id=f"s{e.trajectory_id}") for e in online(1, "p1")]
    batches = {e.trajectory_id: "b0" for e in (*twice, *short)}
    found = arrived([*short, *twice[::-1]], batches, K)
    assert [(e.group, e.trajectory_id) for e in found] == [("t0", "t0"), ("t0", "t1"), ("t2", "t2"), ("t2", "t3")]


def test_responses_of_different_batches_are_never_compared() -> None:
    members = online(2)
    assert arrived(members, {"t0": "b0", "t1": "b1"}, K) == []


def test_a_group_that_lost_a_member_goes_with_it() -> None:
    found = {e.trajectory_id: e for e in online(4) if e.trajectory_id != "t1"}
    assert [e.trajectory_id for e in kept_together(["t0", "t1", "t2", "t3"], found, K)] == ["t2", "t3"]
    assert [e.trajectory_id for e in kept_together(["t0", "t1", "t2"], found, 1)] == ["t0", "t2"]


def test_values_belong_to_the_group_whatever_the_order_of_the_batch() -> None:
    train = config(**METHODS["rloo"]).train
    members = [replace(e, group=f"t{i - i % K}", terminal=-10.0 * (i % 2)) for i, e in enumerate(online(4))]
    reward = -10.0 * train.beta
    for batch in (members, [members[i] for i in (3, 0, 2, 1)]):
        found = {e.trajectory_id: e.group_values for e in with_group_values(batch, train, None)}
        assert found == {f"t{i}": (pytest.approx(-reward if i % 2 == 0 else reward),) for i in range(4)}


def batches(job: TrainJob, state: MixState, steps: range) -> tuple[list[MixState], list[list[Example]]]:
    states, found = list[MixState](), list[list[Example]]()
    with Warehouse.open(job.warehouse) as store:
        replay = BatchMix(Examples(store, job, prompt_values(store, job)), state, after=steps.start - 1)
        for step in steps:
            found.append(replay.next(step))
            states.append(replay.state())
    return states, found


def assert_whole(batch: list[Example]) -> None:
    sizes = Counter((e.source, e.group) for e in batch)
    assert set(sizes.values()) == {K}
    assert all(len({e.problem_id for e in batch if e.group == name}) == 1 for _, name in sizes)


def test_every_batch_holds_whole_groups_and_goes_on_from_its_state(grouped: Path, reference: Path) -> None:
    job = make_job(grouped, reference, config(**METHODS["grpo"]))
    states, whole = batches(job, MixState(), range(1, 5))
    for batch in whole:
        assert_whole(batch)
    _, rest = batches(job, states[0], range(2, 5))
    assert rest == whole[1:]


def test_responses_without_a_verdict_take_their_group_out_and_workers_make_up_for_it(
    tmp_path: Path, reference: Path
) -> None:
    """Otherwise a worker would count them as waiting, stop too early, and the trainer wait for ever."""
    fill_groups(tmp_path, reference, 1)
    job = make_job(tmp_path, reference, config(**METHODS["grpo"]))
    with Warehouse.open(job.warehouse) as store:
        broken = group(random.Random(3), 0, 50)
        broken[1] |= {"reward": None, "verdict": "infra"}
        store.append(f"rollout/{RUN}/0/00000009", {"trajectories": broken}, run_id=RUN)
        assert Backpressure.read(store, job).scored == 8
        alone = make_job(tmp_path, reference, config())
        assert Backpressure.read(store, alone).scored == 9
    _, (batch,) = batches(job, MixState(), range(1, 2))
    assert not {row["trajectory_id"] for row in broken} & {e.trajectory_id for e in batch}


def test_replay_draws_whole_groups(grouped: Path, reference: Path) -> None:
    job = make_job(grouped, reference, config(**TBA_REPLAYED))
    _, found = batches(job, MixState(), range(1, 6))
    for batch in found:
        assert_whole(batch)
    assert [sum(e.source == "replay" for e in batch) for batch in found] == [0, 4, 4, 4, 4]


def test_a_killed_run_draws_the_groups_that_it_would_have_drawn(grouped: Path, reference: Path, tmp_path: Path) -> None:
    whole = outcome(run(job_in(grouped, reference, tmp_path / "whole", **TBA_REPLAYED)))
    job = job_in(grouped, reference, tmp_path / "killed", **TBA_REPLAYED)
    kill_at(job, 2)
    kill_at(job, 4)
    assert_identical(outcome(run(job)), whole)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_trains(name: str, grouped: Path, reference: Path, tmp_path: Path) -> None:
    """Three steps of the whole trainer, with every guard."""
    found = outcome(run(job_in(grouped, reference, tmp_path, **METHODS[name], steps=3)))
    losses = [found["figures"][step, "loss"] for step in (1, 2, 3)]
    norms = [found["figures"][step, "grad_norm"] for step in (1, 2, 3)]
    assert all(abs(loss) < 100 for loss in losses)
    assert all(norm > 0 for norm in norms)


@pytest.mark.parametrize("name", ["tba", "grpo"])
def test_a_group_divided_over_packs_gives_the_same_weights(
    name: str, grouped: Path, reference: Path, tmp_path: Path
) -> None:
    """Packs of one sequence each, against one that holds the batch."""
    results = [
        outcome(run(job_in(grouped, reference, tmp_path / str(n), **METHODS[name], steps=2, micro_batch_tokens=n)))
        for n in (1, 4096)
    ]
    assert_close(*results)


def test_the_group_size_is_that_of_the_objectives_with_a_share() -> None:
    assert TrainConfig().group_size == 1
    assert config(**METHODS["grpo"]).train.group_size == K
    assert config(**METHODS["a_star_po"]).train.group_size == 1
