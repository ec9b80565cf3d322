"""How far workers may run ahead: a table of cases, and the counts it rests on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.train.rollout_worker.backpressure import Backpressure, BackpressureReader
from tests.refusals import refused
from tests.tasks.train.conftest import RUN, config, fill, make_job, save_reference
from warehouse import Warehouse


def room(pace: Backpressure, folder: Path, **train: Any) -> bool:
    """Whether there is room with optimizer batches of 8 online trajectories, rollout batches of 8 and 100 steps."""
    shares = {"online": {"share": 1.0}}
    reference = save_reference(folder / "reference")
    return pace.has_room(make_job(folder, reference, config(**{"sources": shares, "steps": 100} | train)))


@pytest.mark.parametrize(
    ("pace", "train", "expected"),
    [
        (Backpressure(0, 0, 0, None), {}, True),
        (Backpressure(0, 0, 8, 0), {}, True),
        (Backpressure(0, 0, 16, 0), {}, False),
        (Backpressure(1, 8, 16, 0), {}, True),
        (Backpressure(0, 0, 9, 0), {}, False),
        (Backpressure(0, 0, 7, 0), {"max_batches_ahead": 1}, True),
        (Backpressure(0, 0, 8, 0), {"max_batches_ahead": 1}, False),
        (Backpressure(0, 0, 8, 0), {"rollout_workers": 2}, False),
        (Backpressure(0, 0, 16, 0), {"rollout_workers": 2, "max_batches_ahead": 4}, True),
        (Backpressure(0, 0, 17, 0), {"rollout_workers": 2, "max_batches_ahead": 4}, False),
    ],
)
def test_no_more_waits_than_the_recipe_allows_counting_what_other_workers_are_sampling(
    pace: Backpressure, train: dict[str, Any], expected: bool, tmp_path: Path
) -> None:
    assert room(pace, tmp_path, **train) is expected


@pytest.mark.parametrize(
    ("pace", "under_way", "train", "expected"),
    [
        (Backpressure(0, 0, 0, 0), 1, {}, True),
        (Backpressure(0, 0, 1, 0), 1, {}, False),
        (Backpressure(0, 0, 0, 0), 2, {}, False),
        (Backpressure(0, 0, 0, 0), 3, {"max_batches_ahead": 4}, True),
        (Backpressure(0, 0, 0, 0), 1, {"rollout_workers": 2}, False),
        (Backpressure(0, 0, 0, 0), 1, {"rollout_workers": 2, "max_batches_ahead": 4}, True),
        (Backpressure(0, 0, 0, 0), 1, {"max_batches_ahead": 0, "model_update_interval": 1}, False),
        (Backpressure(10, 80, 80, 10), 1, {"steps": 11}, False),
        (Backpressure(10, 80, 80, 10), 1, {"steps": 12}, True),
    ],
)
def test_a_batch_joins_those_under_way_where_every_worker_may_have_as_many(
    pace: Backpressure, under_way: int, train: dict[str, Any], expected: bool, tmp_path: Path
) -> None:
    shares = {"online": {"share": 1.0}}
    job = make_job(tmp_path, save_reference(tmp_path / "reference"), config(sources=shares, **{"steps": 100} | train))
    assert pace.has_room(job, under_way) is expected


@pytest.mark.parametrize(("workers", "ahead"), [(1, 0), *((n, ahead) for n in (1, 3, 16) for ahead in (1, 5))])
def test_a_trainer_that_waits_is_never_waited_for(workers: int, ahead: int, tmp_path: Path) -> None:
    for waiting in range(8):
        pace = Backpressure(steps=5, trained=40, scored=40 + waiting, published=5)
        assert room(pace, tmp_path, rollout_workers=workers, max_batches_ahead=ahead, model_update_interval=1)


def test_turns_that_would_leave_trajectories_to_a_later_policy_are_refused() -> None:
    strict = {"max_batches_ahead": 0, "model_update_interval": 1, "sources": {"online": {"share": 1.0}}}
    with refused("InvalidConfig", "train"):
        config(**strict, rollout_workers=2)
    with refused("InvalidConfig", "rollout_batch"):
        config(**strict, rollout_batch=6)
    assert config(**strict, rollout_batch=4).train.max_batches_ahead == 0


def test_alternation_samples_each_batch_with_the_weights_of_all_steps_before_it(tmp_path: Path) -> None:
    strict = {"max_batches_ahead": 0, "model_update_interval": 1}
    assert room(Backpressure(0, 0, 0, 0), tmp_path, **strict)
    assert not room(Backpressure(0, 0, 0, None), tmp_path, **strict)
    assert not room(Backpressure(3, 24, 24, 2), tmp_path, **strict)
    assert not room(Backpressure(3, 24, 32, 3), tmp_path, **strict)
    assert room(Backpressure(3, 24, 24, 3), tmp_path, **strict)


def test_a_resumed_run_waits_until_weights_are_published_again(tmp_path: Path) -> None:
    assert not room(Backpressure(3, 24, 24, None), tmp_path)
    behaviour = {"weights": "reference"}
    assert room(Backpressure(3, 24, 24, None), tmp_path, behaviour=behaviour)


def test_nothing_is_sampled_that_the_run_will_not_train_on(tmp_path: Path) -> None:
    assert room(Backpressure(10, 80, 87, 10), tmp_path, steps=11)
    assert not room(Backpressure(10, 80, 88, 10), tmp_path, steps=11)


def test_only_scored_online_trajectories_of_the_run_count(tmp_path: Path) -> None:
    reference = save_reference(tmp_path / "reference")
    fill(tmp_path / "warehouse", reference, online=16)
    job = make_job(tmp_path, reference, config())
    with Warehouse.open(job.warehouse) as store:
        unscored = {"trajectory_id": "u", "problem_id": "p0", "source": "online", "token_ids": [1], "reward": None}
        other = unscored | {"trajectory_id": "o", "reward": 0.0}
        store.append("unscored", {"trajectories": [unscored]}, run_id=RUN)
        store.append("other", {"trajectories": [other]}, run_id="another")
        assert Backpressure.read(store, job) == Backpressure(0, 0, 16, None)
        trained = {"step": 1, "trajectory_ids": ["online-0000", "reference-0000"], "sources": ["online", "offline"]}
        store.append("train", {"train_batches": [trained]}, run_id=RUN)
        assert Backpressure.read(store, job) == Backpressure(1, 1, 16, None)


def test_what_was_trained_on_and_quarantined_since_leaves_nothing_waiting_or_missing(tmp_path: Path) -> None:
    reference = save_reference(tmp_path / "reference")
    fill(tmp_path / "warehouse", reference, online=16)
    job = make_job(tmp_path, reference, config())
    with Warehouse.open(job.warehouse) as store:
        online = store.rows("SELECT trajectory_id, batch_id FROM trajectories WHERE source = 'online'")
        batch = min(row["batch_id"] for row in online)
        gone = [row["trajectory_id"] for row in online if row["batch_id"] == batch]
        store.append("bad", {"quarantine": [{"bad_batch_id": batch, "reason": ""}]}, run_id="quarantine")
        assert Backpressure.read(store, job) == Backpressure(0, 0, len(online) - len(gone), None)
        trained = {"step": 1, "trajectory_ids": gone, "sources": ["online"] * len(gone)}
        store.append("train", {"train_batches": [trained]}, run_id=RUN)
        assert Backpressure.read(store, job) == Backpressure(1, len(gone), len(online), None)


def test_a_worker_counts_its_run_once_and_adds_what_it_appends(tmp_path: Path) -> None:
    reference = save_reference(tmp_path / "reference")
    fill(tmp_path / "warehouse", reference, online=16)
    job = make_job(tmp_path, reference, config())
    with Warehouse.open(job.warehouse) as warehouse:
        store = Counted(warehouse)
        reader = BackpressureReader(store, job)
        assert [reader.read() for _ in range(3)] == [Backpressure(0, 0, 16, None)] * 3
        row = {"problem_id": "p0", "source": "online", "token_ids": [1], "reward": 0.0}
        store.append("other", {"trajectories": [row | {"trajectory_id": "o"}]}, run_id="another")
        assert reader.read().scored == 16
        more = [row | {"trajectory_id": "m"}, row | {"trajectory_id": "n", "reward": None}]
        store.append("more", {"trajectories": more}, run_id=RUN)
        assert [reader.read().scored for _ in range(3)] == [17] * 3
        trained = {"step": 1, "trajectory_ids": ["m", "reference-0000"], "sources": ["online", "offline"]}
        store.append("step", {"train_batches": [trained]}, run_id=RUN)
        assert (
            [reader.read() for _ in range(2)]
            == [Backpressure(1, 1, 17, None)] * 2
            == [Backpressure.read(store, job)] * 2
        )
        assert store.asked == 2, "the reader's own count, and the one beside it"
        store.append("late", {"trajectories": [row | {"trajectory_id": "l"}]}, run_id=RUN)
        assert reader.read().scored == 18
        store.append("bad", {"quarantine": [{"bad_batch_id": "late", "reason": ""}]}, run_id="quarantine")
        reader.oldest_s = 0.0
        assert reader.read().scored == 17


def test_a_step_trained_anew_makes_a_worker_count_again(tmp_path: Path) -> None:
    reference = save_reference(tmp_path / "reference")
    fill(tmp_path / "warehouse", reference, online=16)
    job = make_job(tmp_path, reference, config())
    step = {"step": 1, "trajectory_ids": ["online-0000"], "sources": ["online"]}
    with Warehouse.open(job.warehouse) as store:
        reader = BackpressureReader(store, job)
        for number, name in ((1, "first"), (2, "second")):
            store.append(name, {"train_batches": [step | {"step": number}]}, run_id=RUN)
        assert reader.read() == Backpressure(2, 2, 16, None)
        bad = [{"bad_batch_id": name, "reason": ""} for name in ("first", "second")]
        store.append("bad", {"quarantine": bad}, run_id="quarantine")
        store.append("again", {"train_batches": [step]}, run_id=RUN)
        assert reader.read() == Backpressure(1, 1, 16, None)


def test_groups_that_arrive_are_counted_whole(tmp_path: Path) -> None:
    reference = save_reference(tmp_path / "reference")
    fill(tmp_path / "warehouse", reference, online=16)
    sources = {"online": {"share": 1.0, "objectives": [{"kind": "max_rl"}]}}
    behaviour = {"temperature": [1.0, 1.0], "top_p": 1.0}
    job = make_job(tmp_path, reference, config(sources=sources, behaviour=behaviour, responses_per_prompt=4))
    row = {"source": "online", "token_ids": [1], "reward": 0.0}
    rows = [
        row | {"trajectory_id": f"{problem}-{n}", "problem_id": problem} for problem in ("p0", "p1") for n in range(4)
    ]
    with Warehouse.open(job.warehouse) as warehouse:
        store = Counted(warehouse)
        reader = BackpressureReader(store, job)
        before = reader.read()
        store.append("groups", {"trajectories": rows[:-1]}, run_id=RUN)
        asked = store.asked
        assert reader.read().scored == before.scored + 4
        assert store.asked == asked
        assert Backpressure.read(store, job).scored == before.scored + 4


class Counted:
    """A warehouse that counts the queries that it is asked."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse, self.asked = warehouse, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._warehouse, name)

    def rows(self, *asked: Any, **named: Any) -> list[dict[str, Any]]:
        self.asked += 1
        return self._warehouse.rows(*asked, **named)
