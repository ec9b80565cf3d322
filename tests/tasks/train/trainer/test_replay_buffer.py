"""Which trajectories are used again, how often, and that a resumed run uses them as it would have."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tasks.config import GuardConfig, ReplayConfig
from tasks.scoring.example import Example
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.batch_mix import BatchMix
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.guards import CollapseWatch
from tasks.train.trainer.metrics import summarize
from tasks.train.trainer.replay_buffer import ReplayBuffer, Used, Uses
from tasks.train.trainer.spo_step import SequenceRecord, with_log_ratios
from tasks.train.trainer.state import MixState
from tests.tasks.train.conftest import config, examples, fill, make_job
from warehouse import Warehouse

TINY = {"online": {"share": 0.5}, "offline": {"share": 0.25}, "pivotal": {"share": 0.25}}
RULES = ["uniform", "first_in_first_out", "recent", "positive", "balanced"]
MIXED: dict[str, Any] = {
    "sources": {"online": {"share": 0.25}, "replay": {"share": 0.5}, "offline": {"share": 0.25}},
    "replay": {"uses": 3, "window": 4},
}
Batches = dict[int, list[tuple[str, str]]]


def draw(warehouse: Warehouse, job: TrainJob, state: MixState, steps: range) -> tuple[BatchMix, Batches]:
    """The batches of these steps as (source, trajectory), and the replay they came from."""
    source = Examples(warehouse, job, prompt_values(warehouse, job))
    replay = BatchMix(source, state, after=steps.start - 1)
    return replay, {step: [(e.source, e.trajectory_id) for e in replay.next(step)] for step in steps}


def record(warehouse: Warehouse, batches: Batches) -> None:
    for step, batch in batches.items():
        row = {"step": step, "trajectory_ids": [i for _, i in batch], "sources": [source for source, _ in batch]}
        warehouse.append(f"train/run-a/{step:08d}", {"train_batches": [row]}, run_id="run-a")


def held(count: int, *, first: int = 1, failures: int = 0) -> list[Used]:
    """Trajectories that were used once, in step `first`; the first `failures` of them failed."""
    found = [
        replace(example, trajectory_id=f"t{i:03d}", problem_id="p0", terminal=-11.5 if i < failures else 0.0)
        for i, example in enumerate(examples(count))
    ]
    return [Used(example, Uses(first, first, 1)) for example in found]


def drawn(buffer: ReplayBuffer, step: int, count: int) -> list[str]:
    return [example.trajectory_id for example in buffer.draw(step, count)]


def test_recipes_without_replay_draw_the_batches_they_always_drew(tmp_path: Path, reference: Path) -> None:
    """The digest was taken before there was a source `replay`."""
    fill(tmp_path / "warehouse", reference, online=24)
    job = make_job(tmp_path, reference, config(sources=TINY))
    with Warehouse.open(job.warehouse) as warehouse:
        _, batches = draw(warehouse, job, MixState(), range(1, 7))
    digest = hashlib.sha256(json.dumps(list(batches.values())).encode()).hexdigest()
    assert digest[:16] == "426719912630458c"


@pytest.mark.parametrize("rule", RULES)
def test_no_trajectory_is_used_more_often_or_longer_than_allowed(rule: str) -> None:
    buffer = ReplayBuffer(ReplayConfig(uses=3, window=4, rule=rule), seed=1)  # type: ignore[arg-type]
    uses: Counter[str] = Counter()
    for step in range(1, 30):
        again = buffer.draw(step, 6)
        ids = [example.trajectory_id for example in again]
        assert len(set(ids)) == len(ids)
        assert all(step - 4 <= int(identity.split("-")[0]) < step for identity in ids)
        new = [replace(example, trajectory_id=f"{step}-{n}") for n, example in enumerate(examples(3))]
        buffer.use(step, [*new, *again])
        uses.update([e.trajectory_id for e in new] + ids)
    assert max(uses.values()) == 3
    assert sum(uses.values()) == 29 * 3 + sum(count - 1 for count in uses.values())


def test_first_in_first_out_is_a_queue_that_everyone_joins_again_at_its_end() -> None:
    buffer = ReplayBuffer(ReplayConfig(uses=9, rule="first_in_first_out"), 0, held(4))
    order: list[str] = []
    for step in (2, 3, 4, 5):
        again = buffer.draw(step, 2)
        buffer.use(step, again)
        order += [example.trajectory_id for example in again]
    assert order == ["t000", "t001", "t002", "t003"] * 2


def test_uniform_draws_differ_by_step_and_seed_and_repeat_for_the_same() -> None:
    buffers = [ReplayBuffer(ReplayConfig(), seed, held(40)) for seed in (5, 5, 6)]
    assert drawn(buffers[0], 2, 8) == drawn(buffers[1], 2, 8)
    assert drawn(buffers[0], 2, 8) != drawn(buffers[2], 2, 8)
    assert drawn(buffers[0], 2, 8) != drawn(buffers[0], 3, 8)


def test_everyone_is_drawn_as_often_as_its_weight_says() -> None:
    """One of two is drawn, 4,000 times: with weights 3 to 1 the first comes up with probability 3/4."""
    for rule, share in (("uniform", 1 / 2), ("positive", 3 / 4)):
        buffer = ReplayBuffer(ReplayConfig(rule=rule, window=10**6), 0, held(2, failures=1))  # type: ignore[arg-type]
        found = Counter(drawn(buffer, step, 1)[0] for step in range(2, 4002))
        assert found["t001"] / 4000 == pytest.approx(share, abs=0.03)


def test_recent_trajectories_are_likelier_in_proportion_to_what_is_left_of_their_window() -> None:
    """Used first in steps 1 and 6, window 10: in step 7 the weights are 0.5 and 1."""
    old, new = held(1, first=1)[0], held(2, first=6)[1]
    shares = Counter(
        drawn(ReplayBuffer(ReplayConfig(rule="recent", window=10), seed, [old, new]), 7, 1)[0] for seed in range(4000)
    )
    assert shares["t001"] / 4000 == pytest.approx(2 / 3, abs=0.03)


def test_balanced_draws_as_many_successes_as_failures_of_a_problem_that_has_both() -> None:
    """Of p0 nine failures and one success, of p1 ten successes: p0's success is as likely as its failures together."""
    solved = [replace(used.example, trajectory_id=f"o{i}", problem_id="p1") for i, used in enumerate(held(10))]
    pool = [*held(10, failures=9), *(Used(example, Uses(1, 1, 1)) for example in solved)]
    buffer = ReplayBuffer(ReplayConfig(rule="balanced", window=10**6), 0, pool)
    found = Counter(drawn(buffer, step, 1)[0] for step in range(2, 4002))
    of_p0 = sum(count for name, count in found.items() if name.startswith("t"))
    assert of_p0 / 4000 == pytest.approx(1 / 2, abs=0.03)
    assert found["t009"] / of_p0 == pytest.approx(1 / 2, abs=0.04)


def test_the_batch_is_smaller_until_there_is_enough_to_use_again(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=24)
    job = make_job(tmp_path, reference, config(**MIXED))
    with Warehouse.open(job.warehouse) as warehouse:
        _, batches = draw(warehouse, job, MixState(), range(1, 7))
    mixes = {step: Counter(source for source, _ in batch) for step, batch in batches.items()}
    assert mixes[1] == {"online": 2, "offline": 2}
    assert mixes[2] == {"online": 2, "replay": 2, "offline": 2}
    assert mixes[3] == {"online": 2, "replay": 4, "offline": 2}


@pytest.mark.parametrize("rule", RULES)
def test_a_resumed_run_uses_what_it_would_have_used(rule: str, tmp_path: Path, reference: Path) -> None:
    """Killed after step 4 was recorded, with a checkpoint of an earlier step; what follows comes from the uses."""
    fill(tmp_path / "warehouse", reference, online=24)
    job = make_job(tmp_path, reference, config(**MIXED | {"replay": {"uses": 3, "window": 4, "rule": rule}}))
    with Warehouse.open(job.warehouse) as warehouse:
        whole, batches = draw(warehouse, job, MixState(), range(1, 1))
        states = {0: whole.state()}
        for step in range(1, 8):
            batches[step] = [(e.source, e.trajectory_id) for e in whole.next(step)]
            states[step] = whole.state()
        record(warehouse, {step: batch for step, batch in batches.items() if step <= 4})
        for kept in (0, 2, 4):
            _, again = draw(warehouse, job, states[kept], range(kept + 1, 8))
            assert again == {step: batch for step, batch in batches.items() if step > kept}


def test_what_was_quarantined_is_not_used_again(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=24)
    job = make_job(tmp_path, reference, config(**MIXED))
    with Warehouse.open(job.warehouse) as warehouse:
        replay, batches = draw(warehouse, job, MixState(), range(1, 5))
        record(warehouse, batches)
        bad = {"bad_batch_id": "rollout/run-a/0/00000000", "reason": "a test"}
        warehouse.append("quarantine", {"quarantine": [bad]}, run_id="setup")
        _, rest = draw(warehouse, job, replay.state(), range(5, 7))
    gone = {f"online-{number:04d}" for number in range(8)}
    assert not gone & {identity for batch in rest.values() for _, identity in batch}


def test_what_is_quarantined_while_the_run_goes_on_is_neither_taken_nor_drawn_again(
    tmp_path: Path, reference: Path
) -> None:
    """A batch that was in use, and one that waits; both are let go of where the next block of steps begins."""
    fill(tmp_path / "warehouse", reference, online=64)
    shares = {"online": {"share": 0.25}, "replay": {"share": 0.75}, "offline": {"share": 0.0}}
    settings = config(sources=shares, replay={"uses": 40, "window": 40}, steps=40)
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        job = make_job(tmp_path, reference, settings)
        mix, batches = draw(warehouse, job, MixState(), range(1, 6))
        assert mix.online is not None
        assert mix.buffer is not None
        mix.online.refill()
        gone = {f"online-{number:04d}" for number in (*range(8), *range(40, 48))}
        assert {*mix.online.ids()} & gone
        assert {*mix.buffer.ids()} & gone
        bad = [{"bad_batch_id": f"rollout/run-a/0/{number:08d}", "reason": "a test"} for number in (0, 5)]
        warehouse.append("quarantine", {"quarantine": bad}, run_id="setup")
        later = [mix.next(step) for step in range(6, 24)]
    drawn = [{(e.source, e.trajectory_id) for e in batch} for batch in later]
    assert gone & {name for batch in drawn[:10] for _, name in batch}
    assert not gone & {name for batch in drawn[10:] for _, name in batch}
    assert all(len(batch) == len(batches[5]) for batch in drawn)


def test_between_two_samplings_replay_gives_the_share_of_online(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=24)
    shares = {"online": {"share": 0.5}, "replay": {"share": 0.0}, "offline": {"share": 0.5}}
    job = make_job(tmp_path, reference, config(sources=shares, sampling_interval=3, replay={"uses": 3}))
    with Warehouse.open(job.warehouse) as warehouse:
        _, batches = draw(warehouse, job, MixState(), range(1, 7))
    mixes = [Counter(source for source, _ in batch) for batch in batches.values()]
    fresh, again = {"online": 4, "offline": 4}, {"replay": 4, "offline": 4}
    assert mixes == [fresh, again, again] * 2
    assert job.train.sampled_by(6) == 8
    taken = Counter(identity for batch in batches.values() for source, identity in batch if source != "offline")
    assert set(taken.values()) == {3}


def test_an_example_keeps_all_but_its_source_when_it_is_used_again() -> None:
    (used,) = held(1)
    again: list[Example] = ReplayBuffer(ReplayConfig(), 0, [used]).draw(2, 5)
    assert again == [replace(used.example, source="replay")]


def test_what_was_sampled_is_measured_by_age_against_the_weights_that_sampled_it() -> None:
    """Two responses of weights 3 and 12 steps old, at twice and at half of their probability then."""
    made = [replace(e, response_ids=(5, 6), sampled_step=at) for e, at in zip(examples(2), (17, 8), strict=True)]
    records = [
        SequenceRecord("t", "online", 2, True, -1.0, y_T, e.terminal, 0.5, 1.0, 0.1, sampled_step=e.sampled_step)
        for e, y_T in zip(made, (-1.0, -3.0), strict=True)
    ]
    known = [replace(e, sampled_logp=-4.0) for e in made]
    records = with_log_ratios(records, known, torch.tensor([-4.0 + math.log(2), -4.0 - math.log(2)]))
    figures = summarize(records, step=20)
    assert figures["online/log_ratio"] == pytest.approx(math.log(2) / 2)
    assert {name: value for name, value in figures.items() if name.startswith("age/")} == pytest.approx(
        {"age/0/sequences": 1, "age/0/y_T": -1, "age/0/loss": 0.5, "age/0/log_ratio": math.log(2) / 2}
        | {"age/10/sequences": 1, "age/10/y_T": -3, "age/10/loss": 0.5, "age/10/log_ratio": math.log(2) / 2}
    )


def test_steps_between_two_samplings_say_nothing_about_new_responses() -> None:
    watch, used = CollapseWatch(GuardConfig()), {"grad_norm": 1.0, "replay/log_ratio": 0.01}
    sampled = used | {"online/length": 20.0, "online/stop_fraction": 0.4}
    found = [watch.warnings(sampled if step % 3 == 0 else used) for step in range(40)]
    assert set(found[-1]) == {"stop"}


def test_trajectories_further_from_the_policy_than_was_ever_seen_to_go_well_are_warned_of() -> None:
    watch = CollapseWatch(GuardConfig(warn_log_ratio=0.3))
    assert not [watch.warnings({"grad_norm": 1.0, "replay/log_ratio": 0.29}) for _ in range(10)][-1]
    assert set([watch.warnings({"grad_norm": 1.0, "replay/log_ratio": 0.4}) for _ in range(5)][-1]) == {"stale"}
    seldom = CollapseWatch(GuardConfig(warn_log_ratio=0.3))
    steps = [{"grad_norm": 1.0} | ({"replay/log_ratio": 0.4} if step % 3 else {}) for step in range(15)]
    assert set([seldom.warnings(figures) for figures in steps][-1]) == {"stale"}, "of the steps that replay"
