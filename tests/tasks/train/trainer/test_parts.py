"""The trainer's parts, one at a time."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks.config import PPOConfig, validate
from tasks.run.epoch_order import EpochOrder
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy
from tasks.scoring.reference import Reference, ReferenceStore
from tasks.train.shared import atomic, published_weights
from tasks.train.shared.errors import NonFinite
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer import batch_mix, checkpoint, guards
from tasks.train.trainer.batch_mix import BatchMix
from tasks.train.trainer.examples import Examples, reward_of
from tasks.train.trainer.schedule import rate_factor, warmup_factor
from tasks.train.trainer.spo_step import not_finite, spo_pack_loss
from tasks.train.trainer.state import MixState
from tests.refusals import refused
from tests.tasks.train.conftest import config, examples, fill, make_job, tiny_model, trajectory
from warehouse import Warehouse


def test_the_rate_rises_to_its_full_value_and_stays() -> None:
    assert [warmup_factor(step, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert warmup_factor(0, 0) == 1.0


def test_the_rate_decays_over_the_last_steps_where_asked_for() -> None:
    spo = config(steps=5, optimizer={"warmup_steps": 2, "decay_steps": 4}).train
    assert [rate_factor(step, spo) for step in range(6)] == [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    ppo = spo.model_copy(update={"algorithm": "ppo", "ppo": PPOConfig(epochs=1, minibatches=2)})
    assert [rate_factor(update, ppo) for update in (1, 2, 8, 9)] == [1.0, 1.0, 0.25, 0.125], "two updates a step"
    assert {rate_factor(step, config(steps=5, optimizer={"warmup_steps": 1}).train) for step in range(9)} == {1.0}
    with refused("InvalidConfig", "decay_steps"):
        config(steps=5, optimizer={"decay_steps": 6})


def test_an_order_gives_every_id_once_per_epoch_and_continues_where_it_was() -> None:
    ids = [f"t{i}" for i in range(7)]
    order = EpochOrder(ids, seed=1, source="offline")
    taken = order.take(10)
    assert sorted(taken[:7]) == ids
    again = EpochOrder(ids[::-1], seed=1, source="offline", epoch=order.epoch, used=order.used)
    assert again.take(9) == order.take(9)


def test_replay_continues_from_its_state(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=24)
    job = make_job(tmp_path, reference, config())
    with Warehouse.open(job.warehouse) as warehouse:
        source = Examples(warehouse, job, prompt_values(warehouse, job))
        replay = BatchMix(source, MixState(), after=0)
        replay.next(1)
        state = replay.state()
        rest = [[e.trajectory_id for e in replay.next(step)] for step in (2, 3, 4)]
        continued = BatchMix(source, state, after=1)
        assert [[e.trajectory_id for e in continued.next(step)] for step in (2, 3, 4)] == rest


def test_members_of_the_corpus_that_were_quarantined_are_left_out(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=16)
    job = make_job(tmp_path, reference, config()).model_copy(update={"corpus_id": "mixed"})
    chance = random.Random(1)
    with Warehouse.open(job.warehouse) as warehouse:
        members: list[dict[str, Any]] = []
        for batch, first in (("q0/a", 100), ("q0/b", 106)):
            rows = [trajectory(chance, first + number, "reference") for number in range(6)]
            members += [{"corpus_id": "mixed", "source": "reference"} | _named(row) for row in rows]
            warehouse.append(batch, {"trajectories": rows}, run_id="setup")
        warehouse.append("corpus/mixed", {"corpus": members}, run_id="setup")
        warehouse.append("bad", {"quarantine": [{"bad_batch_id": "q0/a", "reason": "wrong"}]}, run_id="setup")
        mix = BatchMix(Examples(warehouse, job, prompt_values(warehouse, job)), MixState(), after=0)
        drawn = [e.trajectory_id for step in (1, 2, 3) for e in mix.next(step) if e.source == "offline"]
    assert len(drawn) >= 6
    assert set(drawn) == {row["trajectory_id"] for row in members[6:]}


class Counting(Examples):
    """Notes how many examples are fetched at a time."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.fetched: list[int] = []

    def fetch(self, ids: Any, name: Any) -> Any:
        self.fetched.append(len(ids))
        return super().fetch(ids, name)


def test_a_small_corpus_is_fetched_once_until_a_batch_is_left_out(
    tmp_path: Path, reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "warehouse", reference, online=400)
    job = make_job(tmp_path, reference, config(steps=80))
    monkeypatch.setattr(batch_mix, "BLOCK", 4)
    with Warehouse.open(job.warehouse) as warehouse:
        source = Counting(warehouse, job, prompt_values(warehouse, job))
        fetched = source.fetched
        mix = BatchMix(source, MixState(), after=0)
        corpus = len(mix.orders["offline"].ids)
        for step in range(1, 50):
            mix.next(step)
        assert fetched[-1] == corpus
        assert len(fetched) <= 2
        assert {one.trajectory_id for one in mix.ahead()} >= {*mix.orders["offline"].ids}
        batch = warehouse.rows("SELECT batch_id FROM trajectories WHERE source = 'reference'")[0]["batch_id"]
        warehouse.append("bad", {"quarantine": [{"bad_batch_id": batch, "reason": "wrong"}]}, run_id="setup")
        mix.next(50)
        mix.next(51)
        with refused("NothingToTrainOn"):
            mix.next(52)


def _named(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("trajectory_id", "problem_id")}


def test_a_run_killed_again_while_it_repeats_recorded_steps_still_finds_their_trajectories(
    tmp_path: Path, reference: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=24)
    job = make_job(tmp_path, reference, config())
    with Warehouse.open(job.warehouse) as warehouse:
        source = Examples(warehouse, job, prompt_values(warehouse, job))
        replay = BatchMix(source, MixState(), after=0)
        recorded = {step: [(e.trajectory_id, e.source) for e in replay.next(step)] for step in (1, 2, 3)}
        for step, batch in recorded.items():
            ids, sources = zip(*batch, strict=True)
            row = {"step": step, "trajectory_ids": list(ids), "sources": list(sources)}
            warehouse.append(f"train/{job.run_id}/{step:08d}", {"train_batches": [row]}, run_id=job.run_id)
        first = BatchMix(source, MixState(), after=0)
        first.next(1)
        second = BatchMix(source, first.state(), after=1)
        assert [[e.trajectory_id for e in second.next(step)] for step in (2, 3)] == [
            [identity for identity, _ in recorded[step]] for step in (2, 3)
        ]


def test_a_response_that_several_runs_have_counts_as_this_run_has_it(tmp_path: Path, reference: Path) -> None:
    """The same sample, judged by another suite, by this run, and by others that could not judge it."""
    fill(tmp_path / "warehouse", reference, online=0)
    job = make_job(tmp_path, reference, config())
    with Warehouse.open(job.warehouse) as warehouse:
        suites = {row["problem_id"]: row["suite_hash"] for row in warehouse.rows("SELECT * FROM problems")}
        row = trajectory(random.Random(3), 0, "online") | {"suite_hash": suites["p0"], "step": 2}
        others = {
            "a": row | {"reward": -1.0},
            "z": row | {"reward": -1.0, "suite_hash": "another"},
            job.run_id: row | {"reward": 0.0},
            "y": row | {"reward": None, "verdict": "infra"},
        }
        for run_id, one in others.items():
            warehouse.append(f"rollout/{run_id}/0", {"trajectories": [one]}, run_id=run_id)
        earlier = [
            others["z"] | {"trajectory_id": "e", "run_id": "z"},
            others["a"] | {"trajectory_id": "e", "reward": 0.0},
        ]
        for number, one in enumerate(earlier):
            one.pop("run_id", None)
            warehouse.append(f"earlier/{number}", {"trajectories": [one]}, run_id=f"earlier-{number}")
        source = Examples(warehouse, job, prompt_values(warehouse, job))
        own = source.fetch([row["trajectory_id"]], "online")[row["trajectory_id"]]
        other = source.fetch(["e"], "earlier")["e"]
    assert (own.terminal, own.sampled_step) == (0.0, 2)
    assert (other.terminal, other.sampled_step) == (0.0, None), "that of the run's suite"


def test_rollouts_of_a_pivotal_search_count_under_the_same_prompt_suite_and_length_limit(
    tmp_path: Path, reference: Path
) -> None:
    fill(tmp_path / "warehouse", reference, online=0)
    job = make_job(tmp_path, reference, config(sources={"pivotal_rollouts": {"share": 1.0}}))
    with Warehouse.open(job.warehouse) as warehouse:
        suites = {row["problem_id"]: row["suite_hash"] for row in warehouse.rows("SELECT * FROM problems")}
        row = trajectory(random.Random(3), 0, "pivotal_rollout") | {
            "suite_hash": suites["p0"],
            "policy_start": job.counts.reference,
            "max_response_tokens": 12,
            "token_ids": [2, 3, 1],
            "sampled_logprobs": [-1.0] * 3,
        }
        changes: dict[str, dict[str, Any]] = {
            "fits": {},
            "of another prompt": {"prompt_id": "q-of-another-template"},
            "judged by another suite": {"suite_hash": "another"},
            "cut off earlier": {"finish_reason": "length", "max_response_tokens": 3},
            "too long": {"token_ids": [2] * 13, "sampled_logprobs": [-1.0] * 13},
        }
        made = [row | {"trajectory_id": name} | change for name, change in changes.items()]
        warehouse.append("search", {"trajectories": made}, run_id="search")
        replay = BatchMix(Examples(warehouse, job, prompt_values(warehouse, job)), MixState(), after=0)
        assert {example.trajectory_id for example in replay.next(1)} == {"fits"}


@pytest.mark.parametrize(("q0", "share_of_p0"), [({}, None), ({"zero_successes": "keep", "prior": 2.0}, 2 / 104)])
def test_prompts_without_a_success_are_dropped_or_kept_as_the_recipe_says(
    q0: dict[str, Any], share_of_p0: float | None, tmp_path: Path, reference: Path
) -> None:
    """p0 has no success in its 100 samples; kept, it starts from two pseudo-successes and two pseudo-failures."""
    fill(tmp_path / "warehouse", reference, online=0, successes=[0, 5, 6, 7, 8, 100])
    run = validate(config().model_dump() | {"q0": q0})
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        values = prompt_values(warehouse, make_job(tmp_path, reference, run))
    shares = {"p0": share_of_p0, "p1": 0.05, "p2": 0.06, "p3": 0.07, "p4": 0.08, "p5": 1.0}
    floor = math.exp(-1 / run.train.beta)
    wanted = {name: math.log(share + (1 - share) * floor) for name, share in shares.items() if share is not None}
    assert values == pytest.approx(wanted)


def test_a_policy_that_differs_from_the_reference_is_refused_before_the_first_step() -> None:
    same, other = (Policy(tiny_model(seed), layout="packed", chunk=64) for seed in (0, 1))
    guards.check_start([same(lay_out(examples(4), same.layout))[0].detach()], Reference(same), examples(4))
    with refused("ReferenceDrift"):
        guards.check_start([same(lay_out(examples(4), same.layout))[0].detach()], Reference(other), examples(4))


def test_stored_reference_logprobs_that_no_longer_come_out_are_an_error() -> None:
    reference = Reference(Policy(tiny_model(), layout="packed", chunk=64))
    batch = examples(3)
    _, stored = reference.logprobs(lay_out(batch), {})
    assert guards.check_stored(reference, batch, stored, 1e-4) < 1e-5
    stored[batch[0].trajectory_id][0] += 0.1
    with refused("ReferenceDrift", "quarantine"):
        guards.check_stored(reference, batch, stored, 1e-3)


def test_stored_reference_logprobs_of_another_length_are_an_error(tmp_path: Path, reference: Path) -> None:
    fill(tmp_path / "warehouse", reference, online=0)
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        store = ReferenceStore(warehouse, "f")
        example = examples(1)[0]
        store.add({example.trajectory_id: [0.0] * (len(example.response_ids) + 1)})
        with refused("StoredLogprobsMismatch"):
            store.lookup([example])


def test_a_loss_that_is_not_finite_names_its_trajectory() -> None:
    policy = Policy(tiny_model(), layout="packed", chunk=64)
    bad = replace(examples(2)[1], y0=math.nan)
    pack = lay_out([examples(2)[0], bad])
    logp, entropy = policy(pack)
    _, records = spo_pack_loss(pack, logp, logp.detach(), entropy, config().train)
    error = not_finite((record.trajectory_id, record.loss) for record in records)
    assert isinstance(error, NonFinite)
    assert error.trajectory_ids == (bad.trajectory_id,)
    assert not_finite([("t", 1.0)]) is None


def test_fractional_rewards_are_shares_of_tests_minus_one() -> None:
    row = {"reward": -1.0, "verdict": "wrong_answer", "tests_passed": 3, "tests_total": 4}
    assert reward_of(row, fractional=True) == -0.25
    assert reward_of(row, fractional=False) == -1.0
    assert reward_of(row | {"verdict": "cut_off"}, fractional=True) == -1.0


def test_published_weights_load_as_an_ordinary_checkpoint_and_old_ones_are_pruned(
    tmp_path: Path, reference: Path
) -> None:
    from tasks.checkpoints.checkpoint import load_weights, tokenizer_hash

    model = tiny_model(5)
    for step in range(0, 12, 2):
        published_weights.publish(tmp_path, step, model, model.state_dict(), like=reference)
    newest = published_weights.latest(tmp_path)
    assert newest is not None
    assert newest.step == 10
    loaded = load_weights(newest.folder, "float32")
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in model.state_dict().items())
    assert tokenizer_hash(newest.folder) == tokenizer_hash(reference)
    published_weights.prune(tmp_path, {4})
    assert [f.name[-2:] for f in atomic.complete_folders(tmp_path, "step-")] == ["04", "06", "08", "10"]


def test_a_folder_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    (atomic.start_folder(tmp_path / "step-1") / "a").write_text("x")
    assert atomic.complete_folders(tmp_path, "step-") == []
    building = atomic.start_folder(tmp_path / "step-2")
    assert [path.name for path in tmp_path.iterdir()] == [building.name]
    atomic.finish_folder(building, tmp_path / "step-2")
    assert [path.name for path in tmp_path.iterdir()] == ["step-2"]


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path, reference: Path) -> None:
    job = make_job(tmp_path, reference, config())
    folder = job.checkpoints / "step-00000002"
    folder.mkdir(parents=True)
    (folder / checkpoint.STATE).write_text('{"step": 2, "replay": {}}', encoding="utf-8")
    with refused("ResumeImpossible"):
        checkpoint.newest(job)


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_refused_with_its_size(tmp_path: Path, reference: Path) -> None:
    job = make_job(tmp_path, reference, config())
    engine = SimpleNamespace(state_bytes=1 << 60, rank=0)
    error = checkpoint.no_room(job, engine, 4)  # type: ignore[arg-type]
    assert error is not None
    assert f"{(1 << 60) >> 20} MiB" in str(error)
    engine.state_bytes = 1
    assert checkpoint.no_room(job, engine, 4) is None  # type: ignore[arg-type]
